// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// busy is a rig in which the creation of a pod's port is under way and stays so.
func busy(t *testing.T, rule simcloud.Rule) (*rig, *raven) {
	t.Helper()
	return busyIn(newRig(t), rule)
}

func busyIn(r *rig, rule simcloud.Rule) (*rig, *raven) {
	t := r.t
	t.Helper()
	p := r.start()
	r.createNamespace("shop")
	r.awaitRest(p)
	rule.Method, rule.Kind = http.MethodPost, "port"
	if _, err := r.cloud.AddFault(rule); err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{}, 100)
	r.cloud.OnRequest(func(_ int, q simcloud.Request) {
		if q.Kind == "port" && q.Method == http.MethodPost && !q.After {
			started <- struct{}{}
		}
	})
	r.createPod("shop", "a")
	if rule.Action == simcloud.ActionTimeout {
		<-started // there is no hook for a request that is never applied, and the fault acts after the first one
	}
	r.awaitFaults(1)
	return r, p
}

// awaitFaults waits until requests have met faults so often.
func (r *rig) awaitFaults(n int) {
	r.t.Helper()
	must(r.t, "a create that is under way", func() string {
		if acted := r.acted(); acted < n {
			return fmt.Sprintf("faults have acted %d times, not %d", acted, n)
		}
		return ""
	})
}

func (r *rig) acted() int {
	n := 0
	for _, f := range r.cloud.Faults() {
		n += f.Acted
	}
	return n
}

func TestStopLetsWorkInFlightFinish(t *testing.T) {
	t.Parallel()
	r, p := busy(t, simcloud.Rule{Action: simcloud.ActionDelay, Delay: simcloud.Duration(2 * time.Second), Times: 1})
	p.signal(syscall.SIGTERM)
	if status := p.end(); status != 0 {
		t.Errorf("the exit status is %d, wanted 0", status)
	}
	if n := len(r.portIDs()); n != 1 {
		t.Errorf("there are %d ports, wanted the one that was under way", n)
	}
	r.cloud.ResetLog()
	again := r.start()
	must(t, "rest", func() string { return r.amiss(again) })
	if made := r.cloud.Stats().Counts["POST port"]; made != 0 {
		t.Errorf("the port was created again: %d times", made)
	}
	again.stop()
}

func TestStopIsBounded(t *testing.T) {
	t.Parallel()
	const grace = 3
	cases := []struct {
		name  string
		start func(*testing.T) (*rig, *raven)
		stop  func(*raven)
		// status is 1 where raven had to cut something off.
		status int
	}{
		{
			"with a request that is never answered",
			func(t *testing.T) (*rig, *raven) { return busy(t, simcloud.Rule{Action: simcloud.ActionTimeout}) },
			func(*raven) {},
			0,
		},
		{
			"with drivers that are stopped",
			func(t *testing.T) (*rig, *raven) {
				return busy(t, simcloud.Rule{Action: simcloud.ActionDelay, Delay: simcloud.Duration(500 * time.Millisecond)})
			},
			func(p *raven) {
				p.killDriver("pod", syscall.SIGSTOP)
				p.killDriver("namespace", syscall.SIGSTOP)
			},
			1,
		},
		{
			"with drivers that are dead",
			func(t *testing.T) (*rig, *raven) {
				return busy(t, simcloud.Rule{Action: simcloud.ActionDelay, Delay: simcloud.Duration(500 * time.Millisecond)})
			},
			func(p *raven) {
				p.killDriver("pod", syscall.SIGKILL)
				p.killDriver("namespace", syscall.SIGKILL)
			},
			0,
		},
	}
	each(t, indices(cases), func(i int) string { return cases[i].name }, func(t *testing.T, i int) {
		r, p := cases[i].start(t)
		// The bound is taken over by a reload, which is not what is stopped here: it starts anew.
		p.Kill()
		r.conf.Set("DEFAULT", "graceful_shutdown_timeout", grace)
		p = r.start()
		p.logged(`taken over`)
		must(t, "its drivers", p.settledDrivers)
		before := r.acted()
		r.createPod("shop", "b")
		r.awaitFaults(before + 1)
		cases[i].stop(p)
		began := time.Now()
		p.signal(syscall.SIGTERM)
		// What does not end in time is never answered: without a bound there would be no end.
		status := p.end()
		t.Logf("it took %s, exit status %d", time.Since(began).Round(time.Millisecond), status)
		if want := cases[i].status; status != want {
			t.Errorf("the exit status is %d, wanted %d", status, want)
		}
		within(t, "the end of the drivers", func() string { return strings.Join(processesBelow(r.dir), ", ") })
	})
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		first, second syscall.Signal
		status        int
	}{
		{"SIGTERM twice", syscall.SIGTERM, syscall.SIGTERM, 143},
		{"SIGINT twice", syscall.SIGINT, syscall.SIGINT, 130},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.conf.Set("DEFAULT", "graceful_shutdown_timeout", 3600) // so that nothing else ends it while the test waits
			r, p := busyIn(r, simcloud.Rule{Action: simcloud.ActionTimeout})
			p.killDriver("pod", syscall.SIGSTOP)
			p.signal(c.first)
			p.logged(`stopping.*signal`)
			p.signal(c.second)
			if status := p.end(); status != c.status {
				t.Errorf("the exit status is %d, wanted %d", status, c.status)
			}
			within(t, "the end of the drivers", func() string { return strings.Join(processesBelow(r.dir), ", ") })
		})
	}
}

// SIGHUP reloads at a terminal as it does without one, and so does the hang-up of that terminal: nothing is lost with
// it.
func TestReloadAtATerminal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	master, slave := terminal(t)
	r.tty = slave
	p := r.start()
	r.createNamespace("shop")
	r.awaitRest(p)
	r.conf.Set("DEFAULT", "graceful_shutdown_timeout", 9)
	r.configure()
	p.signal(syscall.SIGHUP)
	p.logged(`configuration changed.*graceful_shutdown_timeout: 1m0s -> 9s`)
	must(t, "rest", func() string { return r.amiss(p) })
	r.conf.Set("DEFAULT", "graceful_shutdown_timeout", 8)
	r.configure()
	if err := errors.Join(slave.Close(), master.Close()); err != nil {
		t.Fatal(err)
	}
	p.logged(`configuration changed.*graceful_shutdown_timeout: 9s -> 8s`)
	r.createPod("shop", "a")
	must(t, "the port of a pod", func() string { return r.amiss(p) })
	p.stop()
}

// terminal makes a pseudo-terminal.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slave.Close() })
	return master, slave
}

// A signal that comes while the configuration is still being read is not lost, and does nothing else than it does
// later.
func TestASignalThatComesEarly(t *testing.T) {
	t.Parallel()
	early := func(t *testing.T) (*rig, *raven) {
		t.Helper()
		r := newRig(t)
		// A driver that is asked for its options, and answers when there is a file.
		script := fmt.Sprintf("#!/bin/sh\n: > %[1]s/asked\nwhile [ ! -e %[1]s/answer ]; do sleep 0.05; done\nexec "+
			"%[1]s/bin/raven-driver-pod\n", r.dir)
		if err := os.WriteFile(r.path("slow"), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		r.conf.Set("driver:pod", "command", r.path("slow")).Set("raven", "driver_sandbox", "off") // a script needs a shell
		p := r.start()
		must(t, "a driver that is asked", func() string {
			if _, err := os.Stat(r.path("asked")); err != nil {
				return err.Error()
			}
			return ""
		})
		return r, p
	}
	t.Run("SIGTERM", func(t *testing.T) {
		_, p := early(t)
		p.signal(syscall.SIGTERM)
		if status := p.end(); status != 0 {
			t.Errorf("the exit status is %d, wanted 0", status)
		}
	})
	t.Run("SIGHUP", func(t *testing.T) {
		r, p := early(t)
		p.signal(syscall.SIGHUP)
		r.write("answer", "")
		p.logged(`started services`)
		p.logged(`reloading`)
		must(t, "rest", func() string { return r.amiss(p) })
		p.stop()
	})
}

func TestReloadOfABadFileKeepsTheOldConfiguration(t *testing.T) {
	t.Parallel()
	bad := map[string]struct {
		make func(*rig)
		says string
	}{
		"a bad value": {
			func(r *rig) { r.conf.Set("raven", "sweep_interval", "often") }, `kuryr\.conf:\d+: \[raven\] sweep_interval`,
		},
		"no file": {func(r *rig) { _ = os.Remove(r.path("kuryr.conf")) }, `kuryr\.conf.*no such file`},
		"an unknown driver": {
			func(r *rig) { r.conf.Set("raven", "drivers", "namespace,pod,nosuch") }, `driver\(nosuch\): not found`,
		},
		"a refused option": {
			func(r *rig) { r.conf.Set("namespace_subnet", "topology", "round") }, `\[namespace_subnet\] topology`,
		},
		"a wrong password": {
			func(r *rig) { r.conf.Set("neutron", "password", "wrong-"+password) }, `logging in at .* 401`,
		},
		"an unreachable kube": {func(r *rig) { r.conf.Set("kubernetes", "kubeconfig", r.path("nowhere")) }, `nowhere`},
	}
	var names []string
	for name := range bad {
		names = append(names, name)
	}
	each(t, names, func(name string) string { return name }, func(t *testing.T, name string) {
		r := newRig(t)
		p := r.start()
		r.createNamespace("shop")
		r.createPod("shop", "a")
		r.awaitRest(p)
		r.cloud.ResetLog()
		good := r.conf.String()
		bad[name].make(r)
		if name != "no file" {
			r.configure()
		}
		p.signal(syscall.SIGHUP)
		p.logged(`ERROR.*` + bad[name].says)
		r.createPod("shop", "b")
		must(t, "the old configuration at work", func() string { return r.amiss(p) })
		if items := r.cloud.Stats().Items; items["POST port"] != 1 || r.deletions() != "map[]" {
			t.Errorf("there were %d ports made, wanted the one for the new pod; deletions %s", items["POST port"], r.deletions())
		}
		const failed = "degraded  raven: the last reload failed, what was configured before is in force: "
		if page := p.page("/readyz"); !strings.Contains(page, failed) || strings.Contains(page, password) {
			t.Errorf("/readyz does not say that the reload failed, or why:\n%s", page)
		}
		r.write("kuryr.conf", good)
		p.signal(syscall.SIGHUP)
		within(t, "the end of that", func() string {
			if page := p.page("/readyz"); strings.Contains(page, "reload") || !strings.Contains(page, "ready     raven\n") {
				return page
			}
			return ""
		})
		if strings.Contains(p.log.String(), password) {
			t.Error("the password is in the log")
		}
		p.stop()
	})
}

func TestReloadTakesAChangedConfigurationOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.start()
	r.createNamespace("shop")
	r.createPod("shop", "a")
	r.awaitRest(p)
	id, pid := r.portOf("shop", "a"), p.plugin("pod")
	group := r.operatorGroup("web")
	r.conf.Set("neutron_defaults", "pod_security_groups", "web")
	r.configure()
	p.signal(syscall.SIGHUP)
	p.logged(`configuration changed.*pod_security_groups`)
	must(t, "the other security group on the port", func() string {
		for _, port := range r.cloud.Ports() {
			if groups, _ := port["security_groups"].([]any); port["id"] == id && len(groups) == 1 && groups[0] == group {
				return ""
			}
		}
		return "it is not there"
	})
	must(t, "rest", func() string { return r.amiss(p) })
	if r.portOf("shop", "a") != id {
		t.Error("the pod got another port")
	}
	after := p.plugin("pod")
	if after == pid || after == 0 {
		t.Errorf("the driver's process is %d, before it was %d", after, pid)
	}

	r.conf.Set("DEFAULT", "log_level", "WARNING")
	r.configure()
	p.signal(syscall.SIGHUP)
	must(t, "the third process of the driver", func() string {
		if p.plugin("pod") != after && p.plugin("pod") != 0 {
			return ""
		}
		return "it is the second one, or none"
	})
	r.createPod("shop", "quiet")
	must(t, "the port of another pod", func() string { return r.amiss(p) })
	if strings.Contains(p.log.String(), "shop/quiet") {
		t.Error("the log still shows what is less than a warning")
	}
	p.signal(syscall.SIGHUP) // nothing has changed
	time.Sleep(200 * time.Millisecond)
	must(t, "rest after another reload", func() string { return r.amiss(p) })
	p.stop()
}
