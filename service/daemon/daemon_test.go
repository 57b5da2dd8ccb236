// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/health"
	"github.com/kuryr/raven/service/host"
	"github.com/kuryr/raven/service/state"
	simkube "github.com/kuryr/raven/test/sim/kube"
)

// A daemon makes what the cluster asks for, is ready when every object was answered, and leaves no process behind when
// it is stopped; what it made stays.
func TestStartAndStop(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(configmaps, "a")
	r.create(serviceaccounts, "a")
	p := r.start(nil)
	p.awaitReady()
	r.awaitNetworks("configmaps-a", "serviceaccounts-a")
	var report Report
	r.await("two reconciled objects", func() string {
		if report = p.report(); report.Counts[state.Done] != 2 {
			return fmt.Sprintf("it reports %+v", report)
		}
		return ""
	})
	if !report.Ready || report.Version != "test" {
		t.Errorf("it reports %+v", report)
	}
	pids := map[string]int{}
	for _, d := range report.Drivers {
		pids[d.Name] = d.PID
		if d.State != string(host.Ready) || d.PID == 0 || len(d.Watches) != 1 || !d.Watches[0].Synced ||
			d.Watches[0].Objects != 1 {
			t.Errorf("driver %s: %+v", d.Name, d)
		}
	}
	p.stop()
	for name, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("the process of driver %s: %v", name, err)
		}
	}
	r.awaitNetworks("configmaps-a", "serviceaccounts-a")
	if report := p.report(); report.Ready || len(report.Drivers) > 0 {
		t.Errorf("stopped, and it reports %+v", report)
	}
}

// A stop lets a create that is under way end, and what is known of it is not lost.
func TestStopWaitsForWorkInFlight(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.start(nil)
	p.awaitReady()
	inFlight, release := r.holdCreate()
	r.create(configmaps, "a")
	<-inFlight
	p.signals <- syscall.SIGTERM
	p.awaitComponent("raven", health.NotReady, "stopping")
	release()
	p.wait()
	if got := r.networks(); !slices.Equal(got, []string{"configmaps-a"}) {
		t.Errorf("there are networks %v", got)
	}
	again := r.start(nil)
	again.awaitReady()
	r.awaitNetworks("configmaps-a")
}

// A reload takes changed options over, by the drivers too; a bad file changes nothing.
func TestReload(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(configmaps, "a")
	p := r.start(nil)
	p.awaitReady()
	r.awaitNetworks("configmaps-a")

	r.set("raven", "concurrency", "none")
	p.signals <- syscall.SIGHUP
	p.awaitComponent("raven", health.Degraded, "concurrency")
	r.create(configmaps, "b")
	r.awaitNetworks("configmaps-a", "configmaps-b")

	r.set("raven", "concurrency", "8")
	r.set(configmaps, "prefix", "other-")
	p.signals <- syscall.SIGHUP
	r.awaitNetworks("other-a", "other-b")
	p.awaitReady()
	if n := p.values().Int(OptionGroup, "concurrency"); n != 8 {
		t.Errorf("concurrency is %d", n)
	}

	r.set("raven", "drivers", serviceaccounts)
	p.signals <- syscall.SIGHUP
	r.await("one driver", func() string {
		if list := p.report().Drivers; len(list) != 1 || list[0].Name != serviceaccounts {
			return "there are others"
		}
		return ""
	})
	r.awaitNetworks("other-a", "other-b") // what a disabled driver made stays

	told := func(want string) {
		t.Helper()
		r.await("what a driver is told: "+want, func() string {
			if got := p.of(serviceaccounts).Version; got != want {
				return "it is " + got
			}
			return ""
		})
	}
	told("beside " + serviceaccounts)
	r.set("raven", "drivers", serviceaccounts+","+configmaps)
	p.signals <- syscall.SIGHUP
	told("beside " + configmaps + " and " + serviceaccounts) // it was launched again, though nothing of its own is new
	p.awaitReady()
}

// A Watcher that is stopped changes nothing and holds up no other one; when it is started again it catches up.
func TestWatcherStopsAndStartsOnItsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(configmaps, "a")
	r.create(serviceaccounts, "a")
	p := r.start(nil)
	p.awaitReady()
	r.awaitNetworks("configmaps-a", "serviceaccounts-a")
	w := p.watcher(configmaps)
	pid := p.of(configmaps).PID
	if err := w.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("its process: %v", err)
	}
	p.awaitComponent("driver "+configmaps, health.Degraded, "its process is stopped")
	if got := p.of(configmaps); got.State != string(host.Stopped) || got.PID != 0 || len(got.Watches) != 0 {
		t.Errorf("stopped, it reports %+v", got)
	}
	r.remove(configmaps, "a")
	r.create(configmaps, "b")
	r.create(serviceaccounts, "b")
	r.remove(serviceaccounts, "a")
	r.awaitNetworks("configmaps-a", "serviceaccounts-b")
	if err := w.Stop(t.Context()); err != nil {
		t.Errorf("stopped again: %v", err)
	}

	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.awaitNetworks("configmaps-b", "serviceaccounts-b")
	p.awaitReady()
	if got := p.of(configmaps); got.State != string(host.Ready) || got.PID == pid || got.PID == 0 ||
		len(got.Watches) != 1 {
		t.Errorf("started, it reports %+v", got)
	}
	if err := w.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.create(configmaps, "c")
	r.awaitNetworks("configmaps-b", "configmaps-c", "serviceaccounts-b")
}

// A driver whose process is lost is replaced, and what changed meanwhile is not missed.
func TestWatcherWhoseProcessIsLost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.start(nil)
	p.awaitReady()
	pid := p.of(configmaps).PID
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.create(configmaps, "a")
	r.awaitNetworks("configmaps-a")
	if got := p.of(configmaps); got.Restarts != 1 || got.PID == pid {
		t.Errorf("it reports %+v", got)
	}
}

// A driver that does not start keeps no other from its work, and is taken in when it starts.
func TestDaemonWithADriverThatDoesNotStart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := r.script("driver", "echo no database today >&2; exit 3")
	r.set(DriverGroup(configmaps), "command", path)
	r.set(DriverGroup(configmaps), "allow_read", namer)
	r.create(configmaps, "a")
	r.create(serviceaccounts, "a")
	p := r.start(nil)
	p.awaitComponent("driver "+serviceaccounts, health.Ready, "")
	r.awaitNetworks("serviceaccounts-a")
	p.awaitComponent("driver "+configmaps, health.Degraded, "no database today")
	if got := p.of(configmaps); got.State != string(host.Quarantined) ||
		!strings.Contains(got.Problem, "no database today") {
		t.Errorf("it reports %+v", got)
	}
	folder := p.values().String(OptionGroup, "runtime_dir")
	if _, err := OrderRestart(t.Context(), folder, configmaps); err == nil ||
		!strings.Contains(err.Error(), "no database today") {
		t.Errorf("a restart: %v", err)
	}
	r.script("driver", "exec "+serving(configmaps))
	if _, err := OrderRestart(t.Context(), folder, configmaps); err == nil ||
		!strings.Contains(err.Error(), "it starts now") {
		t.Errorf("a restart of what starts now: %v", err)
	}
	r.awaitNetworks("configmaps-a", "serviceaccounts-a")
	p.awaitReady()
	if report, err := OrderRestart(t.Context(), folder, configmaps); err != nil || report.PID != p.of(configmaps).PID {
		t.Errorf("a restart of what runs: %+v, %v", report, err)
	}
}

// Of two daemons one works; when it stops the other takes over, without making anything again.
func TestStandbyLeads(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.set("kubernetes", "lease_duration", "10")
	r.set("kubernetes", "lease_renew_deadline", "8")
	r.set("kubernetes", "lease_retry_period", "300ms")
	r.set("neutron", "timeout", "5")
	own := func(folder string) map[config.Name][]string {
		return map[config.Name][]string{{Group: OptionGroup, Name: "runtime_dir"}: {r.dir + "/" + folder}}
	}
	r.create(configmaps, "a")
	leader := r.start(own("one"))
	leader.awaitComponent(leaderComponent, health.Ready, "this daemon leads")
	r.awaitNetworks("configmaps-a")
	other := r.start(own("two"))
	other.awaitComponent(leaderComponent, health.Ready, "standing by")
	other.awaitReady()
	if report := other.report(); report.Leader == nil || report.Leader.Leading || len(report.Objects) > 0 {
		t.Errorf("standing by, it reports %+v", report)
	}
	first := r.cloud.Networks()
	r.create(configmaps, "b")
	r.awaitNetworks("configmaps-a", "configmaps-b")

	leader.stop()
	other.awaitComponent(leaderComponent, health.Ready, "this daemon leads")
	r.create(configmaps, "c")
	r.awaitNetworks("configmaps-a", "configmaps-b", "configmaps-c")
	for _, n := range first {
		if !slices.ContainsFunc(r.cloud.Networks(), func(now map[string]any) bool { return now["id"] == n["id"] }) {
			t.Errorf("network %v was made again", n["name"])
		}
	}
	if report := other.report(); report.Leader == nil || !report.Leader.Leading {
		t.Errorf("leading, it reports %+v", report.Leader)
	}
}

// A daemon whose account may not have the Lease changes nothing and is not ready, and says which permission it needs.
func TestForbiddenLease(t *testing.T) {
	r := newRig(t)
	r.set("kubernetes", "lease_retry_period", "100ms")
	r.kube.SetDeny(simkube.Deny{Groups: []string{"coordination.k8s.io"}})
	r.create(configmaps, "a")
	p := r.start(nil)
	p.awaitComponent("driver "+configmaps, health.Ready, "")
	p.awaitComponent(leaderComponent, health.NotReady, "let this account get, create and update "+
		"leases.coordination.k8s.io in namespace kube-system, as `raven driver rbac` prints")
	if have := r.networks(); len(have) > 0 {
		t.Errorf("without the Lease it made networks %v", have)
	}
	r.kube.SetDeny()
	p.awaitComponent(leaderComponent, health.Ready, "this daemon leads")
	r.awaitNetworks("configmaps-a")
}

// What a daemon needs is refused where it is missing.
func TestConfigIsValidated(t *testing.T) {
	t.Parallel()
	whole := Config{
		Loader:  Loader{Sources: func() (config.Sources, error) { return config.Sources{}, nil }},
		Signals: make(chan os.Signal, 1), Stderr: io.Discard,
	}
	if err := whole.Validate(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Config){
		"no sources":           func(c *Config) { c.Loader.Sources = nil },
		"no signals":           func(c *Config) { c.Signals = nil },
		"signals may get lost": func(c *Config) { c.Signals = make(chan os.Signal) },
		"nowhere to log to":    func(c *Config) { c.Stderr = nil },
	} {
		c := whole
		spoil(&c)
		if _, err := New(t.Context(), c); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
}
