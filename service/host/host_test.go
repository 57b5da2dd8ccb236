// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/test/harness"
)

func TestTranslateAndStop(t *testing.T) {
	p := launch(t, testConfig(t, "plain"))
	if name := p.Info().Name; name != "subject" {
		t.Errorf("name %q", name)
	}
	if watches := p.Watches(); len(watches) != 1 || watches[0].Name != "pods" {
		t.Errorf("watches %v", watches)
	}
	if text, err := ask(t, p, "stdin", ""); err != nil || text != "0 bytes, <nil>" {
		t.Errorf("standard input: %q, %v", text, err)
	}
	pid := p.Status().PID
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if alive(pid) {
		t.Error("the process lives on")
	}
	if _, err := ask(t, p, "x", ""); !errors.Is(err, ErrUnavailable) {
		t.Errorf("after Stop: %v", err)
	}
	if state := p.Status().State; state != Stopped {
		t.Errorf("state %s", state)
	}
}

func pidText(p *Plugin) string { return strconv.Itoa(p.Status().PID) }

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil && !zombie(pid) }

// zombie tells a process that is dead but not waited for, as orphans may be where nothing reaps them.
func zombie(pid int) bool {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return strings.HasPrefix(rest, "Z")
}

func TestErrorsAreOfOneObject(t *testing.T) {
	p := launch(t, testConfig(t, "plain"))
	var own *Error
	if _, err := ask(t, p, "panic", ""); !errors.As(err, &own) || own.Code != "panic" ||
		!strings.HasPrefix(err.Error(), "driver(subject): ") {
		t.Errorf("panic: %v", err)
	}
	if _, err := ask(t, p, "fine", ""); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if p.Status().Restarts != 0 {
		t.Error("a panic must not end the process")
	}
}

func TestLargeObjectsBothWays(t *testing.T) {
	p := launch(t, testConfig(t, "plain"))
	payload := strings.Repeat("x", 5<<20)
	if text, err := ask(t, p, "large", payload); err != nil || text != payload {
		t.Errorf("%d bytes came back, %v", len(text), err)
	}
}

func TestKilledMidCallRecovers(t *testing.T) {
	config := testConfig(t, "plain")
	var exits, readies atomic.Int32
	config.OnExit = func(err error) {
		exits.Add(1)
		if !strings.Contains(err.Error(), "killed") {
			t.Errorf("reason: %v", err)
		}
	}
	config.OnReady = func() { readies.Add(1) }
	p := launch(t, config)
	if err := p.Configure(t.Context(), drivers.Values{"g": {"watch": "newer"}}); err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	for range 16 { // all of them go to the driver at once
		calls.Go(func() {
			if _, err := ask(t, p, "hang", ""); !errors.Is(err, ErrUnavailable) {
				t.Errorf("in flight: %v", err)
			}
		})
	}
	pid := p.Status().PID
	eventually(t, "calls in flight", func() bool { return inFlight(p) == 16 })
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	calls.Wait()
	eventually(t, "ready again", func() bool { return readies.Load() == 1 })
	if _, err := ask(t, p, "fine", ""); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if watches := p.Watches(); watches[0].Name != "newer" {
		t.Errorf("restarted with other values: %v", watches)
	}
	if status := p.Status(); status.Restarts != 1 || status.PID == pid || exits.Load() != 1 {
		t.Errorf("status %+v, exits %d", status, exits.Load())
	}
}

func inFlight(p *Plugin) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil {
		return -1
	}
	return p.current.client.InFlight()
}

func TestExitIsExplained(t *testing.T) {
	config := testConfig(t, "plain")
	reasons := make(chan error, 1)
	config.OnExit = func(err error) { reasons <- err }
	p := launch(t, config)
	if _, err := ask(t, p, "exit", ""); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if reason := (<-reasons).Error(); !strings.Contains(reason, "status 7") || !strings.Contains(reason, "going down") {
		t.Errorf("reason %q", reason)
	}
}

func TestStoppedProcess(t *testing.T) {
	t.Run("Stop is bounded", func(t *testing.T) {
		p := launch(t, testConfig(t, "plain"))
		pid := p.Status().PID
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if err := p.Stop(t.Context()); err != nil { // without a bound it would not return
			t.Errorf("stopping: %v", err)
		}
		if alive(pid) {
			t.Error("the process is alive")
		}
	})
	t.Run("is noticed and replaced", func(t *testing.T) {
		config := testConfig(t, "plain")
		config.Timeouts.Ping = 2 * time.Second
		p := launch(t, config)
		pid := p.Status().PID
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		eventually(t, "another process", func() bool {
			status := p.Status()
			return status.State == Ready && status.PID != pid
		})
		if _, err := ask(t, p, "fine", ""); err != nil || alive(pid) {
			t.Errorf("afterwards: %v, old one alive %t", err, alive(pid))
		}
	})
	t.Run("an ended context kills at once", func(t *testing.T) {
		config := testConfig(t, "plain")
		config.Timeouts.Drain, config.Timeouts.Kill = time.Hour, time.Hour
		p := launch(t, config)
		if err := syscall.Kill(p.Status().PID, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := p.Stop(ctx); err != nil { // which would take an hour otherwise
			t.Error(err)
		}
	})
}

func TestHangingObjects(t *testing.T) {
	config := testConfig(t, "plain")
	config.Timeouts.Call = 2 * time.Second
	p := launch(t, config)
	for _, name := range []string{"hang", "spin"} {
		if _, err := ask(t, p, name, ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ask(t, p, "fine", ""); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestWhatTheDriverStartedGoesToo(t *testing.T) {
	for _, how := range []string{"stop", "kill"} {
		t.Run(how, func(t *testing.T) {
			p := launch(t, testConfig(t, "plain"))
			text, err := ask(t, p, "child", "")
			if err != nil {
				t.Fatal(err)
			}
			child, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			if how == "stop" {
				err = p.Stop(t.Context())
			} else {
				err = syscall.Kill(p.Status().PID, syscall.SIGKILL)
			}
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "the child is gone", func() bool { return !alive(child) })
		})
	}
}

func TestSignalsToTheDriverAreOurs(t *testing.T) {
	p := launch(t, testConfig(t, "plain"))
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		if err := syscall.Kill(p.Status().PID, signal); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ask(t, p, "fine", ""); err != nil || p.Status().Restarts != 0 {
		t.Errorf("%v, %+v", err, p.Status())
	}
}

func TestKilledHostLeavesNothing(t *testing.T) {
	config := testConfig(t, "plain")
	middle := exec.Command(config.Path, "host:"+config.RuntimeDir) // killed below
	out, err := middle.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	middle.Stderr = os.Stderr
	if err := middle.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 32)
	count, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(line[:count])))
	if err != nil || !alive(pid) {
		t.Fatalf("driver process %d: %v", pid, err)
	}
	if err := middle.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = middle.Wait()
	eventually(t, "the driver is gone", func() bool { return !alive(pid) })
	if left, err := os.ReadDir(config.RuntimeDir); err != nil || len(left) != 1 {
		t.Fatalf("a killed host leaves its folder, which the next one sweeps: %v, %v", left, err)
	}
	next := launch(t, config)
	if left, err := os.ReadDir(config.RuntimeDir); err != nil || len(left) != 1 {
		t.Errorf("not swept: %v, %v", left, err)
	}
	other := launch(t, config)
	if _, err := ask(t, next, "fine", ""); err != nil {
		t.Errorf("sweeping took a living one's folder: %v", err)
	}
	if _, err := ask(t, other, "fine", ""); err != nil {
		t.Error(err)
	}
}

func TestOutputGoesToTheLog(t *testing.T) {
	var log harness.Buffer
	config := testConfig(t, "noisy")
	config.Logger = slog.New(slog.NewJSONHandler(&log, nil))
	p := launch(t, config)
	if _, err := ask(t, p, "print", ""); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"hello on standard output", "and without a newline: ", "printed later", "said later", "logged later",
		"about the object",
	} {
		eventually(t, want, func() bool { return recordOf(t, &log, want) != nil })
	}
	if record := recordOf(t, &log, "about the object"); record["object"] != "print" || record["watch"] != "pods" ||
		record["level"] != "WARN" {
		t.Errorf("record %v", record)
	}
	record := recordOf(t, &log, "logged later")
	if record["level"] != "WARN" || record["key"] != "value" || record["driver"] != "subject" {
		t.Errorf("record %v", record)
	}
}

// recordOf returns the record of a log with a message, or nil.
func recordOf(t *testing.T, log *harness.Buffer, message string) map[string]any {
	t.Helper()
	for line := range strings.Lines(log.String()) {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		if record["msg"] == message {
			return record
		}
	}
	return nil
}

func TestEnvironmentIsNotInherited(t *testing.T) {
	t.Setenv("OS_PASSWORD", "secret-in-the-environment")
	t.Setenv("KUBECONFIG", "/root/.kube/config")
	config := testConfig(t, "plain")
	config.Env = []string{"EXTRA=given"}
	text, err := ask(t, launch(t, config), "environ", "")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text, "secret-in-the-environment") || strings.Contains(text, "KUBECONFIG") {
		t.Errorf("the driver sees:\n%s", text)
	}
	if !strings.Contains(text, "EXTRA=given") {
		t.Errorf("the driver does not see what is given:\n%s", text)
	}
}

func TestRefusedReloadKeepsTheOldValues(t *testing.T) {
	p := launch(t, testConfig(t, "plain"))
	if err := p.Configure(t.Context(), drivers.Values{"g": {"bad": "x"}}); err == nil {
		t.Error("want an error")
	}
	if err := syscall.Kill(p.Status().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "ready again", func() bool { return p.Status().Restarts == 1 && p.Status().State == Ready })
	if watches := p.Watches(); watches[0].Name != "pods" {
		t.Errorf("watches %v", watches)
	}
}

func TestStopWhileRestarting(t *testing.T) {
	config := testConfig(t, "plain")
	config.Timeouts.BackoffMin = time.Hour
	config.Timeouts.BackoffMax = time.Hour
	p := launch(t, config)
	if err := syscall.Kill(p.Status().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "restarting", func() bool { return p.Status().State == Restarting })
	if err := p.Configure(t.Context(), nil); !errors.Is(err, ErrUnavailable) {
		t.Errorf("configuring no driver: %v", err)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func BenchmarkTranslate(b *testing.B) {
	one := object(b, "fine", strings.Repeat("x", 2000))
	call := func(b *testing.B, driver drivers.Driver, parallel int) {
		b.Helper()
		b.SetParallelism(parallel)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := driver.Translate(b.Context(), one, drivers.NewNeeds(nil)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	b.Run("direct", func(b *testing.B) { call(b, &subject{}, 1) })
	b.Run("process/alone", func(b *testing.B) {
		p := launch(b, testConfig(b, "plain"))
		for b.Loop() {
			if _, err := p.Translate(b.Context(), one, drivers.NewNeeds(nil)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("process/many", func(b *testing.B) { call(b, launch(b, testConfig(b, "plain")), 128) })
}
