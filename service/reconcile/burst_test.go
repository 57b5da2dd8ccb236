// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/contract"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// TestABurstWithFaults: 300 pods in three namespaces, with every kind of fault at random. In the end it is as if
// there had been none.
func TestABurstWithFaults(t *testing.T) {
	t.Parallel()
	const many, namespaces = 300, 3
	w := newWorld(t, simkube.Options{}, simcloud.Options{Seed: 7})
	for _, rule := range []simcloud.Rule{
		{Method: "write", Action: simcloud.ActionStatus, Status: 500, Probability: 0.05},
		{
			Method: "write", Action: simcloud.ActionStatus, Status: 503, Probability: 0.03,
			Headers: map[string]string{"Retry-After": "0.05"},
		},
		{Method: "POST", Action: simcloud.ActionApplyCut, Probability: 0.05},
		{Method: "write", Action: simcloud.ActionCut, Probability: 0.05},
		{
			Method: "PUT", Action: simcloud.ActionStatus, Status: 412, Probability: 0.1,
			Response: `{"NeutronError":{"type":"RevisionNumberConstraintFailed","message":"stale","detail":""}}`,
		},
		{
			Method: "POST", Action: simcloud.ActionApplyLate, Delay: simcloud.Duration(60 * time.Millisecond), Probability: 0.03,
		},
		{Method: "GET", Action: simcloud.ActionStatus, Status: 500, Probability: 0.05},
	} {
		w.fault(rule)
	}
	s := setup{config: func(c *config) {
		c.AmbiguousWait = 300 * time.Millisecond
		c.DriftInterval = 300 * time.Millisecond
	}}
	r := w.startWhenever(s)
	for i := range namespaces {
		w.createNamespace(fmt.Sprintf("ns%d", i))
	}
	for i := range many {
		w.createPod(fmt.Sprintf("ns%d", i%namespaces), fmt.Sprintf("pod-%d", i))
	}
	w.eventually("half of the pods are done", func() (bool, string) {
		return r.engine.Counts()[state.Done] > many/2, fmt.Sprint(r.engine.Counts())
	})
	for i := range 50 {
		w.delete(pods(), fmt.Sprintf("ns%d", i%namespaces), fmt.Sprintf("pod-%d", i))
	}
	w.eventually("nearly all are done", func() (bool, string) {
		return r.engine.Counts()[state.Done] > (many-50)*9/10, fmt.Sprint(r.engine.Counts())
	})
	w.cloud.ClearFaults()
	r.settled(systemNamespaces + namespaces + many - 50)
	w.drifts(4)
	r.settled(systemNamespaces + namespaces + many - 50)
	for i := 50; i < many; i++ {
		if w.annotation(pods(), fmt.Sprintf("ns%d", i%namespaces), fmt.Sprintf("pod-%d", i), contract.Port) == nil {
			t.Errorf("pod-%d has no annotation", i)
		}
	}
	// An undisturbed run, for comparison.
	calm := newWorld(t, simkube.Options{}, simcloud.Options{})
	other := calm.start(setup{})
	for i := range namespaces {
		calm.createNamespace(fmt.Sprintf("ns%d", i))
	}
	for i := 50; i < many; i++ {
		calm.createPod(fmt.Sprintf("ns%d", i%namespaces), fmt.Sprintf("pod-%d", i))
	}
	other.settled(systemNamespaces + namespaces + many - 50)
	// How many subnets 100 ports take at a time depends on the order; everything else does not.
	if diff := cmp.Diff(calm.dump(), w.dump()); diff != "" {
		t.Error(diff)
	}
}

// startWhenever starts an engine against a cloud that may refuse its first reads.
func (w *world) startWhenever(s setup) *raven {
	w.t.Helper()
	var r *raven
	w.eventually("a start", func() (bool, string) {
		var err error
		r, err = w.tryStart(s)
		return err == nil, fmt.Sprint(err)
	})
	return r
}

// TestDryRun: the exact steps for a fresh cluster, none for one that is as it should be, and orphans; and nothing is
// written.
func TestDryRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	set := setOf(network("shop"), subnet("shop", "10.1.0.0/24"), port("web"), claiming(router("all"), "router"))
	set.Outputs = []drivers.Output{{Kind: drivers.Annotation, Key: "a/a", Document: &drivers.Ref{Name: "port"}}}
	set.Diagnostics = []drivers.Diagnostic{{Severity: drivers.Warning, Reason: "Odd", Message: "odd"}}
	a := script("a", always(set))
	s := with(a)
	s.dry = true
	w.createMap("a", "x")
	r := w.start(s)
	planned, err := r.engine.DryRun(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"ConfigMap default/x":      {"create network ready", "create subnet waits", "create port waits"},
		"Cluster shared resources": {"create router ready"},
	}
	if diff := cmp.Diff(want, stepsOf(planned)); diff != "" {
		t.Error(diff)
	}
	if len(w.writes()) > 0 || w.kube.Count("create events") > 0 {
		t.Errorf("it wrote: %v", w.writes())
	}
	r.stop()

	s.dry = false
	r = w.start(s)
	r.settled(1)
	r.stop()
	s.dry = true
	r = w.start(s)
	if planned, err = r.engine.DryRun(t.Context()); err != nil || len(planned) > 0 {
		t.Errorf("with nothing to do, planned: %+v, %v", planned, err)
	}
	r.stop()
	w.deleteMap("x")
	writes := len(w.writes())
	r = w.start(s)
	if planned, err = r.engine.DryRun(t.Context()); err != nil {
		t.Fatal(err)
	}
	var gone []string
	for object, steps := range stepsOf(planned) {
		for _, step := range steps {
			kind, _, _ := strings.Cut(object, " ")
			gone = append(gone, kind+" "+step)
		}
	}
	for _, step := range []string{
		"vanished delete port ready", "vanished delete network waits", "Cluster delete router ready",
	} {
		if !contains(gone, step) {
			t.Errorf("%q is not among %v", step, gone)
		}
	}
	if n := len(w.writes()); n != writes {
		t.Errorf("it wrote %d times", n-writes)
	}
}

func stepsOf(planned []reconcile.Planned) map[string][]string {
	steps := map[string][]string{}
	for _, p := range planned {
		for _, s := range p.Steps {
			state := "ready"
			if !s.Ready() {
				state = "waits"
			}
			steps[p.Object] = append(steps[p.Object], fmt.Sprintf("%s %s %s", s.Op, s.Kind, state))
		}
		if len(p.Steps) == 0 {
			steps[p.Object] = append(steps[p.Object], fmt.Sprintf("writes %v held %d problems %v", p.Writes, p.Held, p.Problems))
		}
	}
	return steps
}

// TestStopLetsRequestsEnd: what is in flight when Run is told to end may come to its end, and is known to the next one.
func TestStopLetsRequestsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	w.fault(simcloud.Rule{
		Method: "POST", Kind: "network", Action: simcloud.ActionDelay, Delay: simcloud.Duration(200 * time.Millisecond),
		Times: 1,
	})
	a := script("a", always(setOf(network("shop"), group("shop"))))
	r := w.start(with(a).configured(func(c *config) { c.Grace = time.Hour }))
	w.createMap("a", "x")
	w.eventually("it is under way", func() (bool, string) { return w.cloud.Faults()[0].Acted == 1, "" })
	r.stop()
	if len(w.named("network", "shop")) != 1 {
		t.Errorf("the network was not made:\n%s", w.dump())
	}
	r = w.start(with(a))
	r.settled(1)
	w.one("network", "shop")
}

// TestAStopIsBounded: a request that hangs is broken off when grace is over, and not only when its own time is, which
// would take an hour.
func TestAStopIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	w.fault(simcloud.Rule{Method: "POST", Kind: "network", Action: simcloud.ActionTimeout})
	r := w.start(
		with(script("a", always(setOf(network("shop"))))).configured(func(c *config) { c.Grace = 100 * time.Millisecond }),
	)
	w.createMap("a", "x")
	w.eventually("it is under way", func() (bool, string) { return w.cloud.Faults()[0].Acted == 1, "" })
	r.stop()
}

// TestStatusWhileApplying says what is being done.
func TestStatusWhileApplying(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	w.fault(simcloud.Rule{
		Method: "POST", Kind: "network", Action: simcloud.ActionDelay, Delay: simcloud.Duration(300 * time.Millisecond),
	})
	r := w.start(with(script("a", always(setOf(network("shop"))))))
	w.createMap("a", "x")
	r.stands("a", "x", state.Pending, `creating network "shop"`)
	r.settled(1)
}

// TestSlowPartsAreNotGivenUp: a provider that makes many members one after another is slow, not stuck.
func TestSlowPartsAreNotGivenUp(t *testing.T) {
	t.Parallel()
	const n = 5 // more than are looked at one by one
	slow := ovnProvider()
	slow.Lanes, slow.Work.Member = n, 15*time.Millisecond
	w := balancers(t, slow)
	a := script("a", func(name string, _ *drivers.Needs) (drivers.Set, error) {
		s := served{provider: "ovn", ports: []int64{80}, members: 60}
		s.extra = func(lb *drivers.LoadBalancer) { lb.Name = new(name) }
		return s.set(), nil
	})
	r := w.start(with(a).configured(func(c *config) {
		quick(c)
		c.StillAfter, c.ActivationTimeout = 100*time.Millisecond, 200*time.Millisecond
	}))
	for i := range n {
		w.createMap("a", fmt.Sprintf("x%d", i))
	}
	r.settled(n)
	if writes := w.lbWrites(); slices.ContainsFunc(writes, func(s string) bool { return strings.HasPrefix(s, "DELETE") }) {
		t.Errorf("some were given up: %v", writes)
	}
}
