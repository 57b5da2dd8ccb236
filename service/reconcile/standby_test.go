// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/namespace"
	"github.com/kuryr/raven/drivers/pod"
	"github.com/kuryr/raven/service/reconcile"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// counted counts what a driver is asked, and can have it want nothing.
type counted struct {
	drivers.Driver
	calls atomic.Int64
	mute  bool
}

func (c *counted) Translate(ctx context.Context, o drivers.Object, needs *drivers.Needs) (drivers.Set, error) {
	c.calls.Add(1)
	if c.mute {
		return drivers.Set{}, nil
	}
	return c.Driver.Translate(ctx, o, needs)
}

func standby(change func(*config)) func(*config) {
	return func(c *config) {
		c.Standby = true
		if change != nil {
			change(c)
		}
	}
}

// warm waits until the drivers of an engine that stands by have answered for every object.
func (r *raven) warm(objects int) {
	r.w.t.Helper()
	r.w.eventually(fmt.Sprintf("answers for %d objects", objects), func() (bool, string) {
		have := len(r.engine.Objects(reconcile.Filter{}))
		return r.engine.Replayed() && have == objects, fmt.Sprintf("%d objects, all answered: %t", have, r.engine.Replayed())
	})
}

func TestStandbyIsWarmAndTouchesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	w.createNamespace("shop")
	w.createPod("shop", "web-1")
	leader := w.start(setup{})
	leader.settled(systemNamespaces + 2)

	ns, pd := &counted{Driver: namespace.New()}, &counted{Driver: pod.New()}
	other := w.start(setup{config: standby(nil), drivers: map[string]drivers.Driver{"namespace": ns, "pod": pd}})
	other.warm(systemNamespaces + 2)
	w.createPod("shop", "web-2")
	w.createPod("shop", "passing")
	other.warm(systemNamespaces + 4)
	w.delete(pods(), "shop", "passing")
	other.warm(systemNamespaces + 3) // what is gone leaves nothing behind
	leader.settled(systemNamespaces + 3)
	leader.stop()

	patches, asked := w.kube.Count("patch pods")+w.kube.Count("patch namespaces"), ns.calls.Load()+pd.calls.Load()
	w.cloud.ResetLog()
	if !other.engine.StandingBy() || w.cloud.Stats().Requests != 0 {
		t.Fatal("it does not stand by")
	}
	if err := other.engine.Lead(t.Context()); err != nil {
		t.Fatal(err)
	}
	other.settled(systemNamespaces + 3)
	if n := len(w.writes()); n != 0 {
		t.Errorf("taking over wrote: %v", w.writes())
	}
	if n := w.kube.Count("patch pods") + w.kube.Count("patch namespaces"); n != patches {
		t.Errorf("taking over wrote %d times to Kubernetes", n-patches)
	}
	if n := ns.calls.Load() + pd.calls.Load(); n != asked {
		t.Errorf("taking over asked the drivers %d times", n-asked)
	}
	// It works.
	w.createPod("shop", "web-3")
	w.delete(pods(), "shop", "web-1")
	other.settled(systemNamespaces + 3)
	if n := w.cloud.Count("port"); n != networkedNamespaces+1+1+2 {
		t.Errorf("there are %d ports", n)
	}
}

func TestStandbyReadsTheCloudOnlyWhenItLeads(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	other := w.start(setup{config: standby(nil)})
	other.warm(systemNamespaces)
	for _, q := range w.cloud.Log(0) {
		if q.Kind != "token" && q.Kind != "version" && q.Kind != "extension" {
			t.Errorf("it asked for %s %s", q.Method, q.Path)
		}
	}
	other.stop() // it ends although it never led
	if n := len(w.writes()); n != 0 {
		t.Errorf("it wrote %v", w.writes())
	}
}

func TestTheMassDeletionGuardCountsWhenOneTakesOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	w.createNamespace("shop")
	for i := range 5 {
		w.createPod("shop", fmt.Sprintf("web-%d", i))
	}
	leader := w.start(setup{})
	leader.settled(systemNamespaces + 6)
	leader.stop()
	ports := w.cloud.Count("port")

	other := w.start(setup{
		config:  standby(func(c *config) { c.MaxReplayDeletes = 2 }),
		drivers: map[string]drivers.Driver{"namespace": namespace.New(), "pod": &counted{Driver: pod.New(), mute: true}},
	})
	other.warm(systemNamespaces + 6)
	if err := other.engine.Lead(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.eventually("the guard holds", func() (bool, string) {
		guards := other.engine.Guards()
		return len(guards) == 1 && guards[0].Held == 5, fmt.Sprintf("%+v", guards)
	})
	if n := w.cloud.Count("port"); n != ports {
		t.Errorf("%d ports are left of %d", n, ports)
	}
}

func TestAbortBreaksOffWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	r := w.start(setup{config: func(c *config) { c.Grace = time.Hour }})
	r.settled(systemNamespaces)
	if _, err := w.cloud.AddFault(simcloud.Rule{
		Method: "POST", Kind: "network", Action: simcloud.ActionTimeout,
	}); err != nil {
		t.Fatal(err)
	}
	w.createNamespace("shop")
	w.eventually("a create under way", func() (bool, string) { return w.cloud.Faults()[0].Acted > 0, "none" })
	r.engine.Abort()
	r.stop() // which would take an hour otherwise
}
