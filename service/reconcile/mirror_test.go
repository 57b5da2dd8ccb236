package reconcile

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// TestReplaceBesideWrites: a list that ran beside writes neither takes back what was made meanwhile nor brings back what was
// deleted.
func TestReplaceBesideWrites(t *testing.T) {
	network := func(id string, revision int64) plan.Observed {
		return plan.Observed{
			Kind: drivers.KindNetwork, ID: id, Managed: true, Revision: revision, Attrs: map[string]any{"id": id, "name": id},
			Identity: plan.Identity{Cluster: "c", Owner: plan.Owner{Driver: "d", UID: id}, Name: "network"},
		}
	}
	m := newMirror()
	for _, id := range []string{"stays", "deleted", "vanished", "updated"} {
		m.put(network(id, 1))
	}
	begun := m.tick
	m.put(network("made", 1))
	m.put(network("updated", 2))
	m.remove(drivers.KindNetwork, "deleted")
	changed, different, gone := m.replace([]plan.Observed{
		network("stays", 1), network("deleted", 1), network("updated", 1), network("found", 1),
	}, begun)
	ids := func(list []plan.Observed) (out []string) {
		for _, o := range list {
			out = append(out, o.ID)
		}
		return out
	}
	if diff := cmp.Diff([][]string{{"found"}, {"found"}, {"vanished"}}, [][]string{ids(changed), ids(different), ids(gone)}); diff != "" {
		t.Error(diff)
	}
	have := map[string]int64{}
	for key, e := range m.entries {
		have[key.id] = e.Revision
	}
	if diff := cmp.Diff(map[string]int64{"stays": 1, "made": 1, "updated": 2, "found": 1}, have); diff != "" {
		t.Error(diff)
	}
	if _, _, gone = m.replace(nil, m.tick); len(gone) != 4 || len(m.entries)+len(m.byOwner)+len(m.usedBy) != 0 {
		t.Errorf("an empty list leaves %v", m.entries)
	}
}

// TestSooner: backoff begins with the shortest time, no time is never.
func TestSooner(t *testing.T) {
	never, soon, late, backoff := result{}, result{again: 1}, result{again: 2}, result{backoff: true}
	for _, c := range []struct{ a, b, want result }{
		{never, never, never},
		{never, late, late},
		{late, never, late},
		{late, soon, soon},
		{soon, late, soon},
		{soon, backoff, backoff},
		{backoff, soon, backoff},
	} {
		if got := sooner(c.a, c.b); got != c.want {
			t.Errorf("sooner(%+v, %+v) = %+v, want %+v", c.a, c.b, got, c.want)
		}
	}
}

// TestAllowed is the table of the replay guard.
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
		if got := allowed(Config{MaxReplayDeletes: c.count, MaxReplayDeleteShare: c.share}, c.existing); got != c.want {
			t.Errorf("%s: allowed(%d, %v, %d) = %d, want %d", c.why, c.count, c.share, c.existing, got, c.want)
		}
	}
}
