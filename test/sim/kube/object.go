// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/yaml"
)

// The methods below reach the store without HTTP, users and faults. Objects go in and come out as copies. Unlike
// requests, they write status along with the rest, and need no finished object: apiVersion and kind come from the
// resource.

func (a *API) viewOf(gvr schema.GroupVersionResource) (*view, error) {
	if v := a.view(gvr); v != nil {
		return v, nil
	}
	return nil, fmt.Errorf("finding %s: %w", gvr, notServed())
}

func shown(v *view, it *item) map[string]any { return runtime.DeepCopyJSON(v.show(it.object)) }

// Create stores a new object in the namespace that its metadata names.
func (a *API) Create(gvr schema.GroupVersionResource, object map[string]any) (map[string]any, error) {
	v, err := a.viewOf(gvr)
	if err != nil {
		return nil, err
	}
	it, err := a.create(v.res, text(object, "metadata", "namespace"), v.take(normal(object)), writeOptions{asIs: true})
	if err != nil {
		return nil, err
	}
	return shown(v, it), nil
}

// Update replaces an object. A resourceVersion in it must be the present one.
func (a *API) Update(gvr schema.GroupVersionResource, object map[string]any) (map[string]any, error) {
	v, err := a.viewOf(gvr)
	if err != nil {
		return nil, err
	}
	it, err := a.update(v.res, text(object, "metadata", "namespace"), text(object, "metadata", "name"),
		v.take(normal(object)), writeOptions{asIs: true})
	if err != nil {
		return nil, err
	}
	return shown(v, it), nil
}

// Get returns an object, without managedFields.
func (a *API) Get(gvr schema.GroupVersionResource, namespace, name string) (map[string]any, error) {
	v, err := a.viewOf(gvr)
	if err != nil {
		return nil, err
	}
	it, err := a.read(v.res, namespace, name)
	if err != nil {
		return nil, err
	}
	return shown(v, it), nil
}

// List returns the objects of a namespace ("": of all), ordered by namespace and name.
func (a *API) List(gvr schema.GroupVersionResource, namespace string) ([]map[string]any, error) {
	v, err := a.viewOf(gvr)
	if err != nil {
		return nil, err
	}
	a.mu.RLock()
	items, _ := v.res.snapshotLocked(namespace, 0)
	a.mu.RUnlock()
	out := make([]map[string]any, 0, len(items))
	for _, it := range items {
		out = append(out, shown(v, it))
	}
	return out, nil
}

// Delete deletes an object; it stays while it has finalizers.
func (a *API) Delete(gvr schema.GroupVersionResource, namespace, name string) error {
	v, err := a.viewOf(gvr)
	if err != nil {
		return err
	}
	_, _, err = a.remove(v.res, namespace, name, metav1.DeleteOptions{}, false)
	return err
}

// Patch applies a merge, strategic merge or JSON patch.
func (a *API) Patch(
	gvr schema.GroupVersionResource, namespace, name string, kind types.PatchType, patch []byte,
) (map[string]any, error) {
	v, err := a.viewOf(gvr)
	if err != nil {
		return nil, err
	}
	it, err := a.patch(v, namespace, name, kind, patch, writeOptions{asIs: true})
	if err != nil {
		return nil, err
	}
	return shown(v, it), nil
}

// Apply is server-side apply under a field manager.
func (a *API) Apply(
	gvr schema.GroupVersionResource, object map[string]any, manager string, force bool,
) (map[string]any, error) {
	v, err := a.viewOf(gvr)
	if err != nil {
		return nil, err
	}
	it, _, err := a.apply(v, text(object, "metadata", "namespace"), text(object, "metadata", "name"), normal(object),
		force, writeOptions{manager: manager})
	if err != nil {
		return nil, err
	}
	return shown(v, it), nil
}

// normal is a copy of an object with numbers as the store holds them.
func normal(object map[string]any) map[string]any {
	var out map[string]any
	if err := utiljson.Unmarshal(encodeJSON(object), &out); err != nil {
		return map[string]any{}
	}
	return out
}

// Replay feeds watch events ({"type","object"} each on a line) into the store as they are: odd values, old fields and
// names that would be refused are kept, resourceVersions are given anew. Namespaces that do not exist are made.
func (a *API) Replay(r io.Reader) error {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, maxBody)
	for line := 1; scanner.Scan(); line++ {
		if strings.TrimSpace(scanner.Text()) == "" {
			continue
		}
		var ev struct {
			Type   eventType       `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := json.Unmarshal(scanner.Bytes(), &ev); err != nil {
			return fmt.Errorf("replaying line %d: %w", line, err)
		}
		var object map[string]any
		if err := utiljson.Unmarshal(ev.Object, &object); err != nil {
			return fmt.Errorf("replaying line %d: %w", line, err)
		}
		if err := a.replay(ev.Type, object); err != nil {
			return fmt.Errorf("replaying line %d: %w", line, err)
		}
	}
	if err := scanner.Err(); err != nil {
		return fmt.Errorf("replaying: %w", err)
	}
	return nil
}

func (a *API) replay(kind eventType, object map[string]any) error {
	u := unstructured.Unstructured{Object: object}
	v := a.viewOfKind(u.GroupVersionKind())
	if v == nil {
		return fmt.Errorf("kind %s is not served", u.GroupVersionKind())
	}
	meta := metadata(object)
	namespace, name := text(object, "metadata", "namespace"), text(object, "metadata", "name")
	if name == "" {
		return fmt.Errorf("the object has no name")
	}
	if v.kind.Namespaced {
		_, err := a.Create(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"},
			map[string]any{"metadata": map[string]any{"name": namespace}})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	if meta["uid"] == nil {
		meta["uid"] = string(uuid.NewUUID())
	}
	object = v.take(object)
	a.mu.Lock()
	defer a.mu.Unlock()
	current := v.res.objects[objectKey(namespace, name)]
	next := &item{namespace: namespace, name: name, object: object, uid: text(object, "metadata", "uid")}
	if kind == deleted && current == nil {
		return nil
	}
	a.commitLocked(v.res, current, next, kind == deleted)
	return nil
}

func (a *API) viewOfKind(gvk schema.GroupVersionKind) *view {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for gvr, v := range a.views {
		if gvr.Group == gvk.Group && gvr.Version == gvk.Version && v.kind.Kind == gvk.Kind {
			return v
		}
	}
	return nil
}

// DumpOptions say what a dump shows.
type DumpOptions struct {
	// Resources limits the dump to these, by plural or plural.group name.
	Resources []string
	// Versions keeps what differs from run to run: uids, resourceVersions, timestamps.
	Versions bool
	// Managed shows managedFields.
	Managed bool
}

// Dump is the state as text: one YAML document per object, ordered, under a line that names it.
func (a *API) Dump(o DumpOptions) string {
	type entry struct {
		head string
		it   *item
	}
	var entries []entry
	a.mu.RLock()
	for gr, res := range a.resources {
		if len(o.Resources) > 0 && !slices.ContainsFunc(o.Resources, func(name string) bool { return named(gr, name) }) {
			continue
		}
		for key, it := range res.objects {
			entries = append(entries, entry{gr.String() + " " + key, it})
		}
	}
	a.mu.RUnlock()
	sort.Slice(entries, func(i, j int) bool { return entries[i].head < entries[j].head })
	var out strings.Builder
	for _, e := range entries {
		var object map[string]any
		m := e.it.managed
		if !o.Managed {
			m = nil
		}
		if err := json.Unmarshal(encodeObject(e.it.object, m), &object); err != nil {
			continue
		}
		if !o.Versions {
			dropVolatile(object)
		}
		body, err := yaml.Marshal(object)
		if err != nil {
			body = []byte(err.Error() + "\n")
		}
		fmt.Fprintf(&out, "# %s\n%s", e.head, body)
	}
	return out.String()
}

func dropVolatile(value any) {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range []string{
			"uid", "resourceVersion", "creationTimestamp", "time", "lastTransitionTime", "startTime",
		} {
			delete(value, key)
		}
		for _, v := range value {
			dropVolatile(v)
		}
	case []any:
		for _, v := range value {
			dropVolatile(v)
		}
	}
}
