// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
)

// manifests are objects of files, in a cluster.
type manifests struct {
	dynamic   dynamic.Interface
	discovery discovery.DiscoveryInterface
	made      []made
}

// made is an object that was created.
type made struct {
	resource        schema.GroupVersionResource
	kind            string
	namespace, name string
	uid             string
}

func newManifests(kubeconfig string) (*manifests, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS = -1
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfig(config)
	return &manifests{dynamic: objects, discovery: d}, err
}

// create makes the objects of files: definitions first, then namespaces, those that are missing among them, then the
// rest.
func (m *manifests) create(ctx context.Context, files []string) error {
	var objects []*unstructured.Unstructured
	for _, file := range files {
		list, err := readManifest(file)
		if err != nil {
			return fmt.Errorf("reading %s: %w", file, err)
		}
		objects = append(objects, list...)
	}
	rank := func(o *unstructured.Unstructured) int {
		return slices.Index([]string{"Namespace", "CustomResourceDefinition"}, o.GetKind())
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(b) - rank(a) })
	for _, object := range objects {
		if err := m.createOne(ctx, object); err != nil {
			return fmt.Errorf("creating %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

func readManifest(file string) ([]*unstructured.Unstructured, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

func (m *manifests) createOne(ctx context.Context, object *unstructured.Unstructured) error {
	mapping, err := m.mapping(ctx, object.GroupVersionKind())
	if err != nil {
		return err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace && object.GetNamespace() == "" {
		object.SetNamespace(metav1.NamespaceDefault)
	}
	if space := object.GetNamespace(); space != "" {
		namespace := &unstructured.Unstructured{
			Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": space}},
		}
		if _, err := m.dynamic.Resource(namespacesGVR()).Create(ctx, namespace, metav1.CreateOptions{}); err != nil &&
			!apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	created, err := m.dynamic.Resource(mapping.Resource).Namespace(object.GetNamespace()).Create(ctx, object,
		metav1.CreateOptions{})
	if err != nil {
		return err
	}
	m.made = append(m.made,
		made{mapping.Resource, object.GetKind(), object.GetNamespace(), object.GetName(), string(created.GetUID())})
	return nil
}

// mapping finds the resource of a kind, and waits for a moment where its definition was just made.
func (m *manifests) mapping(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		groups, err := restmapper.GetAPIGroupResources(m.discovery)
		if err != nil {
			return nil, err
		}
		mapping, err := restmapper.NewDiscoveryRESTMapper(groups).RESTMapping(gvk.GroupKind(), gvk.Version)
		if err == nil {
			return mapping, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// unfinished says what raven is not done with: an object of any driver, one that is missing, a driver without any.
func (m *manifests) unfinished(r *report, drivers []string) string {
	if !r.Ready {
		return "it is not ready"
	}
	kinds, seen := map[string]bool{}, map[string]bool{}
	for _, o := range r.Objects {
		if o.State != "done" {
			return fmt.Sprintf("%s %s/%s of driver %s is %s: %s", o.Kind, o.Namespace, o.Name, o.Driver, o.State,
				strings.Join(o.Reasons, "; "))
		}
		kinds[o.Kind], seen[o.Driver] = true, true
		seen[o.Kind+" "+o.Namespace+"/"+o.Name] = true
	}
	for _, driver := range drivers {
		if !seen[driver] {
			return fmt.Sprintf("driver %s has no object", driver)
		}
	}
	for _, o := range m.made {
		if kinds[o.kind] && !seen[o.kind+" "+o.namespace+"/"+o.name] {
			return fmt.Sprintf("%s %s/%s is not among its objects", o.kind, o.namespace, o.name)
		}
	}
	return ""
}

// uids are those of the objects.
func (m *manifests) uids() []string {
	uids := make([]string, 0, len(m.made))
	for _, o := range m.made {
		uids = append(uids, o.uid)
	}
	return uids
}

// notes are the annotations of the objects, and the Events about them.
func (m *manifests) notes(ctx context.Context) ([]string, error) {
	var lines []string
	for _, o := range m.made {
		object, err := m.dynamic.Resource(o.resource).Namespace(o.namespace).Get(ctx, o.name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		annotations := object.GetAnnotations()
		for _, key := range slices.Sorted(maps.Keys(annotations)) {
			lines = append(lines,
				fmt.Sprintf("%s %s  %s: %s", o.kind, strings.TrimPrefix(o.namespace+"/"+o.name, "/"), key, annotations[key]))
		}
	}
	events, err := m.dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "events"}).List(ctx,
		metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, event := range events.Items {
		text := func(path ...string) string { s, _, _ := unstructured.NestedString(event.Object, path...); return s }
		lines = append(lines, fmt.Sprintf("%s %s  Event %s %s: %s", text("involvedObject", "kind"),
			strings.TrimPrefix(text("involvedObject", "namespace")+"/"+text("involvedObject", "name"), "/"), text("type"),
			text("reason"), text("message")))
	}
	return lines, nil
}

// remove deletes what was made, the last first; definitions stay, for their deletion takes the objects from the
// drivers' sight.
func (m *manifests) remove(ctx context.Context) error {
	for _, o := range slices.Backward(m.made) {
		if o.kind == "CustomResourceDefinition" {
			continue
		}
		err := m.dynamic.Resource(o.resource).Namespace(o.namespace).Delete(ctx, o.name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting %s %s: %w", o.kind, o.name, err)
		}
	}
	return nil
}
