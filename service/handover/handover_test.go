// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/ovn"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// kept is a backend that carries out everything.
type kept struct {
	env   backend.Env
	kinds []plan.Descriptor
}

func (k kept) Kinds() []plan.Descriptor                            { return k.kinds }
func (kept) List(context.Context, string) ([]plan.Observed, error) { return nil, nil }
func (kept) Get(context.Context, drivers.Kind, string) (plan.Observed, error) {
	return plan.Observed{}, backend.ErrNotFound
}

func (k kept) Apply(_ context.Context, _ plan.Owner, step *plan.Step) error {
	k.env.State.Update(func(tx *state.Tx) {
		switch step.Op { //nolint:exhaustive // there are no others here
		case plan.Create:
			step.ID = step.Identity.Owner.UID
			tx.Arrive(plan.Observed{
				Kind: step.Kind, ID: step.ID, Identity: step.Identity, Managed: true,
				Attrs: map[string]any{"provisioning_status": "ACTIVE"},
			})
		case plan.Delete:
			tx.Depart(step.Kind, step.ID)
		}
	})
	return nil
}

// octaviaWith is Octavia with room for some more load balancers.
type octaviaWith struct {
	room        int
	unmet       string
	unreachable error
}

func (octaviaWith) Desired(*state.Tx, *state.Want, *plan.Desired) map[string]any { return nil }
func (o octaviaWith) Unmet(context.Context, plan.Owner, map[string]any) (string, error) {
	return o.unmet, nil
}
func (o octaviaWith) Room(context.Context) (int, bool, error) { return o.room, true, nil }
func (o octaviaWith) Reachable(context.Context) error         { return o.unreachable }

// ports are those that have any address.
type ports []plan.Observed

func (p ports) PortsAt(context.Context, string, string, string) ([]plan.Observed, error) {
	return p, nil
}

// rig is a handover between two backends, with a Service that is to change from one to the other.
type rig struct {
	*testing.T
	*Handover
	loop           *state.Loop
	balancers, own *backend.Registration
	clock          *clocktesting.FakeClock
}

func newRig(t *testing.T, o Octavia, n Networking) *rig {
	t.Helper()
	r := &rig{T: t, clock: clocktesting.NewFakeClock(time.Unix(1e9, 0))}
	kinds := append(ovn.Kinds(), plan.Descriptor{
		Kind: drivers.KindLoadBalancer, Alternative: drivers.KindOVNLoadBalancer,
	})
	r.loop = state.New(state.Config{
		Cluster: "c", Drivers: []string{"a"}, Kinds: plan.NewKinds(kinds...), Clock: r.clock,
	})
	r.loop.Update(func(tx *state.LoopTx) { tx.BeginEpoch("a", nil) })
	env := backend.Env{
		State: r.loop.State, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler), Cluster: "c",
		Timing: backend.Timing{SlowRetry: time.Minute, Refusal: time.Hour},
	}
	r.Handover = New(env, o, groups{}, n)
	r.balancers, r.own = r.Wrap(
		&backend.Registration{Name: "Octavia", Backend: kept{env, kinds[2:]}},
		&backend.Registration{Name: "OVN", Backend: kept{env, kinds[:2]}})
	for _, b := range []*backend.Registration{r.balancers, r.own} {
		hooks := b.Hooks
		hooks.Backend = b.Name
		for _, d := range b.Kinds() {
			hooks.Kinds = append(hooks.Kinds, d.Kind)
		}
		if err := r.loop.Register(hooks); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// service returns a Service that is to have a load balancer of one kind, and has one of the other kind.
func (r *rig) service(uid string, wanted drivers.Spec, has drivers.Kind) (o *state.Object, lb plan.Observed) {
	r.loop.Update(func(tx *state.LoopTx) {
		o = tx.Ensure(state.Request{Driver: "a"}, state.Target{
			Watch: drivers.Watch{Kind: "Service"}, Namespace: "web", Name: uid, UID: uid,
		})
		tx.SetDesired(o, drivers.Set{Resources: []drivers.Resource{{Name: "lb", Spec: wanted}}})
		lb = plan.Observed{
			Kind: has, ID: "old-" + uid, Managed: true, Attrs: map[string]any{},
			Identity: tx.Identity(o.ID, drivers.Resource{Name: "old", Spec: wanted}),
		}
		tx.Cache.Put(lb)
	})
	return o, lb
}

// listed notes how listing the backends went.
func (r *rig) listed(octavia, own error) {
	r.loop.Update(func(tx *state.LoopTx) {
		tx.SetListed(drivers.KindLoadBalancer, octavia, false)
		r.balancers.Listed(tx.Tx, octavia)
		tx.SetListed(drivers.KindOVNLoadBalancer, own, false)
	})
}

func deletion(lb plan.Observed) *plan.Step {
	return &plan.Step{Op: plan.Delete, Kind: lb.Kind, ID: lb.ID, Identity: lb.Identity}
}

// TestTheGapIsMeasured: no load balancer serves a Service from the deletion of its load balancer of one kind to the
// creation of that of the other kind. Before, it is told since when no driver follows its endpoints.
func TestTheGapIsMeasured(t *testing.T) {
	r := newRig(t, octaviaWith{}, ports{})
	r.listed(nil, nil)
	o, lb := r.service("shop", drivers.OVNLoadBalancer{}, drivers.KindLoadBalancer)
	r.loop.Update(func(tx *state.LoopTx) { r.balancers.Review(tx.Tx, o, &plan.Plan{}) })
	if s := r.Status(); s.Waiting != 1 || !s.Since.Equal(r.clock.Now()) {
		t.Errorf("%+v", s)
	}
	r.loop.View(func(tx *state.LoopTx) {
		texts := r.balancers.Remarks(tx.Tx, o)
		if len(texts) != 1 || !strings.HasPrefix(texts[0], "meanwhile Octavia's load balancer") {
			t.Errorf("%q", texts)
		}
	})
	if err := r.balancers.Apply(t.Context(), o.ID, deletion(lb)); err != nil {
		t.Fatal(err)
	}
	r.clock.Step(time.Second)
	create := &plan.Step{Op: plan.Create, Kind: drivers.KindOVNLoadBalancer, Identity: lb.Identity}
	if err := r.own.Apply(t.Context(), o.ID, create); err != nil {
		t.Fatal(err)
	}
	r.loop.Update(func(tx *state.LoopTx) { r.balancers.Review(tx.Tx, o, &plan.Plan{}) })
	if s := r.Status(); o.Gap != time.Second || s.Waiting != 0 {
		t.Errorf("a gap of %v; %+v", o.Gap, s)
	}
}

// TestNothingIsKeptOfAnObjectThatIsForgotten, whatever was noted of it.
func TestNothingIsKeptOfAnObjectThatIsForgotten(t *testing.T) {
	r := newRig(t, octaviaWith{room: 1}, ports{})
	r.listed(nil, nil)
	o, lb := r.service("shop", drivers.LoadBalancer{}, drivers.KindOVNLoadBalancer)
	r.loop.Update(func(tx *state.LoopTx) { r.balancers.Review(tx.Tx, o, &plan.Plan{}) })
	if err := r.own.Apply(t.Context(), o.ID, deletion(lb)); err != nil {
		t.Fatal(err)
	}
	r.loop.Update(func(tx *state.LoopTx) {
		r.withheld[o.ID] = true
		if len(r.stale) != 1 || len(r.reserved) != 1 || len(r.unserved) != 1 {
			t.Errorf("noted are %v, %v, %v", r.stale, r.reserved, r.unserved)
		}
		tx.Forget(o)
		if n := len(r.stale) + len(r.reserved) + len(r.unserved) + len(r.withheld); n != 0 {
			t.Errorf("left are %v, %v, %v, %v", r.stale, r.reserved, r.unserved, r.withheld)
		}
	})
}

// TestWhatKeepsOVNsLoadBalancer: one of OVN's is not deleted for one of Octavia's that cannot come.
func TestWhatKeepsOVNsLoadBalancer(t *testing.T) {
	quota := state.ByQuota(drivers.KindLoadBalancer)
	for name, c := range map[string]struct {
		octavia Octavia
		phase   state.Phase
		text    string
		wait    []state.Key
	}{
		"nothing": {octaviaWith{room: 1}, "", "", nil},
		"no room": {octaviaWith{}, state.Waiting, "the quota has room for 0 more", []state.Key{quota}},
		"no such provider": {
			octaviaWith{room: 1, unmet: "no provider"},
			state.Terminal,
			"OVN's load balancer of Service web/shop stays: no provider", nil,
		},
		"no answer": {
			octaviaWith{unreachable: errors.New("odd")},
			state.Failing,
			"checking whether there is a load balancing service: odd", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.octavia, ports{})
			r.listed(nil, nil)
			o, lb := r.service("shop", drivers.LoadBalancer{}, drivers.KindOVNLoadBalancer)
			err := r.own.Apply(t.Context(), o.ID, deletion(lb))
			var f *backend.Failure
			switch {
			case c.phase == "" && err != nil:
				t.Errorf("got %v", err)
			case c.phase == "":
			case !errors.As(err, &f) || f.Phase != c.phase || !slices.Equal(f.Wait, c.wait),
				!strings.Contains(err.Error(), c.text):
				t.Errorf("got %+v", err)
			}
		})
	}
}

// TestRoomIsReserved: the room that was seen in the quota for one Service is not another's, for a while.
func TestRoomIsReserved(t *testing.T) {
	r := newRig(t, octaviaWith{room: 1}, ports{})
	r.listed(nil, nil)
	first, old := r.service("first", drivers.LoadBalancer{}, drivers.KindOVNLoadBalancer)
	second, other := r.service("second", drivers.LoadBalancer{}, drivers.KindOVNLoadBalancer)
	if err := r.own.Apply(t.Context(), first.ID, deletion(old)); err != nil {
		t.Fatal(err)
	}
	if err := r.own.Apply(t.Context(), second.ID, deletion(other)); err == nil {
		t.Error("two are deleted for the room of one")
	}
	r.clock.Step(reservedFor + 1)
	if err := r.own.Apply(t.Context(), second.ID, deletion(other)); err != nil {
		t.Error(err)
	}
}

// TestUnseen: while a backend's load balancers were never listed, the other one creates none that could serve
// beside them.
func TestUnseen(t *testing.T) {
	odd := errors.New("503")
	port := plan.Observed{ID: "p", Attrs: map[string]any{"name": "vip", "network_id": "net"}}
	vips := map[string]any{"vips": []any{map[string]any{"address": "10.0.0.1"}}}
	r := newRig(t, octaviaWith{}, ports{port})
	r.listed(odd, odd)
	o, _ := r.service("shop", drivers.OVNLoadBalancer{}, drivers.KindLoadBalancer)
	create := &plan.Step{
		Op: plan.Create, Kind: drivers.KindOVNLoadBalancer, Identity: plan.Identity{Owner: o.ID}, Attrs: vips,
	}
	if err := r.own.Apply(t.Context(), o.ID, create); err != nil || r.Withheld() != "" {
		t.Errorf("a port of another owner: %v, %q", err, r.Withheld())
	}
	r.loop.Update(func(tx *state.LoopTx) {
		tx.Cache.Put(plan.Observed{Kind: drivers.KindNetwork, ID: "net", Managed: true})
	})
	var f *backend.Failure
	err := r.own.Apply(t.Context(), o.ID, create)
	if !errors.As(err, &f) || f.Phase != state.Waiting || f.RequeueAfter != time.Minute ||
		!slices.Contains(f.Wait, state.ByBackend("Octavia")) || r.Status().Unseen != 1 {
		t.Errorf("a port of this cluster's: %+v, %q", f, r.Withheld())
	}
	p := plan.Plan{Steps: []plan.Step{
		{Op: plan.Create, Kind: drivers.KindLoadBalancer}, {Op: plan.Delete, Kind: drivers.KindOVNLoadBalancer},
	}}
	r.loop.Update(func(tx *state.LoopTx) {
		r.balancers.Review(tx.Tx, o, &p)
		if len(p.Steps) != 1 {
			t.Errorf("OVN's is deleted while Octavia is unavailable: %v", p.Steps)
		}
		review := r.own.Review(tx.Tx, o, &p)
		if len(p.Steps) != 0 || len(p.Pending) != 1 || review.Withheld == "" ||
			!slices.Equal(review.Wait, []state.Key{state.ByBackend("OVN")}) {
			t.Errorf("%v, %+v", p.Steps, review)
		}
	})
	r.listed(nil, nil)
	if err := r.own.Apply(t.Context(), o.ID, create); err != nil || r.Withheld() != "" {
		t.Errorf("after both were listed: %v, %q", err, r.Withheld())
	}
}
