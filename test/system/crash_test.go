// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kuryr/raven/test/harness"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// moment says at which point of a request raven dies.
type moment string

const (
	unapplied moment = "before it is applied"
	applied   moment = "after it was applied, before the answer"
	late      moment = "and it is applied later, when the next raven has listed already"
)

// lateness is how much later; less than the ambiguous_create_wait of the rigs.
const lateness = 600 * time.Millisecond

// TestCampaignKillsAtWritesToTheCloud kills raven at every write to the cloud; the end is as undisturbed.
func TestCampaignKillsAtWritesToTheCloud(t *testing.T) {
	harness.Campaign(t)
	t.Parallel()
	ref := reference(t)
	type job struct {
		n    int
		when moment
	}
	var jobs []job
	add := func(n, last int, when moment) {
		if n <= last {
			jobs = append(jobs, job{n, when})
		}
	}
	for n := 1; n <= ref.writes; n++ {
		add(n, ref.writes, unapplied)
		add(n, ref.writes, applied)
		add(n, ref.creates, late)
	}
	var killed atomic.Int32
	each(t, jobs, func(j job) string { return fmt.Sprintf("write %d/%s", j.n, j.when) }, func(t *testing.T, j job) {
		c := newCrash(t, ref)
		var creates atomic.Int32
		c.cloud.OnRequest(func(_ int, q simcloud.Request) {
			n := q.WriteN
			if j.when == late {
				if q.After || q.Method != http.MethodPost || n == 0 {
					return
				}
				n = int(creates.Add(1))
			}
			if n == j.n && q.After == (j.when == applied) {
				c.die(j.when)
			}
		})
		if c.play(j.n%2 == 1) {
			killed.Add(1)
		}
	})
	// Batches differ from run to run, and so does the number of writes, but not by much.
	if least := len(jobs) * 8 / 10; int(killed.Load()) < least {
		t.Errorf("raven was killed in %d of %d runs only, wanted %d", killed.Load(), len(jobs), least)
	}
	t.Logf("killed in %d runs; undisturbed there are %d writes", killed.Load(), ref.writes)
}

// TestCampaignKillsAtAnnotations kills raven at every annotation that it writes.
func TestCampaignKillsAtAnnotations(t *testing.T) {
	harness.Campaign(t)
	t.Parallel()
	ref := reference(t)
	var killed atomic.Int32
	type job struct {
		n     int
		apply bool
	}
	var jobs []job
	for n := 1; n <= ref.patches; n++ {
		jobs = append(jobs, job{n, true}, job{n, false})
	}
	each(t, jobs, func(j job) string { return fmt.Sprintf("patch %d/applied %t", j.n, j.apply) },
		func(t *testing.T, j job) {
			c := newCrash(t, ref)
			// The request hangs, applied or not, until raven is dead.
			remove, err := c.kube.Inject(simkube.Fault{
				Method: http.MethodPatch, Skip: j.n - 1, Times: 1, Apply: j.apply, Hang: true,
			})
			if err != nil {
				t.Fatal(err)
			}
			var seen atomic.Int32
			c.kube.OnRequest(func(q simkube.Request) {
				if q.Verb == "patch" && int(seen.Add(1)) == j.n {
					go func() {
						time.Sleep(50 * time.Millisecond)
						c.die(applied)
					}()
				}
			})
			if c.play(j.n%2 == 1) {
				killed.Add(1)
			}
			remove()
		})
	if least := len(jobs) * 8 / 10; int(killed.Load()) < least {
		t.Errorf("raven was killed in %d of %d runs only, wanted %d", killed.Load(), len(jobs), least)
	}
}

// each runs a subtest per job, several side by side, and returns when all have ended.
func each[J any](t *testing.T, jobs []J, name func(J) string, test func(*testing.T, J)) {
	t.Helper()
	t.Run("each", func(t *testing.T) {
		for _, j := range jobs {
			t.Run(name(j), func(t *testing.T) {
				t.Parallel()
				test(t, j)
			})
		}
	})
}

// crash is one run of the workload in which raven dies once.
type crash struct {
	*rig
	ref  played
	once sync.Once
	died chan struct{}
	at   time.Time
	when moment
}

func newCrash(t *testing.T, ref played) *crash {
	t.Helper()
	c := &crash{rig: newRig(t), ref: ref, died: make(chan struct{})}
	c.bare()
	return c
}

// die kills raven. It is called while the fatal request waits.
func (c *crash) die(when moment) {
	c.once.Do(func() {
		rule := simcloud.Rule{Method: "write", Action: simcloud.ActionCut}
		if when == late {
			rule.Action, rule.Delay = simcloud.ActionApplyLate, simcloud.Duration(lateness)
		}
		if when != applied {
			if _, err := c.cloud.AddFault(rule); err != nil {
				c.t.Error(err)
			}
		}
		c.mu.Lock()
		p := c.runs[len(c.runs)-1]
		c.mu.Unlock()
		p.Kill()
		c.at, c.when = time.Now(), when
		close(c.died)
	})
}

func (c *crash) dead() bool {
	select {
	case <-c.died:
		return true
	default:
		return false
	}
}

// play runs the workload, starts raven again when it died, and compares the end. Absent: what remains of the workload
// happens while there is no raven. It says whether raven died.
func (c *crash) play(absent bool) bool {
	c.t.Helper()
	return c.playPhases(workload(c.operatorGroup("web")), absent)
}

func (c *crash) playPhases(phases []phase, absent bool) bool {
	c.t.Helper()
	p := c.start()
	again := false
	revive := func() {
		if c.dead() && !again {
			c.cloud.ClearFaults()
			p, again = c.start(), true
		}
	}
	for i, do := range phases {
		do(c.rig)
		if c.dead() && absent && !again {
			continue
		}
		revive()
		if amiss := waitFor(patience, func() string {
			if c.dead() && !again {
				return ""
			}
			return c.differs(p, i)
		}); amiss != "" {
			c.t.Errorf("after phase %d: %s", i+1, amiss)
			return again
		}
		if !absent {
			revive()
		}
	}
	revive()
	if again && c.when == late {
		time.Sleep(time.Until(c.at.Add(lateness + 100*time.Millisecond)))
	}
	within(c.t, "the state of an undisturbed run", func() string { return c.differs(p, len(phases)-1) })
	p.Kill()
	return again
}

// differs compares the cloud with that of the undisturbed run after a phase.
func (c *crash) differs(p *raven, phase int) string {
	if diff := harness.LineDiff(c.ref.dumps[phase], c.dump()); diff != "" {
		return "the cloud differs (-undisturbed +this):\n" + diff
	}
	return c.amiss(p)
}
