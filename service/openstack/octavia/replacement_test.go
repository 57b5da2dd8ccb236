// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"errors"
	"testing"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack/outcome"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// TestWhosePlaceItIs: the place in the quota of what has gone is kept for what takes its place, until that is there,
// and not for ever.
func TestWhosePlaceItIs(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	lb := func(id, status string) plan.Observed {
		identity := plan.Identity{Cluster: "c", Owner: plan.Owner{Driver: "a", UID: "u"}, Name: "lb"}
		return plan.Observed{
			Kind: drivers.KindLoadBalancer, ID: id, Identity: identity, Managed: true, Status: status, Attrs: map[string]any{},
		}
	}
	arrives := func(r *rig, o plan.Observed) { r.update(func(tx *state.Tx) { tx.Arrive(o) }) }
	departs := func(r *rig, id string) { r.update(func(tx *state.Tx) { tx.Depart(drivers.KindLoadBalancer, id) }) }
	for name, c := range map[string]struct {
		do   func(*rig)
		at   time.Time
		want bool
	}{
		"it is about to go": {func(*rig) {}, now, true},
		"it is going":       {func(r *rig) { arrives(r, lb("1", "PENDING_DELETE")) }, now, true},
		"it has gone":       {func(r *rig) { departs(r, "1") }, now, true},
		"it has gone long ago": {func(r *rig) {
			departs(r, "1")
			r.quotaExhausted = now.Add(reservationFor)
		}, now.Add(reservationFor), false},
		"nobody has met the quota": {func(r *rig) { departs(r, "1"); r.quotaExhausted = time.Time{} }, now, false},
		"another one is in its place": {func(r *rig) {
			departs(r, "1")
			arrives(r, lb("2", "PENDING_CREATE"))
		}, now, false},
		"and that one goes for itself": {func(r *rig) { arrives(r, lb("2", "ACTIVE")); departs(r, "2") }, now, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, now)
			arrives(r, lb("1", statusActive))
			r.replacements[state.KeyOf(drivers.KindLoadBalancer, lb("1", "").Identity)] = replacement{
				identity: lb("1", "").Identity, id: "1", since: now,
			}
			r.quotaExhausted = now
			c.do(r)
			r.clock.SetTime(c.at)
			r.update(func(tx *state.Tx) {
				if got := r.reservedFor(tx); (got != "") != c.want {
					t.Errorf("its place is kept for %q", got)
				}
			})
		})
	}
}

// TestWhatPeopleName: a subnet of this cluster that Octavia does not see yet is asked for again soon.
func TestWhatPeopleName(t *testing.T) {
	r := newRig(t, time.Now())
	subnet := plan.Observed{Kind: drivers.KindSubnet, ID: "ours", Attrs: map[string]any{}}
	r.update(func(tx *state.Tx) { tx.Cache.Put(subnet) })
	for subnet, want := range map[string]bool{"ours": false, "theirs": true} {
		step := plan.Step{Kind: drivers.KindLoadBalancer, Attrs: map[string]any{"vip_subnet_id": subnet}}
		refusal := outcome.Refusal{Step: step, Err: errors.New("Subnet " + subnet + " not found.")}
		if got := r.namedByPeople(refusal); got != want {
			t.Errorf("%s: %v", subnet, got)
		}
	}
	if r.namedByPeople(outcome.Refusal{Step: plan.Step{Kind: drivers.KindPort}, Err: errors.New("no")}) {
		t.Error("of others nothing is said")
	}
}

// TestBlockOutlivesWhatIsNotKnown: that nobody can say for a moment where a load balancer is to be does not lift a
// block.
func TestBlockOutlivesWhatIsNotKnown(t *testing.T) {
	r := newRig(t, time.Now())
	id := plan.Owner{Driver: "a", UID: "u"}
	set := drivers.Set{Resources: []drivers.Resource{{Name: "subnet", Spec: drivers.Subnet{}}}}
	d := plan.Desired{
		Kind: drivers.KindLoadBalancer, Identity: plan.Identity{Cluster: "c", Owner: id, Name: "lb"},
		Attrs: map[string]any{"flavor_id": "f", "vip_subnet_id": drivers.Ref{Name: "subnet"}},
	}
	subnet := plan.Observed{
		Kind: drivers.KindSubnet, ID: "s", Managed: true, Attrs: map[string]any{},
		Identity: plan.Identity{Cluster: "c", Owner: id, Name: "subnet"},
	}
	r.update(func(tx *state.Tx) {
		tx.Arrive(plan.Observed{
			Kind: d.Kind, ID: "1", Identity: d.Identity, Managed: true, Status: statusActive, Attrs: map[string]any{},
		})
		tx.Cache.Put(subnet)
		_, desired := desiredFields(tx, tx.Names(id, set), &d)
		r.blocks[state.KeyOf(d.Kind, d.Identity)] = block{desired: desired}
	})
	pinned := func(want bool) {
		t.Helper()
		r.update(func(tx *state.Tx) {
			if got := r.pinned(tx, tx.Names(id, set), &d); got != want {
				t.Errorf("pinned: %v", got)
			}
		})
	}
	pinned(true)
	r.update(func(tx *state.Tx) { tx.Cache.Remove(subnet.Kind, subnet.ID) })
	pinned(true)
	r.update(func(tx *state.Tx) { tx.Cache.Put(subnet) })
	pinned(true)
	d.Attrs["flavor_id"] = "g"
	pinned(false)
}
