// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kuryr/raven/test/harness"
)

// deletions is how many resources of each kind were asked to go.
func (r *rig) deletions() string {
	counts := map[string]int{}
	for what, n := range r.cloud.Stats().Counts {
		if method, kind, _ := strings.Cut(what, " "); method == "DELETE" && kind != "tag" {
			counts[kind] = n
		}
	}
	return fmt.Sprint(counts)
}

// killDriver ends a driver's process, if there is one now, and says whether there was.
func (p *raven) killDriver(name string, s syscall.Signal) bool {
	pid := p.plugin(name)
	if pid == 0 {
		return false
	}
	exe, err := os.Readlink(filepath.Join("/proc", fmt.Sprint(pid), "exe"))
	if err != nil || !strings.HasPrefix(exe, p.rig.dir+"/") {
		return false // it has just ended
	}
	if syscall.Kill(pid, s) != nil {
		return false
	}
	if s == syscall.SIGSTOP { // which has an effect some time after it was sent
		must(p.rig.t, "the stop of driver "+name, func() string { return awake(pid) })
	}
	return true
}

// awake names a thread of a process that was not stopped yet.
func awake(pid int) string {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return fmt.Sprintf("process %d has ended", pid)
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if _, state, _ := strings.Cut(string(stat), ") "); err == nil && !strings.HasPrefix(state, "T") {
			return fmt.Sprintf("%s: %.1s", thread, state)
		}
	}
	return ""
}

// TestCampaignKillsOfDrivers kills drivers at any time, and nothing is lost or deleted.
func TestCampaignKillsOfDrivers(t *testing.T) {
	harness.Campaign(t)
	t.Parallel()
	ref := reference(t)
	seeds := []uint64{1, 2, 3, 4, 5, 6}
	each(t, seeds, func(seed uint64) string { return fmt.Sprint("seed ", seed) }, func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 7))
		r := newRig(t)
		r.bare()
		p := r.start()
		kills := map[string]int{}
		for i, do := range workload(r.operatorGroup("web")) {
			must(t, "the drivers", func() string { return p.settledDrivers() })
			do(r)
			for range 3 {
				time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
				name := []string{"namespace", "pod"}[random.IntN(2)]
				if p.killDriver(name, syscall.SIGKILL) {
					kills[name]++
				}
			}
			must(t, fmt.Sprintf("the state of an undisturbed run after phase %d", i+1), func() string {
				return harness.LineDiff(ref.dumps[i], r.dump()) + r.amiss(p)
			})
		}
		if kills["namespace"]+kills["pod"] < 4 {
			t.Errorf("too few drivers were killed: %v", kills)
		}
		if got := r.deletions(); got != ref.deletions {
			t.Errorf("the deletions were %s, undisturbed they are %s", got, ref.deletions)
		}
		t.Log("killed: ", maps.Clone(kills))
		p.stop()
	})
}

// settledDrivers says which driver does not run.
func (p *raven) settledDrivers() string {
	s, err := p.status()
	if err != nil {
		return err.Error()
	}
	for _, d := range s.Drivers {
		if d.State != "ready" {
			return "driver " + d.Name + " is " + d.State
		}
	}
	return ""
}

func TestDriverThatHangsLosesAndDeletesNothing(t *testing.T) {
	t.Parallel()
	ref := reference(t)
	each(t, []string{"namespace", "pod"}, func(name string) string { return name }, func(t *testing.T, name string) {
		r := newRig(t)
		r.bare()
		p := r.start()
		must(t, "the first rest", func() string { return p.settled() })
		stopped := p.plugin(name)
		if !p.killDriver(name, syscall.SIGSTOP) {
			t.Fatalf("driver %s has no process", name)
		}
		for _, do := range workload(r.operatorGroup("web")) {
			do(r)
		}
		last := len(ref.dumps) - 1
		must(t, "the state of an undisturbed run", func() string {
			return harness.LineDiff(ref.dumps[last], r.dump()) + r.amiss(p)
		})
		if now := p.plugin(name); now == stopped || now == 0 {
			t.Errorf("driver %s hangs and was not replaced: its process was %d and is %d", name, stopped, now)
		}
		p.stop()
	})
}

func TestDriverThatPausesGoesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.start()
	must(t, "the first rest", func() string { return r.amiss(p) })
	before := p.plugin("pod")
	p.killDriver("pod", syscall.SIGSTOP)
	r.createNamespace("shop")
	r.createPod("shop", "a")
	// Of what comes later, what does not need the driver is done meanwhile.
	for _, name := range []string{"shop", "blog"} {
		if name != "shop" {
			r.createNamespace(name)
		}
		must(t, "namespace "+name, func() string { return p.namespaceAmiss(name) })
	}
	if id := r.portOf("shop", "a"); id != "" {
		t.Errorf("the pod got port %s while its driver was stopped", id)
	}
	p.killDriver("pod", syscall.SIGCONT)
	must(t, "the pod's port", func() string { return r.amiss(p) })
	if after := p.plugin("pod"); after != before {
		t.Errorf("the driver was replaced (%d, then %d) though it only paused", before, after)
	}
	p.stop()
}

// namespaceAmiss says why a namespace is not done.
func (p *raven) namespaceAmiss(name string) string {
	s, err := p.status()
	if err != nil {
		return err.Error()
	}
	for _, o := range s.Objects {
		if o.Kind == "Namespace" && o.Name == name {
			if o.State == "done" {
				return ""
			}
			return "it is " + string(o.State)
		}
	}
	return "it is not known"
}

// chaos does something again and again until the returned function is called, which waits for it.
func chaos(every time.Duration, do func(turn int)) (stop func()) {
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for turn := 0; ; turn++ {
			select {
			case <-done:
				return
			case <-ticker.C:
				do(turn)
			}
		}
	})
	return sync.OnceFunc(func() {
		close(done)
		running.Wait()
	})
}
