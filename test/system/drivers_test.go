// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/kuryr/raven/test/harness"
)

// A driver is replaced while all goes on: nothing is written, and no watch is made anew.
func TestDriverIsRestartedInPlace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.start()
	r.createNamespace("shop")
	for _, name := range []string{"a", "b", "c"} {
		r.createPod("shop", name)
	}
	r.awaitRest(p)
	namespace, pod := p.plugin("namespace"), p.plugin("pod")
	r.cloud.ResetLog()
	r.kube.ResetLog()

	r.install("raven-driver-pod", "bin/raven-driver-pod")
	got := r.raven("driver", "restart", "pod", "--config-file", r.configure())
	if got.status != 0 || !strings.Contains(got.out, "driver pod was restarted") {
		t.Fatalf("status %d: %s%s", got.status, got.out, got.errors)
	}
	must(t, "rest", func() string { return p.settled() })
	if now := p.plugin("pod"); now == pod || now == 0 {
		t.Errorf("the driver's process was %d and is %d", pod, now)
	}
	if now := p.plugin("namespace"); now != namespace {
		t.Errorf("the other driver's process was %d and is %d", namespace, now)
	}
	if writes := r.cloud.Stats().Writes; writes > 0 {
		t.Errorf("there were %d writes to the cloud", writes)
	}
	for _, request := range r.kubeRequests() {
		t.Errorf("there was a request to Kubernetes: %+v", request)
	}
	r.createPod("shop", "late")
	must(t, "the new one at work", func() string { return r.amiss(p) })

	pod = p.plugin("pod")
	r.cloud.ResetLog()
	r.kube.ResetLog()
	r.copy("bin/raven-driver-pod", "bin/raven-driver-pod") // another file: SIGHUP takes it in place as well
	p.signal(syscall.SIGHUP)
	must(t, "the new process", func() string {
		if now := p.plugin("pod"); now == pod || now == 0 {
			return fmt.Sprintf("the driver's process was %d and is %d", pod, now)
		}
		return ""
	})
	must(t, "rest", func() string { return p.settled() })
	if now := p.plugin("namespace"); now != namespace {
		t.Errorf("SIGHUP: the other driver's process was %d and is %d", namespace, now)
	}
	if writes := r.cloud.Stats().Writes; writes > 0 {
		t.Errorf("SIGHUP: there were %d writes to the cloud", writes)
	}
	for _, request := range r.kubeRequests() {
		t.Errorf("SIGHUP: there was a request to Kubernetes: %+v", request)
	}

	pod = p.plugin("pod")
	r.write("bin/raven-driver-pod.new", "no program")
	if err := os.Chmod(r.path("bin/raven-driver-pod.new"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(r.path("bin/raven-driver-pod.new"), r.path("bin/raven-driver-pod")); err != nil {
		t.Fatal(err)
	}
	got = r.raven("driver", "restart", "pod", "--config-file", r.configure())
	if got.status != 1 || !strings.Contains(got.errors, "exec format error") {
		t.Errorf("a broken program: status %d: %s%s", got.status, got.out, got.errors)
	}
	if now := p.plugin("pod"); now != pod {
		t.Errorf("the working process was %d and is %d", pod, now)
	}
	got = r.raven("driver", "restart", "nosuch", "--config-file", r.configure())
	if got.status != 1 || !strings.Contains(got.errors, "is not enabled") {
		t.Errorf("a driver that is not there: status %d: %s", got.status, got.errors)
	}
	p.stop()
}

func TestDriverInfoShowsWhatItTakes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	got := r.raven("driver", "info", "pod", "--config-file", r.configure(), "-o", "json")
	var info struct {
		Name, SHA256 string
		Watches      []struct{ Resource string }
		Rules        []struct{ Verbs []string }
		Sandbox      []struct {
			Name, Detail string
			Active       bool
		}
	}
	if err := json.Unmarshal([]byte(got.out), &info); err != nil || got.status != 0 {
		t.Fatalf("status %d, %v: %s%s", got.status, err, got.out, got.errors)
	}
	if info.Name != "pod" || len(info.SHA256) != 64 || len(info.Watches) == 0 || len(info.Rules) == 0 ||
		len(info.Sandbox) < 5 {
		t.Errorf("%+v", info)
	}
	for _, m := range info.Sandbox {
		t.Logf("%s: %t: %s", m.Name, m.Active, m.Detail)
	}
	r.conf.Set("driver:pod", "sha256", info.SHA256)
	if got := r.raven("driver", "list", "--config-file", r.configure()); got.status != 0 {
		t.Errorf("pinned by what info says: %s", got.errors)
	}
	r.conf.Set("driver:pod", "sha256", strings.Repeat("0", 64))
	if got := r.raven("driver", "list", "--config-file", r.configure()); got.status != 1 ||
		!strings.Contains(got.errors, "is not the program that was pinned") {
		t.Errorf("another digest: status %d, %s", got.status, got.errors)
	}
	r.conf.Set("driver:pod", "sha256", info.SHA256)
	for option, c := range map[string]struct{ value, says string }{
		"allow_kinds":   {"network", "which [driver:pod] allow_kinds does not name"},
		"allow_watches": {"services", "it watches pods, which [driver:pod] allow_watches does not name"},
	} {
		r.conf.Set("driver:pod", option, c.value)
		run := r.start()
		if status := run.end(); status == 0 || !strings.Contains(run.log.String(), c.says) {
			t.Errorf("[driver:pod] %s = %s: status %d, %s", option, c.value, status, run.tail())
		}
		delete(r.conf["driver:pod"], option)
	}
	if err := os.Chmod(r.path("bin"), 0o777); err != nil {
		t.Fatal(err)
	}
	if got := r.raven("driver", "list", "--config-file", r.configure()); got.status != 1 ||
		!strings.Contains(got.errors, "everybody may write to it") {
		t.Errorf("a folder for all: status %d, %s", got.status, got.errors)
	}
}

// A driver that is lost again and again is left alone, and people are told. The others go on.
func TestDriverThatCrashesIsQuarantined(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.conf.Set("raven", "driver_max_losses", 3)
	p := r.start()
	r.createNamespace("shop")
	r.createPod("shop", "a")
	r.awaitRest(p)
	before := r.dump()

	r.write("bin/raven-driver-pod.new", "#!/bin/sh\nexit 3\n")
	if err := os.Chmod(r.path("bin/raven-driver-pod.new"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(r.path("bin/raven-driver-pod.new"), r.path("bin/raven-driver-pod")); err != nil {
		t.Fatal(err)
	}
	p.killDriver("pod", syscall.SIGKILL)
	must(t, "the quarantine", func() string {
		if got := p.settledDrivers(); got != "driver pod is quarantined" {
			return "all run, or: " + got
		}
		return ""
	})
	must(t, "degraded readiness", func() string {
		if page := p.page("/readyz"); !strings.Contains(page, "degraded") ||
			!strings.Contains(page, "its process is quarantined") {
			return page
		}
		return ""
	})
	must(t, "the Event on namespace kube-system", func() string {
		for _, event := range r.events() {
			if strings.HasPrefix(event, "kube-system DriverQuarantined: driver pod is lost again and again") {
				return ""
			}
		}
		return fmt.Sprint(r.events())
	})
	if now := r.dump(); now != before {
		t.Errorf("the cloud has changed:\n%s", harness.LineDiff(before, now))
	}
	r.createNamespace("late")
	must(t, "the other driver's work", func() string {
		s, err := p.status()
		if err != nil {
			return err.Error()
		}
		for _, o := range s.Objects {
			if o.Kind == "Namespace" && o.Name == "late" && o.State == "done" {
				return ""
			}
		}
		return "namespace late is not done"
	})
	r.createPod("late", "b")
	got := r.raven("driver", "restart", "pod", "--config-file", r.configure())
	if got.status != 1 ||
		p.settledDrivers() != "driver pod is quarantined" && p.settledDrivers() != "driver pod is restarting" {
		t.Errorf("restarted while it is broken: status %d, %s: %s%s", got.status, p.settledDrivers(), got.out, got.errors)
	}
	r.install("raven-driver-pod", "bin/raven-driver-pod")
	if got := r.raven("driver", "restart", "pod", "--config-file", r.configure()); got.status != 0 {
		t.Errorf("restarted: status %d: %s%s", got.status, got.out, got.errors)
	}
	must(t, "all at work", func() string { return p.settledDrivers() + r.amiss(p) })
	must(t, "readiness", func() string {
		if page := p.page("/readyz"); strings.Contains(page, "degraded") {
			return page
		}
		return ""
	})
	p.stop()
}

// An object that ends its driver again and again is kept from it, and people are told; the driver serves the others.
func TestObjectThatEndsItsDriverIsIsolated(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.install("raven-driver-hostile", "plugins/raven-driver-hostile")
	r.conf.Set("raven", "drivers", "hostile")
	p := r.start()
	r.createNamespace("shop")
	r.createPod("shop", "nothing") // what it does is its name
	done := func(name string) func() string {
		return func() string {
			s, err := p.status()
			if err != nil {
				return err.Error()
			}
			for _, o := range s.Objects {
				if o.Name == name && o.State == "done" {
					return ""
				}
			}
			return "pod " + name + " is not done"
		}
	}
	must(t, "what is harmless", done("nothing"))
	r.createPod("shop", "exit")
	must(t, "isolation", func() string {
		s, err := p.status()
		if err != nil {
			return err.Error()
		}
		for _, o := range s.Objects {
			if o.Name == "exit" && o.State == "terminal" &&
				strings.Contains(fmt.Sprint(o.Reasons), "the driver ended or hung 3 times with it") {
				return ""
			}
		}
		return fmt.Sprintf("%+v", s.Objects)
	})
	must(t, "the Event on it", func() string {
		for _, event := range r.events() {
			if strings.HasPrefix(event, "exit RavenCannotApply: ") && strings.Contains(event, "isolated") {
				return ""
			}
		}
		return fmt.Sprint(r.events())
	})
	must(t, "degraded readiness", func() string {
		if page := p.page("/readyz"); !strings.Contains(page, "1 objects ended or hung it") {
			return page
		}
		return ""
	})
	r.createPod("shop", "become-root")
	must(t, "an object that comes later", done("become-root"))
	must(t, "the one from before", done("nothing"))
	if got := p.settledDrivers(); got != "" {
		t.Error(got)
	}
	r.deletePod("shop", "exit")
	must(t, "readiness without it", func() string {
		s, err := p.status()
		if err != nil {
			return err.Error()
		}
		for _, o := range s.Objects {
			if o.Name == "exit" {
				return "pod exit is still there"
			}
		}
		return ""
	})
	p.stop()
}

// What a driver made that is left out on a reload stays as it is, until its objects go, or it is cleaned up by name;
// enabled again, it takes all over.
func TestResourcesOfADisabledDriverStay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.conf.Set("raven", "drift_check_interval", 1)
	p := r.start()
	r.createNamespace("shop")
	for _, name := range []string{"a", "b", "c"} {
		r.createPod("shop", name)
	}
	r.awaitRest(p)
	ports := len(r.portIDs())
	if got := r.raven("cleanup", "--config-file", r.configure(), "--driver", "pod", "--yes"); got.status != 1 ||
		!strings.Contains(got.errors, "is enabled") {
		t.Errorf("of an enabled driver: status %d: %s", got.status, got.errors)
	}
	enable := func(names string, count int) {
		r.conf.Set("raven", "drivers", names)
		r.configure()
		p.signal(syscall.SIGHUP)
		must(t, "the reload", func() string {
			if s, err := p.status(); err != nil || len(s.Drivers) != count {
				return "drivers are as before"
			}
			return ""
		})
		must(t, "rest", p.settled)
	}
	enable("namespace", 1)
	if now := len(r.portIDs()); now != ports || ports < 3 {
		t.Errorf("of %d ports %d are left", ports, now)
	}
	if got := r.raven("status", "--config-file", r.configure(), "--address", p.address()); !strings.Contains(got.out,
		"driver pod is not enabled: its 3 resources for 3 objects") {
		t.Errorf("status does not tell: %s%s", got.out, got.errors)
	}
	r.cloud.ResetLog()
	r.deletePod("shop", "c")
	must(t, "the end of what the driver made for an object that is gone", func() string {
		if now := len(r.portIDs()); now != ports-1 {
			return fmt.Sprintf("there are %d ports, and were %d", now, ports)
		}
		return ""
	})
	ports--
	if writes := r.cloud.Stats().Writes; writes != 1 {
		t.Errorf("there were %d writes for one port", writes)
	}
	r.cloud.ResetLog()
	enable("namespace,pod", 2)
	if writes := r.cloud.Stats().Writes; writes != 0 {
		t.Errorf("there were %d writes when the driver was enabled again", writes)
	}
	enable("namespace", 1)
	if c := r.cleanup(2, "--driver", "pod"); len(c.Remove) != 2 {
		t.Errorf("it would remove %+v", c.Remove)
	}
	if c := r.cleanup(0, "--driver", "pod", "--yes"); c.Removed != 2 || len(c.Left) > 0 {
		t.Errorf("%+v", c)
	}
	if now := len(r.portIDs()); now != ports-2 {
		t.Errorf("of %d ports %d are left", ports, now)
	}
	p.stop()
}

// A driver that was started by hand, under a debugger for example, is attached to where the operator allows it.
func TestDriverIsAttachedTo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	driver := exec.Command(r.path("bin/raven-driver-pod"), "--debug")
	driver.Stderr = os.Stderr
	out, err := driver.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := driver.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = driver.Process.Signal(syscall.SIGINT)
		_ = driver.Wait()
	}()
	socket := ""
	for lines := bufio.NewScanner(out); socket == "" && lines.Scan(); {
		_, socket, _ = strings.Cut(lines.Text(), "attach = /")
	}
	r.conf.Set("driver:pod", "attach", "/"+socket)
	if got := r.raven("driver", "list", "--config-file", r.configure()); got.status != 1 ||
		!strings.Contains(got.errors, "allow_attach") {
		t.Errorf("without consent: status %d: %s%s", got.status, got.out, got.errors)
	}
	r.conf.Set("raven", "allow_attach", true)
	p := r.start()
	r.createNamespace("shop")
	r.createPod("shop", "a")
	r.awaitRest(p)
	if pid := p.plugin("pod"); pid != 0 {
		t.Errorf("a driver was started: %d", pid)
	}
	p.stop()
	if err := driver.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the driver was not to be ended: %v", err)
	}
}
