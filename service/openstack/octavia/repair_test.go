// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// TestRoundsOfRepairs: a round of repairs begins with what is done for the sake of an ERROR, takes every part once, and
// ends by time.
func TestRoundsOfRepairs(t *testing.T) {
	listener, pool := plan.Part{Kind: Listener, Name: "a"}, plan.Part{Kind: Pool, Name: "a"}
	partial := lbInStatus("1", "ERROR", "ERROR", "ACTIVE")
	partial.Identity = plan.Identity{Cluster: "c", Owner: plan.Owner{Driver: "d", UID: "u"}, Name: "lb"}
	partial.Managed = true
	broken := partial
	broken.Status = "ERROR"
	done := func(part *plan.Part, repairs bool) plan.Step {
		return plan.Step{
			Op: plan.Delete, Kind: drivers.KindLoadBalancer, Identity: partial.Identity, ID: "1",
			Part: part, Repairs: repairs,
		}
	}
	type allowed struct {
		repair  Repair
		resting []plan.Part
	}
	r := newRig(t, time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	for _, c := range []struct {
		name  string
		after time.Duration
		step  *plan.Step // that was taken just before
		lb    plan.Observed
		want  allowed
		tries int
	}{
		{"at first", 0, nil, partial, allowed{repair: RepairReplace}, 0},
		{"an ordinary change", 0, new(done(&pool, false)), partial, allowed{repair: RepairReplace}, 0},
		{"the first part", 0, new(done(&listener, true)), partial, allowed{RepairReplace, []plan.Part{listener}}, 1},
		{"a change meanwhile", 0, new(done(&pool, false)), partial, allowed{RepairReplace, []plan.Part{listener}}, 1},
		{
			"the second part", time.Second, new(done(&pool, true)), partial,
			allowed{RepairReplace, []plan.Part{listener, pool}},
			1,
		},
		{"all of it rests too", 0, nil, broken, allowed{}, 1},
		{"the next round", repairPause, nil, partial, allowed{repair: RepairReplace}, 1},
		{"which counts", 0, new(done(&pool, true)), partial, allowed{RepairReplace, []plan.Part{pool}}, 2},
		{"and is longer", repairPause, nil, partial, allowed{RepairReplace, []plan.Part{pool}}, 2},
		{"all of it", repairPause, new(done(nil, true)), broken, allowed{}, 3},
	} {
		r.clock.SetTime(r.clock.Now().Add(c.after))
		d := plan.Desired{Kind: drivers.KindLoadBalancer, Identity: partial.Identity}
		var got allowed
		r.update(func(tx *state.Tx) {
			if c.step != nil {
				r.repaired(tx, *c.step)
			}
			tx.Cache.Put(c.lb)
			got.repair, got.resting = r.mayRepair(tx, &d)
		})
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(allowed{})); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
		tries := 0
		if noted := r.repairs[state.KeyOf(d.Kind, d.Identity)]; noted != nil {
			tries = noted.tries
		}
		if tries != c.tries {
			t.Errorf("%s: %d rounds, want %d", c.name, tries, c.tries)
		}
	}
}
