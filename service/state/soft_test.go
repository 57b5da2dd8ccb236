// SPDX-License-Identifier: Apache-2.0

package state

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// waiting is an object of driver "a" whose port is in groups that others export, and in their network.
type waiting struct {
	t     *testing.T
	loop  *Loop
	clock *clocktesting.FakePassiveClock
	id    plan.Owner
}

func exported(name string) drivers.Role {
	return drivers.Role{Kind: "ConfigMap", Namespace: "n", Name: name, Role: "r"}
}

func newWaiting(t *testing.T, groups ...string) *waiting {
	t.Helper()
	w := &waiting{t: t, clock: clocktesting.NewFakePassiveClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))}
	w.loop = New(Config{
		Cluster: "c", Drivers: []string{"a"}, Clock: w.clock, SoftWait: 10 * time.Second,
		Kinds: plan.NewKinds(plan.Descriptor{Kind: drivers.KindNetwork}, plan.Descriptor{Kind: drivers.KindSecurityGroup},
			plan.Descriptor{Kind: drivers.KindPort}),
		Deliver: func([]Request) {},
	})
	w.wants(groups...)
	return w
}

func (w *waiting) wants(groups ...string) {
	spec := drivers.Port{NetworkID: drivers.FromRole(exported("network"))}
	for _, name := range groups {
		spec.SecurityGroups = append(spec.SecurityGroups, drivers.Soft(exported(name)))
	}
	w.joins("pod", drivers.Resource{Name: "port", Spec: spec})
	w.loop.Update(func(tx *LoopTx) { w.id = tx.OwnerOf("a", "pod") })
}

// joins has an object want a resource.
func (w *waiting) joins(name string, r drivers.Resource) *Object {
	var o *Object
	w.loop.Update(func(tx *LoopTx) {
		o = tx.Ensure(Request{Driver: "a"}, Target{
			UID: name, Name: name, Namespace: "n", Watch: drivers.Watch{Kind: "ConfigMap"},
		})
		tx.SetDesired(o, drivers.Set{Resources: []drivers.Resource{r}})
	})
	return o
}

// made has an object export a resource that is there.
func (w *waiting) made(name string, spec drivers.Spec) *Object {
	r := drivers.Resource{Name: "it", Spec: spec, Exports: []string{"r"}}
	o := w.joins(name, r)
	w.loop.Update(func(tx *LoopTx) {
		identity := tx.Identity(o.ID, r)
		tx.Arrive(plan.Observed{
			Kind: spec.Kind(), ID: "id of " + name, Identity: identity, Managed: true, Tags: identity.Tags(),
			Attrs: map[string]any{},
		})
		o.Phase = Done
	})
	return o
}

// plan plans once, and says whether the port is ready to be made and without what it would be.
func (w *waiting) plan() (ready bool, groups int) {
	w.t.Helper()
	w.loop.Update(func(tx *LoopTx) {
		o := tx.objects[w.id]
		want := tx.Desire(o.ID, o.Set)
		p := tx.Plan(want, nil, true)
		if len(p.Steps) != 1 {
			w.t.Fatalf("steps are %v", p.Steps)
		}
		tx.NoteUnresolved(o, want, p)
		list, _ := p.Steps[0].Attrs["security_groups"].([]any)
		ready, groups = p.Steps[0].Ready(), len(list)
	})
	return ready, groups
}

func (w *waiting) planned(ready bool, groups int) {
	w.t.Helper()
	if gotReady, gotGroups := w.plan(); gotReady != ready || gotGroups != groups {
		w.t.Errorf("the port is ready: %v, with %d groups; want %v with %d", gotReady, gotGroups, ready, groups)
	}
}

// TestSoftWaitBeginsWithoutHardReferences: the time in which the port could not be made anyway does not count.
func TestSoftWaitBeginsWithoutHardReferences(t *testing.T) {
	w := newWaiting(t, "g")
	w.planned(false, 1)
	w.clock.SetTime(w.clock.Now().Add(time.Hour))
	w.made("network", drivers.Network{})
	w.planned(false, 1)
	w.clock.SetTime(w.clock.Now().Add(9 * time.Second))
	w.planned(false, 1)
	w.clock.SetTime(w.clock.Now().Add(time.Second))
	w.planned(true, 0)
}

// TestSoftWaitIsEachReferencesOwn: one that is never resolved takes nothing from one that comes later.
func TestSoftWaitIsEachReferencesOwn(t *testing.T) {
	w := newWaiting(t, "never")
	w.made("network", drivers.Network{})
	w.planned(false, 1)
	w.clock.SetTime(w.clock.Now().Add(time.Minute))
	w.planned(true, 0)
	w.wants("never", "g")
	w.planned(false, 1)
	w.clock.SetTime(w.clock.Now().Add(9 * time.Second))
	w.planned(false, 1)
	w.made("g", drivers.SecurityGroup{})
	w.planned(true, 1)
	w.loop.View(func(tx *LoopTx) {
		if since := tx.objects[w.id].SoftSince; len(since) != 1 {
			t.Errorf("noted are %v", since)
		}
	})
}

// TestSoftReferenceToWhatIsNotFinished: a port waits for the rules of the group that it joins, and no longer than for
// the group.
func TestSoftReferenceToWhatIsNotFinished(t *testing.T) {
	w := newWaiting(t, "g", "h")
	w.made("network", drivers.Network{})
	w.made("h", drivers.SecurityGroup{})
	group := w.made("g", drivers.SecurityGroup{})
	group.Phase = Pending
	w.planned(false, 2)
	group.Phase = Done
	w.planned(true, 2)

	group.Phase, group.Since = Waiting, w.clock.Now()
	w.planned(false, 2)
	w.clock.SetTime(w.clock.Now().Add(9 * time.Second))
	w.planned(false, 2)
	group.Since = w.clock.Now() // it was something else in between
	w.clock.SetTime(w.clock.Now().Add(time.Second))
	w.planned(true, 2)
	w.planned(true, 2) // and it is not waited for again
	group.Since = w.clock.Now().Add(-10 * time.Second)
	w.planned(true, 2)
}

// TestSoftWaitThatEndsBetweenPlanAndRest: the object is planned anew, once.
func TestSoftWaitThatEndsBetweenPlanAndRest(t *testing.T) {
	w := newWaiting(t, "g")
	w.made("network", drivers.Network{})
	left := func() (left time.Duration) {
		w.loop.View(func(tx *LoopTx) { left = tx.SoftWaitLeft(tx.objects[w.id]) })
		return left
	}
	w.planned(false, 1)
	if left() != 10*time.Second {
		t.Errorf("%v are left", left())
	}
	w.clock.SetTime(w.clock.Now().Add(10 * time.Second))
	if left() <= 0 {
		t.Error("nothing plans the object anew")
	}
	w.planned(true, 0)
	if left() != 0 {
		t.Errorf("%v are left when the port was planned without the group", left())
	}
}
