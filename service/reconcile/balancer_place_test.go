package reconcile

import (
	"errors"
	"testing"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// TestWhosePlaceItIs: the place in the quota of what has gone is kept for what takes its place, until that is there, and not for ever.
func TestWhosePlaceItIs(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	lb := func(id, status string) plan.Observed {
		identity := plan.Identity{Cluster: "c", Owner: plan.Owner{Driver: "a", UID: "u"}, Name: "lb"}
		return plan.Observed{Kind: drivers.KindLoadBalancer, ID: id, Identity: identity, Managed: true, Status: status, Attrs: map[string]any{}}
	}
	for name, c := range map[string]struct {
		do   func(*store)
		at   time.Time
		want bool
	}{
		"it is about to go":        {func(*store) {}, now, true},
		"it is going":              {func(s *store) { s.takeBalancer(lb("1", "PENDING_DELETE"), now) }, now, true},
		"it has gone":              {func(s *store) { s.departed(drivers.KindLoadBalancer, "1") }, now, true},
		"it has gone long ago":     {func(s *store) { s.departed(drivers.KindLoadBalancer, "1"); s.tight = now.Add(placeFor) }, now.Add(placeFor), false},
		"nobody has met the quota": {func(s *store) { s.departed(drivers.KindLoadBalancer, "1"); s.tight = time.Time{} }, now, false},
		"another one is in its place": {func(s *store) {
			s.departed(drivers.KindLoadBalancer, "1")
			s.takeBalancer(lb("2", "PENDING_CREATE"), now)
		}, now, false},
		"and that one goes for itself": {func(s *store) { s.takeBalancer(lb("2", "ACTIVE"), now); s.departed(drivers.KindLoadBalancer, "2") }, now, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore("c", nil, nil)
			s.takeBalancer(lb("1", statusActive), now)
			s.swaps[identityKey(drivers.KindLoadBalancer, lb("1", "").Identity)] = swap{id: lb("1", "").Identity, lb: "1", since: now}
			s.tight = now
			c.do(s)
			if got := s.reserved(c.at); (got != "") != c.want {
				t.Errorf("its place is kept for %q", got)
			}
		})
	}
}

// TestWhatIsWrittenDown: a subnet of ours that Octavia does not see yet is asked for again soon.
func TestWhatIsWrittenDown(t *testing.T) {
	s := newStore("c", nil, nil)
	s.cloud.put(plan.Observed{Kind: drivers.KindSubnet, ID: "ours", Attrs: map[string]any{}})
	e := &Engine{store: s}
	for subnet, want := range map[string]bool{"ours": false, "theirs": true} {
		step := plan.Step{Kind: drivers.KindLoadBalancer, Attrs: map[string]any{"vip_subnet_id": subnet}}
		if got := e.writtenDown(stepError{step: step, err: errors.New("Subnet " + subnet + " not found.")}); got != want {
			t.Errorf("%s: %v", subnet, got)
		}
	}
	if e.writtenDown(stepError{step: plan.Step{Kind: drivers.KindPort}, err: errors.New("no")}) {
		t.Error("of others nothing is said")
	}
}

// TestVetoOutlivesWhatIsNotKnown: that nobody can say for a moment where a load balancer is to be is no other wish.
func TestVetoOutlivesWhatIsNotKnown(t *testing.T) {
	s := newStore("c", nil, nil)
	id := plan.Owner{Driver: "a", UID: "u"}
	set := drivers.Set{Resources: []drivers.Resource{{Name: "subnet", Spec: drivers.Subnet{}}}}
	d := plan.Desired{
		Kind: drivers.KindLoadBalancer, Identity: plan.Identity{Cluster: "c", Owner: id, Name: "lb"},
		Attrs: map[string]any{"flavor_id": "f", "vip_subnet_id": drivers.Ref{Name: "subnet"}},
	}
	s.takeBalancer(plan.Observed{Kind: d.Kind, ID: "1", Identity: d.Identity, Managed: true, Status: statusActive, Attrs: map[string]any{}}, time.Now())
	subnet := plan.Observed{
		Kind: drivers.KindSubnet, ID: "s", Managed: true, Attrs: map[string]any{},
		Identity: plan.Identity{Cluster: "c", Owner: id, Name: kinds.LogicalName(drivers.KindSubnet, "subnet")},
	}
	s.cloud.put(subnet)
	_, wish := s.given(s.names(id, set), &d)
	s.vetoes[identityKey(d.Kind, d.Identity)] = veto{wish: wish}
	bound := func(want bool) {
		t.Helper()
		if got := s.bound(s.names(id, set), &d); got != want {
			t.Errorf("bound: %v", got)
		}
	}
	bound(true)
	s.cloud.remove(subnet.Kind, subnet.ID)
	bound(true)
	s.cloud.put(subnet)
	bound(true)
	d.Attrs["flavor_id"] = "g"
	bound(false)
}
