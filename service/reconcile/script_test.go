// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
	testbackend "github.com/kuryr/raven/test/backend"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// scripted is a driver that says what a test wants. Its source objects are the ConfigMaps whose label "for" has its
// name.
type scripted struct {
	name  string
	kinds []drivers.Kind
	more  []drivers.Watch
	// matching is the label selector of its source objects; "": those for it.
	matching string

	mu    sync.Mutex
	says  func(name string, needs *drivers.Needs) (drivers.Set, error)
	calls int
}

func script(name string, says func(name string, needs *drivers.Needs) (drivers.Set, error)) *scripted {
	return &scripted{name: name, says: says, kinds: drivers.Kinds()}
}

// always says the same for every object.
func always(set drivers.Set) func(string, *drivers.Needs) (drivers.Set, error) {
	return func(string, *drivers.Needs) (drivers.Set, error) { return set, nil }
}

func (s *scripted) now(says func(name string, needs *drivers.Needs) (drivers.Set, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.says = says
}

func (s *scripted) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func (s *scripted) declare(kinds ...drivers.Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kinds = kinds
}

func (s *scripted) Info() drivers.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	return drivers.Info{Name: s.name, Version: "1", Kinds: s.kinds, Annotations: []string{s.name + "/a"}}
}
func (*scripted) Configure(context.Context, drivers.Values) error { return nil }
func (s *scripted) Watches() []drivers.Watch {
	return append([]drivers.Watch{{
		Name: "maps", GVR: configMaps(), Kind: "ConfigMap", LabelSelector: cmp.Or(s.matching, "for="+s.name), Source: true,
		Fields: []string{"data"},
	}}, s.more...)
}

func (s *scripted) Translate(_ context.Context, object drivers.Object, needs *drivers.Needs) (drivers.Set, error) {
	meta, err := object.Meta()
	if err != nil {
		return drivers.Set{}, err
	}
	s.mu.Lock()
	s.calls++
	says := s.says
	s.mu.Unlock()
	return says(meta.Name, needs)
}

func configMaps() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
}

func (w *world) createMap(driver, name string) {
	w.t.Helper()
	w.create(configMaps(), map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"k": "v"},
		"metadata": map[string]any{"name": name, "namespace": "default", "labels": map[string]any{"for": driver}},
	})
}

func (w *world) deleteMap(name string) {
	w.t.Helper()
	w.delete(configMaps(), "default", name)
}

// with returns a setup with scripted drivers only.
func with(list ...*scripted) setup {
	s := setup{drivers: map[string]drivers.Driver{}}
	for _, d := range list {
		s.drivers[d.name] = d
	}
	return s
}

func (s setup) configured(f func(*config)) setup {
	s.config = f
	return s
}

// backed returns the setup with a further backend.
func (s setup) backed(memory *testbackend.Memory) setup {
	s.memory = memory
	return s
}

// by makes another client change the cloud.
func (w *world) by(method, path string, body any, status int) map[string]any {
	w.t.Helper()
	got, doc := w.cloud.Call(simcloud.UserKuryr, simcloud.ProjectKuryr, method, path, body)
	if got != status {
		w.t.Fatalf("%s %s: status %d, want %d: %v", method, path, got, status, doc)
	}
	return doc
}

func (w *world) fault(r simcloud.Rule) {
	w.t.Helper()
	if _, err := w.cloud.AddFault(r); err != nil {
		w.t.Fatal(err)
	}
}

// named returns the resources of a kind by that Neutron name.
func (w *world) named(kind, name string) []map[string]any {
	return slices.DeleteFunc(w.cloud.Objects(kind), func(o map[string]any) bool { return o["name"] != name })
}

func text(o map[string]any, name string) string { s, _ := o[name].(string); return s }

// one returns the only resource of a kind by that name, and waits until there is exactly one.
func (w *world) one(kind, name string) map[string]any {
	w.t.Helper()
	var found []map[string]any
	w.eventually("one "+kind+" "+name, func() (bool, string) {
		found = w.named(kind, name)
		return len(found) == 1, w.dump()
	})
	return found[0]
}

func (w *world) none(kind, name string) {
	w.t.Helper()
	w.eventually("no "+kind+" "+name, func() (bool, string) { return len(w.named(kind, name)) == 0, w.dump() })
}

// object returns the status of one object, or an empty one.
func (r *raven) object(driver, name string) reconcile.ObjectStatus {
	for _, o := range r.engine.Objects(reconcile.Filter{Driver: driver, Name: name}) {
		if !o.Deleted {
			return o
		}
	}
	return reconcile.ObjectStatus{}
}

// stands waits until an object is in a state, for a reason that contains the text.
func (r *raven) stands(driver, name string, state state.Phase, reason string) {
	r.w.t.Helper()
	r.w.eventually(name+" is "+string(state)+": "+reason, func() (bool, string) {
		o := r.object(driver, name)
		why := strings.Join(o.Reasons, "; ")
		return o.State == state && strings.Contains(why, reason), string(o.State) + ": " + why
	})
}

// The pieces of Sets.

func network(name string) drivers.Resource {
	return drivers.Resource{Name: "network", Spec: drivers.Network{Name: new(name)}}
}

func subnet(name, cidr string) drivers.Resource {
	return drivers.Resource{Name: "subnet", Spec: drivers.Subnet{
		Name: new(name), NetworkID: drivers.From("network"), IPVersion: new(int64(4)), CIDR: new(cidr),
	}}
}

func port(name string) drivers.Resource {
	return drivers.Resource{
		Name: "port", Spec: drivers.Port{Name: new(name), NetworkID: drivers.From("network")},
		After: []drivers.Ref{{Name: "subnet"}},
	}
}

func group(name string) drivers.Resource {
	return drivers.Resource{Name: "group", Spec: drivers.SecurityGroup{Name: new(name)}}
}

func router(name string) drivers.Resource {
	return drivers.Resource{Name: "router", Spec: drivers.Router{Name: new(name)}}
}

func attachment() drivers.Resource {
	return drivers.Resource{Name: "attachment", Spec: drivers.RouterInterface{
		RouterID: drivers.From("router"), SubnetID: drivers.From("subnet"), NetworkID: drivers.From("network"),
		IPAddress: drivers.From("subnet", "gateway_ip"),
	}}
}

func setOf(resources ...drivers.Resource) drivers.Set { return drivers.Set{Resources: resources} }

func claiming(r drivers.Resource, name string) drivers.Resource {
	r.Claim = name
	return r
}

func exporting(r drivers.Resource, roles ...string) drivers.Resource {
	r.Exports = roles
	return r
}

func retaining(r drivers.Resource) drivers.Resource {
	r.OnDelete = drivers.Retain
	return r
}

// of is a role of a ConfigMap.
func of(name, role string) drivers.Role {
	return drivers.Role{Kind: "ConfigMap", Namespace: "default", Name: name, Role: role}
}

func events() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "events"}
}

func contains(reasons []string, part string) bool {
	return slices.ContainsFunc(reasons, func(r string) bool { return strings.Contains(r, part) })
}
