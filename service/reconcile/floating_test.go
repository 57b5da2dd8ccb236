package reconcile

import (
	"strings"
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/watch"
)

// TestWhoseAFloatingIPIs: one that leads nowhere is had only if nobody can have a claim to it.
func TestWhoseAFloatingIPIs(t *testing.T) {
	mine := plan.Identity{Cluster: "c", Owner: plan.Owner{Driver: "a", UID: "mine"}, Name: "fip.4"}
	theirs := func(driver string) plan.Observed {
		id := plan.Identity{Cluster: "c", Owner: ownerOf(driver, "theirs"), Name: "fip.4"}
		return plan.Observed{Kind: drivers.KindFloatingIP, ID: "1", Identity: id, Managed: true, Attrs: map[string]any{"port_id": nil}}
	}
	key := watch.Key{Watch: "maps", Name: "theirs"}
	for name, c := range map[string]struct {
		found plan.Observed
		setup func(s *store)
		want  string // "": it is free
	}{
		"nobody's":              {found: plan.Observed{Kind: drivers.KindFloatingIP, ID: "1"}},
		"of an object not read": {theirs("a"), func(s *store) { s.drivers["a"].open[key] = true }, "not answered"},
		"of one that is gone":   {found: theirs("a")},
		"of one that is ending": {theirs("a"), func(s *store) {
			s.ensureOwner(item{"a", key}, target{uid: "theirs"}, s.clock.Now()).gone = true
		}, ""},
		"of one that is there": {theirs("a"), func(s *store) {
			s.ensureOwner(item{"a", key}, target{name: "shop", uid: "theirs"}, s.clock.Now())
		}, "it belongs to"},
		"before any replay":    {theirs("a"), func(s *store) { s.drivers["a"].epoch = 0 }, "not answered"},
		"of a driver left out": {theirs("b"), nil, "not enabled"},
		"of a role, not read":  {theirs("service-proxy"), func(s *store) { s.drivers["a"].owns = "service-proxy"; s.drivers["a"].open[key] = true }, "not answered"},
		"of a role, and gone":  {theirs("service-proxy"), func(s *store) { s.drivers["a"].owns = "service-proxy" }, ""},
		"of what is shared":    {theirs(sharedDriver), nil, "shared"},
	} {
		t.Run(name, func(t *testing.T) {
			e := &Engine{store: newStore("c", []string{"a"}, nil)}
			e.store.beginEpoch("a", nil)
			if c.setup != nil {
				c.setup(e.store)
			}
			got := e.taken(c.found, plan.Step{Identity: mine})
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
