package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/reconcile"
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

func watching(p *presence) func(*reconcile.Config) {
	return func(c *reconcile.Config) { c.Presence, c.DriftInterval = p, 100*time.Millisecond }
}

// TestAFrozenDriversObjectsGo: what a driver made that is not enabled stays until its objects go, one by one, and goes then.
func TestAFrozenDriversObjectsGo(t *testing.T) {
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
	w.deleteMap("x") // while nobody looks
	p := w.presence()
	p.forbidden.Store(true)
	writes := len(w.writes())

	r = w.start(with(b).configured(watching(p)))
	w.eventually("it is told that nobody knows", func() (bool, string) {
		frozen := r.engine.Frozen()
		return len(frozen) == 1 && strings.Contains(frozen[0].Problem, "forbidden"), fmt.Sprint(frozen)
	})
	asked := p.asked.Load()
	w.eventually("it is asked again", func() (bool, string) { return p.asked.Load() > asked+1, "" })
	if now := w.writes()[writes:]; len(now) > 0 {
		t.Errorf("nobody knew what was gone, and there were the writes %v", now)
	}
	p.forbidden.Store(false)
	w.none("network", "x")
	w.deleteMap("y")
	w.none("network", "y")
	w.one("network", "z")
	w.one("router", "all")
	if f := r.engine.Frozen(); len(f) != 1 || f[0].Driver != "a" || f[0].Objects != 1 || f[0].Resources != 1 || f[0].Untold != 0 || f[0].Problem != "" {
		t.Errorf("left are %+v", f)
	}
	w.deleteMap("z")
	w.none("network", "z")
	w.none("router", "all") // nobody claims it any more, and nobody may
	if n := len(w.writes()) - writes; n != 4 {
		t.Errorf("%d writes, want 4 deletions: %s", n, strings.Join(w.writes()[writes:], "\n"))
	}
	asked = p.asked.Load()
	time.Sleep(300 * time.Millisecond)
	if now := p.asked.Load(); now > asked+1 {
		t.Errorf("nothing is left of it, and the cluster was asked %d times more", now-asked)
	}
}

// TestAFrozenDriversPlan shows what would go, and does nothing.
func TestAFrozenDriversPlan(t *testing.T) {
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

// TestWhatDoesNotSayWhatItIsFor stays: nobody knows where to look for its object.
func TestWhatDoesNotSayWhatItIsFor(t *testing.T) {
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
	if f := r.engine.Frozen(); len(f) != 1 || f[0].Untold != 1 {
		t.Errorf("left are %+v", f)
	}
	if now := w.writes()[writes:]; len(now) > 0 {
		t.Errorf("there were the writes %v", now)
	}
}
