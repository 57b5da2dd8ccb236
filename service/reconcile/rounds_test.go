package reconcile

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack/octavia"
	"github.com/kuryr/raven/service/plan"
)

// TestRounds: a round of mending begins with what is done for the sake of an ERROR, takes every part once, and ends by time.
func TestRounds(t *testing.T) {
	listener, pool := plan.Part{Kind: octavia.Listener, Name: "a"}, plan.Part{Kind: octavia.Pool, Name: "a"}
	partial := statusLB("1", "ERROR", "ERROR", "ACTIVE")
	partial.Identity, partial.Managed = plan.Identity{Cluster: "c", Owner: plan.Owner{Driver: "d", UID: "u"}, Name: "lb"}, true
	broken := partial
	broken.Status = "ERROR"
	done := func(part *plan.Part, mends bool) plan.Step {
		return plan.Step{Op: plan.Delete, Kind: drivers.KindLoadBalancer, Identity: partial.Identity, ID: "1", Part: part, Mends: mends}
	}
	type wish struct {
		mend  octavia.Mend
		rests []plan.Part
	}
	s := newStore("c", nil, nil)
	clk := clocktesting.NewFakePassiveClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	for _, c := range []struct {
		name  string
		after time.Duration
		step  *plan.Step // that was taken just before
		lb    plan.Observed
		want  wish
		tries int
	}{
		{"at first", 0, nil, partial, wish{mend: octavia.MendReplace}, 0},
		{"an ordinary change", 0, new(done(&pool, false)), partial, wish{mend: octavia.MendReplace}, 0},
		{"the first part", 0, new(done(&listener, true)), partial, wish{octavia.MendReplace, []plan.Part{listener}}, 1},
		{"a change meanwhile", 0, new(done(&pool, false)), partial, wish{octavia.MendReplace, []plan.Part{listener}}, 1},
		{"the second part", time.Second, new(done(&pool, true)), partial, wish{octavia.MendReplace, []plan.Part{listener, pool}}, 1},
		{"all of it rests too", 0, nil, broken, wish{}, 1},
		{"the next round", mendPause, nil, partial, wish{mend: octavia.MendReplace}, 1},
		{"which counts", 0, new(done(&pool, true)), partial, wish{octavia.MendReplace, []plan.Part{pool}}, 2},
		{"and is longer", mendPause, nil, partial, wish{octavia.MendReplace, []plan.Part{pool}}, 2},
		{"all of it", mendPause, new(done(nil, true)), broken, wish{}, 3},
	} {
		clk.SetTime(clk.Now().Add(c.after))
		if c.step != nil {
			s.mended(*c.step, clk.Now())
		}
		s.cloud.put(c.lb)
		d := plan.Desired{Kind: drivers.KindLoadBalancer, Identity: partial.Identity}
		s.mend(&d, clk.Now())
		if diff := cmp.Diff(c.want, wish{octavia.HintsOf(&d).Mend, octavia.HintsOf(&d).Rests}, cmp.AllowUnexported(wish{})); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
		tries := 0
		if m := s.mendings[identityKey(d.Kind, d.Identity)]; m != nil {
			tries = m.tries
		}
		if tries != c.tries {
			t.Errorf("%s: %d rounds, want %d", c.name, tries, c.tries)
		}
	}
}
