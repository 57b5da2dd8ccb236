// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/watch"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// presence is the cluster's, which can be made unknown.
type presence struct {
	watch.Clients
	forbidden atomic.Bool
	asked     atomic.Int64
}

func (p *presence) UIDs(ctx context.Context, resource string) (map[string]bool, error) {
	p.asked.Add(1)
	if p.forbidden.Load() {
		return nil, errors.New("list configmaps is forbidden")
	}
	return p.Clients.UIDs(ctx, resource)
}

func (w *world) presence() *presence {
	w.t.Helper()
	clients, err := watch.NewClients(&rest.Config{Host: w.kube.URL(), QPS: -1})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(clients.Close)
	return &presence{Clients: clients}
}

func watching(p *presence) func(*config) {
	return func(c *config) { c.Presence, c.DriftInterval = p, 100*time.Millisecond }
}

// TestADeletedObjectOfADisabledDriver: what a driver made that is not enabled stays until its objects go, one by one,
// and goes then.
func TestADeletedObjectOfADisabledDriver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	a := script("a", func(name string, _ *drivers.Needs) (drivers.Set, error) {
		return setOf(network(name), claiming(router("all"), "router")), nil
	})
	b := script("b", always(setOf(group("b"))))
	r := w.start(with(a, b))
	for _, name := range []string{"x", "y", "z"} {
		w.createMap("a", name)
	}
	w.createMap("b", "other")
	r.settled(4)
	r.stop()
	w.deleteMap("x") // while Raven does not run
	p := w.presence()
	p.forbidden.Store(true)
	writes := len(w.writes())

	r = w.start(with(b).configured(watching(p)))
	w.eventually("it is told that this is unknown", func() (bool, string) {
		left := r.engine.DisabledResources()
		return len(left) == 1 && strings.Contains(left[0].Problem, "forbidden"), fmt.Sprint(left)
	})
	asked := p.asked.Load()
	w.eventually("it is asked again", func() (bool, string) { return p.asked.Load() > asked+1, "" })
	if now := w.writes()[writes:]; len(now) > 0 {
		t.Errorf("it was unknown what was gone, and there were the writes %v", now)
	}
	p.forbidden.Store(false)
	w.none("network", "x")
	w.deleteMap("y")
	w.none("network", "y")
	w.one("network", "z")
	w.one("router", "all")
	w.eventually("one object is left", func() (bool, string) {
		f := r.engine.DisabledResources()
		return len(f) == 1 && f[0].Driver == "a" && f[0].Objects == 1 && f[0].Resources == 1 && f[0].Untold == 0 &&
			f[0].Problem == "", fmt.Sprintf("%+v", f)
	})
	w.deleteMap("z")
	w.none("network", "z")
	w.none("router", "all") // no object claims it any more, and none may
	if n := len(w.writes()) - writes; n != 4 {
		t.Errorf("%d writes, want 4 deletions: %s", n, strings.Join(w.writes()[writes:], "\n"))
	}
	asked = p.asked.Load()
	time.Sleep(300 * time.Millisecond)
	if now := p.asked.Load(); now > asked+1 {
		t.Errorf("nothing is left of it, and the cluster was asked %d times more", now-asked)
	}
}

// TestThePlanOfADisabledDriver shows what would go, and does nothing.
func TestThePlanOfADisabledDriver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	a := script("a", func(name string, _ *drivers.Needs) (drivers.Set, error) { return setOf(network(name)), nil })
	b := script("b", always(setOf(group("b"))))
	r := w.start(with(a, b))
	w.createMap("a", "x")
	w.createMap("a", "y")
	r.settled(2)
	r.stop()
	w.deleteMap("x")
	s := with(b).configured(watching(w.presence()))
	s.dry = true
	r = w.start(s)
	planned, err := r.engine.DryRun(t.Context())
	if err != nil || len(planned) != 1 || len(planned[0].Steps) != 1 {
		t.Fatalf("%v: %+v", err, planned)
	}
	w.one("network", "x")
}

// TestWhatDoesNotSayWhatItIsFor stays: it is unknown where to search for its object.
func TestWhatDoesNotSayWhatItIsFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	a, b := script("a", always(setOf(network("n")))), script("b", always(setOf(group("b"))))
	r := w.start(with(a, b))
	w.createMap("a", "x")
	r.settled(1)
	r.stop()
	id := text(w.one("network", "n"), "id")
	status, _ := w.cloud.Call(simcloud.UserKuryr, simcloud.ProjectKuryr, "PUT", "/networks/"+id,
		map[string]any{"network": map[string]any{"description": "ours"}})
	if status != 200 {
		t.Fatalf("status %d", status)
	}
	w.deleteMap("x")
	p := w.presence()
	writes := len(w.writes())
	r = w.start(with(b).configured(watching(p)))
	time.Sleep(400 * time.Millisecond)
	if f := r.engine.DisabledResources(); len(f) != 1 || f[0].Untold != 1 {
		t.Errorf("left are %+v", f)
	}
	if now := w.writes()[writes:]; len(now) > 0 {
		t.Errorf("there were the writes %v", now)
	}
}

// TestUnusualUIDsOfADisabledDriver: Kubernetes' UIDs are UUIDs, those of an aggregated API may be anything. What
// identities have in place of a long or odd one is not the UID, and the object is there nevertheless.
func TestUnusualUIDsOfADisabledDriver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	a := script("a", func(name string, _ *drivers.Needs) (drivers.Set, error) { return setOf(network(name)), nil })
	b := script("b", always(setOf(group("b"))))
	r := w.start(with(a, b))
	for name, uid := range map[string]string{
		"long": strings.Repeat("0123456789", 5), "odd": "a/b, c@d.e", "dotted": "a.b",
	} {
		w.create(configMaps(), map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": name, "namespace": "default", "uid": uid, "labels": map[string]any{"for": "a"}},
		})
	}
	w.createMap("b", "other")
	r.settled(4)
	r.stop()
	p := w.presence()
	writes := len(w.writes())
	r = w.start(with(b).configured(watching(p)))
	w.eventually("it is looked at three times", func() (bool, string) { return p.asked.Load() > 3, "" })
	if now := w.writes()[writes:]; len(now) > 0 {
		t.Errorf("the objects are there, and there were the writes %v", now)
	}
	for _, name := range []string{"long", "odd", "dotted"} {
		w.one("network", name)
		w.deleteMap(name)
		w.none("network", name)
	}
	r.stop()
}

// TestAStartOnOlderDescriptions: what was made before descriptions had their fifth token is known by the other four,
// and nothing is written to add it: not by a start, nor by a drift check.
func TestAStartOnOlderDescriptions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	own := func(name string, _ *drivers.Needs) (drivers.Set, error) {
		return setOf(network(name), claiming(router("all"), "router")), nil
	}
	r := w.start(with(script("a", own)))
	w.createMap("a", "x")
	w.createMap("a", "y")
	r.settled(2)
	r.stop()
	shortened := 0
	for kind, path := range map[string]string{"network": "/networks/", "router": "/routers/"} {
		for _, name := range []string{"x", "y", "all"} {
			if kind == "network" == (name == "all") {
				continue
			}
			resource := w.one(kind, name)
			words := strings.Fields(text(resource, "description"))
			four := slices.DeleteFunc(slices.Clone(words), func(word string) bool {
				return strings.HasPrefix(word, "raven:source=")
			})
			if len(four) != 4 {
				t.Fatalf("%s %s: description %q", kind, name, words)
			}
			shortened += len(words) - len(four)
			w.by("PUT", path+text(resource, "id"),
				map[string]any{kind: map[string]any{"description": strings.Join(four, " ")}}, 200)
		}
	}
	if shortened != 2 { // what is shared is for no one object
		t.Fatalf("%d descriptions had a fifth token", shortened)
	}
	want, writes := w.dump(), len(w.writes())
	r = w.start(
		with(script("a", own)).configured(
			func(c *config) { c.DriftInterval, c.CollectInterval = 50*time.Millisecond, 50*time.Millisecond },
		),
	)
	r.settled(2)
	lists := len(w.cloud.Log(0))
	w.eventually("two drift checks", func() (bool, string) { return len(w.cloud.Log(0)) > lists+8, "" })
	if now := w.writes()[writes:]; len(now) > 0 {
		t.Errorf("there were the writes %v", now)
	}
	if now := w.dump(); now != want {
		t.Errorf("the cloud is\n%s\nwant\n%s", now, want)
	}
}
