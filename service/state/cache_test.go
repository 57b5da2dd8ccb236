// SPDX-License-Identifier: Apache-2.0

package state

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// TestReplaceBesideWrites: a list that ran beside writes neither takes back what was made meanwhile nor brings back
// what was deleted.
func TestReplaceBesideWrites(t *testing.T) {
	network := func(id string, revision int64) plan.Observed {
		return plan.Observed{
			Kind: drivers.KindNetwork, ID: id, Managed: true, Revision: revision, Attrs: map[string]any{"id": id, "name": id},
			Identity: plan.Identity{Cluster: "c", Owner: plan.Owner{Driver: "d", UID: id}, Name: "network"},
		}
	}
	m := NewCache(plan.NewKinds())
	for _, id := range []string{"stays", "deleted", "vanished", "updated"} {
		m.Put(network(id, 1))
	}
	begun := m.Sequence()
	m.Put(network("made", 1))
	m.Put(network("updated", 2))
	m.Remove(drivers.KindNetwork, "deleted")
	every := func(drivers.Kind) bool { return true }
	changes := m.Replace(every, []plan.Observed{
		network("stays", 1), network("deleted", 1), network("updated", 1), network("found", 1),
	}, begun)
	got := map[string]string{}
	for _, c := range changes {
		switch {
		case c.Now == nil:
			got[c.Before.ID] = "gone"
		case c.Before == nil && c.Differs:
			got[c.Now.ID] = "new"
		default:
			got[c.Now.ID] = "changed"
		}
	}
	if diff := cmp.Diff(map[string]string{"found": "new", "vanished": "gone"}, got); diff != "" {
		t.Error(diff)
	}
	have := map[string]int64{}
	for key, e := range m.entries {
		have[key.ID] = e.Revision
	}
	if diff := cmp.Diff(map[string]int64{"stays": 1, "made": 1, "updated": 2, "found": 1}, have); diff != "" {
		t.Error(diff)
	}
	if changes = m.Replace(every, nil, m.Sequence()); len(changes) != 4 ||
		len(m.entries)+len(m.byOwner)+len(m.shared)+len(m.usedBy) != 0 {
		t.Errorf("an empty list leaves %v", m.entries)
	}
}

// TestAllowed is the table of the mass-deletion guard.
func TestAllowed(t *testing.T) {
	for _, c := range []struct {
		count    int
		share    float64
		existing int
		want     int
		why      string
	}{
		{20, 0.1, 1000, 20, "the count"},
		{20, 0.1, 150, 15, "the share"},
		{20, 0.1, 30, 10, "a few always pass"},
		{3, 0.5, 100, 3, "not more than the count"},
		{0, 1, 100, 0, "none at all"},
	} {
		if got := (&Config{MaxDeletes: c.count, MaxDeleteShare: c.share}).allowed(c.existing); got != c.want {
			t.Errorf("%s: allowed(%d, %v, %d) = %d, want %d", c.why, c.count, c.share, c.existing, got, c.want)
		}
	}
}

// TestDriftBesideWrites: what a list shows of a write whose answer is still to come is no drift.
func TestDriftBesideWrites(t *testing.T) {
	network := func(name string) plan.Observed {
		return plan.Observed{
			Kind: drivers.KindNetwork, ID: "n", Managed: true, Attrs: map[string]any{"id": "n", "name": name},
			Identity: plan.Identity{Cluster: "c", Owner: plan.Owner{Driver: "d", UID: "o"}, Name: "network"},
		}
	}
	key := ResourceKey{drivers.KindNetwork, "n"}
	every := func(drivers.Kind) bool { return true }
	for name, list := range map[string][]plan.Observed{"an update": {network("new")}, "a deletion": nil} {
		c := NewCache(plan.NewKinds())
		c.Put(network("old"))
		c.BeginWrite(key)
		for _, change := range c.Replace(every, list, c.Sequence()) {
			if drift, drifts := c.Drift(change); drifts {
				t.Errorf("%s under way: %s", name, drift)
			}
		}
		c.EndWrite(key)
		c.Put(network("old"))
		changes := c.Replace(every, list, c.Sequence())
		if len(changes) != 1 {
			t.Fatalf("%s by others: %d changes", name, len(changes))
		}
		what := "is gone"
		if list != nil {
			what = `name is "new", was "old"`
		}
		if drift, drifts := c.Drift(changes[0]); !drifts || drift.What != what {
			t.Errorf("%s by others: %q is told instead of %q", name, drift.What, what)
		}
	}
}

// TestDriftOfLongValues that differ behind what is told of them is told nevertheless.
func TestDriftOfLongValues(t *testing.T) {
	network := func(name string) plan.Observed {
		return plan.Observed{Kind: drivers.KindNetwork, ID: "n", Attrs: map[string]any{"name": name}}
	}
	before, now := network(strings.Repeat("x", 100)), network(strings.Repeat("x", 101))
	drift, drifts := NewCache(plan.NewKinds()).Drift(Change{Before: &before, Now: &now, Differs: true})
	if !drifts || !strings.HasPrefix(drift.What, `name is another "xxx`) {
		t.Errorf("told is %q", drift.What)
	}
}
