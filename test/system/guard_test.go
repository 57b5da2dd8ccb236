// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// portIDs are the ports of pods in the cloud.
func (r *rig) portIDs() []string {
	var ids []string
	for _, port := range r.cloud.Ports() {
		if port["device_owner"] == "compute:kuryr" {
			ids = append(ids, fmt.Sprint(port["id"]))
		}
	}
	slices.Sort(ids)
	return ids
}

// awaitDriftChecks waits for so many further drift checks, each of which is followed by garbage collection.
func (r *rig) awaitDriftChecks(n int) {
	r.t.Helper()
	lists := func() int { return r.cloud.Stats().Counts["GET network"] }
	before := lists()
	must(r.t, "drift checks", func() string {
		if now := lists(); now <= before+n {
			return fmt.Sprintf("networks were listed %d times, not more than %d", now-before, n)
		}
		return ""
	})
}

// held says whether the mass-deletion guard of the pod driver does not hold.
func (p *raven) held() string {
	s, err := p.status()
	if err != nil {
		return err.Error()
	}
	for _, d := range s.Drivers {
		if d.Name == "pod" {
			if d.Guard == nil || d.Version != "2-empty" {
				return fmt.Sprintf("driver pod %s is not held", d.Version)
			}
			return ""
		}
	}
	return "there is no driver pod"
}

func TestDriverThatWantsNothingAfterAnUpgradeDeletesNothing(t *testing.T) {
	t.Parallel()
	ways := map[string]func(*rig, *raven) *raven{
		"after a restart": func(r *rig, p *raven) *raven {
			p.stop()
			return r.start()
		},
		"after SIGHUP": func(_ *rig, p *raven) *raven {
			p.signal(syscall.SIGHUP)
			return p
		},
		"after the driver crashed": func(r *rig, p *raven) *raven {
			must(r.t, "the driver's process", func() string {
				if p.killDriver("pod", syscall.SIGKILL) {
					return ""
				}
				return "there is none"
			})
			return p
		},
	}
	each(t, []string{"after a restart", "after SIGHUP", "after the driver crashed"}, func(way string) string {
		return way
	},
		func(t *testing.T, way string) {
			r := newRig(t)
			r.conf.Set("raven", "drift_check_interval", 1)
			p := r.start()
			r.createNamespace("shop")
			for i := range 30 {
				r.createPod("shop", fmt.Sprint("p", i))
			}
			r.awaitRest(p)
			ports := r.portIDs()
			r.cloud.ResetLog()

			r.install("emptypod", "bin/raven-driver-pod")
			p = ways[way](r, p)
			must(t, "the guard", p.held)
			r.saysHeld(p)
			r.awaitDriftChecks(3)
			if got := r.portIDs(); !slices.Equal(got, ports) {
				t.Errorf("of %d ports %d are left", len(ports), len(got))
			}
			if writes := r.cloud.Stats().Writes; writes > 0 {
				t.Errorf("there were %d writes to the cloud", writes)
			}

			r.install("raven-driver-pod", "bin/raven-driver-pod")
			p = ways[way](r, p)
			r.createPod("shop", "late")
			must(t, "the good driver at work", func() string { return r.amiss(p) })
			for _, id := range ports {
				if !slices.Contains(r.portIDs(), id) {
					t.Errorf("port %s has not survived", id)
				}
			}
			p.stop()
		})
}

// saysHeld checks that a plan and the status say what is held, and how to let it pass.
func (r *rig) saysHeld(p *raven) {
	r.t.Helper()
	for _, args := range [][]string{{"plan", "--config-file", r.configure()}, {"status", "--address", p.address()}} {
		got := r.raven(args...)
		for _, text := range []string{"held", "would delete 30 resources", "max_replay_deletes"} {
			if !strings.Contains(got.out, text) {
				r.t.Errorf("raven %s does not say %q:\n%s%s", args[0], text, tailOf(got.out), got.errors)
			}
		}
	}
	got := r.raven("plan", "--config-file", r.configure(), "-o", "json")
	var plan struct {
		Delete int `json:"delete"`
		Held   []struct {
			Driver  string `json:"driver"`
			Held    int    `json:"held"`
			Allowed int    `json:"allowed"`
		} `json:"held"`
	}
	if err := json.Unmarshal([]byte(got.out), &plan); err != nil {
		r.t.Errorf("raven plan -o json: %v", err)
	}
	if plan.Delete != 0 || len(plan.Held) != 1 || plan.Held[0].Driver != "pod" || plan.Held[0].Held != 30 ||
		plan.Held[0].Allowed >= 30 {
		r.t.Errorf("raven plan says %+v", plan)
	}
}

func tailOf(text string) string {
	if len(text) > 2000 {
		return "…" + text[len(text)-2000:]
	}
	return text
}
