// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/kuryr/raven/drivers"
)

// source is an object to translate.
type source struct {
	watch  drivers.Watch
	object map[string]any
	// given says that it comes from who runs the checks; the others are made up.
	given bool
}

func (s source) String() string {
	metadata, _ := s.object["metadata"].(map[string]any)
	name := fmt.Sprint(metadata["name"])
	if namespace, ok := metadata["namespace"].(string); ok && namespace != "" {
		name = namespace + "/" + name
	}
	if !s.given {
		name += " (made up)"
	}
	return s.watch.Kind + " " + name
}

// makeSources picks the objects that the driver translates and adds samples of its source watches.
func makeSources(watches []drivers.Watch, objects []map[string]any) []source {
	var all []source
	for _, watch := range watches {
		if !watch.Source {
			continue
		}
		for _, object := range objects {
			if matches, err := drivers.Matches(watch, object); err == nil && matches {
				all = append(all, source{watch: watch, object: object, given: true})
			}
		}
		for i := range 3 {
			if object := sample(watch, i); object != nil {
				all = append(all, source{watch: watch, object: object})
			}
		}
	}
	return all
}

// sample makes an object that a watch shows, nil where its selectors cannot be met by one. Of the kinds of Kubernetes
// itself number 0 has a body as clusters have it; higher numbers differ in name and have less in them.
func sample(watch drivers.Watch, number int) map[string]any {
	name := fmt.Sprintf("sample-%d", number)
	metadata := map[string]any{
		"name": name, "uid": fmt.Sprintf("00000000-0000-4000-8000-%012d", number), "resourceVersion": "1",
		"creationTimestamp": "2026-01-01T00:00:00Z", "labels": map[string]any{"app": "sample"},
	}
	if !clusterScoped(watch.Kind) {
		metadata["namespace"] = "sample"
	}
	if watch.Namespace != "" {
		metadata["namespace"] = watch.Namespace
	}
	object := map[string]any{"apiVersion": watch.GVR.GroupVersion().String(), "kind": watch.Kind, "metadata": metadata}
	if number < 2 {
		maps.Copy(object, body(watch.Kind))
	}
	meetLabels(metadata, watch.LabelSelector)
	meetFields(object, watch.FieldSelector)
	if matches, err := drivers.Matches(watch, object); err != nil || !matches {
		return nil
	}
	return object
}

func clusterScoped(kind string) bool {
	return slices.Contains([]string{
		"Namespace", "Node", "ServiceCIDR", "IPAddress", "PersistentVolume", "CustomResourceDefinition",
	}, kind)
}

// body is what objects of the kinds that drivers translate most have in them.
func body(kind string) map[string]any {
	switch kind {
	case "Pod":
		return map[string]any{
			"spec":   map[string]any{"nodeName": "node-1", "containers": []any{map[string]any{"name": "c", "image": "i"}}},
			"status": map[string]any{"phase": "Running"},
		}
	case "Service":
		return map[string]any{"spec": map[string]any{
			"type": "ClusterIP", "clusterIP": "10.96.0.10", "clusterIPs": []any{"10.96.0.10"}, "ipFamilies": []any{"IPv4"},
			"ports": []any{map[string]any{"name": "http", "port": int64(80), "protocol": "TCP", "targetPort": int64(8080)}},
		}}
	case "EndpointSlice":
		return map[string]any{
			"addressType": "IPv4", "ports": []any{map[string]any{"name": "http", "port": int64(8080), "protocol": "TCP"}},
			"endpoints": []any{map[string]any{"addresses": []any{"10.0.0.5"}, "conditions": map[string]any{"ready": true}}},
		}
	case "ServiceCIDR":
		return map[string]any{"spec": map[string]any{"cidrs": []any{"10.96.0.0/16"}}}
	case "ConfigMap", "Secret":
		return map[string]any{"data": map[string]any{"key": "dmFsdWU="}}
	case "Namespace":
		return map[string]any{"status": map[string]any{"phase": "Active"}}
	default:
		return map[string]any{"spec": map[string]any{}}
	}
}

func meetLabels(metadata map[string]any, selector string) {
	parsed, err := labels.Parse(selector)
	if err != nil {
		return
	}
	wanted, _ := parsed.Requirements()
	all := map[string]any{"app": "sample"}
	for _, want := range wanted {
		switch want.Operator() { //nolint:exhaustive // what others want cannot be met by adding a label
		case selection.In, selection.Equals, selection.DoubleEquals:
			all[want.Key()] = slices.Sorted(maps.Keys(want.Values()))[0]
		case selection.Exists:
			all[want.Key()] = "sample"
		}
	}
	metadata["labels"] = all
}

func meetFields(object map[string]any, selector string) {
	parsed, err := fields.ParseSelector(selector)
	if err != nil {
		return
	}
	for _, want := range parsed.Requirements() {
		value := want.Value
		if want.Operator == selection.NotEquals {
			if value != "" {
				continue
			}
			value = "sample"
		}
		put(object, drivers.SplitField(want.Field), value)
	}
}

// put sets what stands at a path, as far as the way there has no other things on it.
func put(object map[string]any, path []string, value any) {
	for ; len(path) > 1; path = path[1:] {
		below, ok := object[path[0]].(map[string]any)
		if !ok {
			if object[path[0]] != nil {
				return
			}
			below = map[string]any{}
			object[path[0]] = below
		}
		object = below
	}
	object[path[0]] = value
}

// answersFrom answers needs as a cluster would that holds what was given, and nothing else.
func (s *suite) answersFrom() func(drivers.Need) ([]drivers.Object, bool) {
	return func(need drivers.Need) ([]drivers.Object, bool) {
		found, err := drivers.Answer(s.watches, need, s.config.Objects)
		return found, err == nil
	}
}

// absent answers every need with nothing.
func absent(drivers.Need) ([]drivers.Object, bool) { return nil, true }

// madeUp answers every need with objects that are made up for it.
func (s *suite) madeUp() func(drivers.Need) ([]drivers.Object, bool) {
	return func(need drivers.Need) ([]drivers.Object, bool) {
		at := slices.IndexFunc(s.watches, func(w drivers.Watch) bool { return w.Name == need.Watch })
		if at < 0 {
			return nil, false
		}
		var objects []map[string]any
		for i := range 2 {
			object := sample(s.watches[at], i)
			if object == nil {
				continue
			}
			metadata, _ := object["metadata"].(map[string]any)
			if need.Namespace != "" {
				metadata["namespace"] = need.Namespace
			}
			if need.Name != "" {
				metadata["name"] = need.Name
				delete(metadata, "namespace")
				if need.Namespace != "" {
					metadata["namespace"] = need.Namespace
				}
			} else {
				meetLabels(metadata, strings.Trim(s.watches[at].LabelSelector+","+need.Selector, ","))
			}
			objects = append(objects, object)
			if need.Name != "" {
				break
			}
		}
		found, err := drivers.Answer(s.watches, need, objects)
		return found, err == nil
	}
}
