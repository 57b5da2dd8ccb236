// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/kuryr/raven/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStopsInReverse(t *testing.T) {
	for _, s := range []os.Signal{syscall.SIGTERM, syscall.SIGINT, nil} {
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			r := newRig(t, time.Minute, nil)
			r.run(newFake(r.journal, "a"), newFake(r.journal, "b"), newFake(r.journal, "c"))
			r.running(t)
			if s == nil {
				r.cancel() // the same as a signal
			} else {
				r.signals <- s
			}
			err := r.wait(t)
			if err != nil || service.ExitStatus(err) != service.ExitStopped {
				t.Errorf("stopped as asked: %v", err)
			}
			want := []string{"start a", "start b", "start c", "stop c", "stop b", "stop a"}
			if diff := cmp.Diff(want, r.all()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			r.cancel()
		})
	}
}

func TestAFailingServiceEndsAll(t *testing.T) {
	r := newRig(t, time.Minute, nil)
	a, b, c := newFake(r.journal, "a"), newFake(r.journal, "b"), newFake(r.journal, "c")
	r.run(a, b, c)
	r.running(t)
	broken := errors.New("broken")
	b.end(broken)
	err := r.wait(t)
	failure, ok := errors.AsType[*service.Failure](err)
	if !ok || failure.Service != "b" || failure.Doing != "running" || !errors.Is(err, broken) ||
		service.ExitStatus(err) != service.ExitFailed {
		t.Errorf("got %v", err)
	}
	want := []string{"start a", "start b", "start c", "stop c", "stop a"}
	if diff := cmp.Diff(want, r.all()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	r.cancel()
}

func TestAFailingStart(t *testing.T) {
	r := newRig(t, time.Minute, nil)
	a, b, c := newFake(r.journal, "a"), newFake(r.journal, "b"), newFake(r.journal, "c")
	b.start = func(context.Context) error { panic("no such cloud") }
	r.run(a, b, c)
	err := r.wait(t)
	if p, ok := errors.AsType[*service.PanicError](err); !ok || !bytes.Contains(p.Stack, []byte("launcher_test.go")) {
		t.Errorf("no panic with its stack: %v", err)
	}
	if err == nil || err.Error() != "starting b: panic: no such cloud" {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff([]string{"start a", "start b", "stop a"}, r.all()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !strings.Contains(r.log.String(), "launcher_test.go") {
		t.Error("the stack is not logged")
	}
	r.cancel()
}

func TestStopDuringStart(t *testing.T) {
	r := newRig(t, time.Minute, nil)
	a, b, c := newFake(r.journal, "a"), newFake(r.journal, "b"), newFake(r.journal, "c")
	b.start = func(ctx context.Context) error { <-ctx.Done(); return errors.New("cut off") }
	r.run(a, b, c)
	eventually(t, "b starts", func() bool { return r.has("start b") })
	r.signals <- syscall.SIGTERM
	if err := r.wait(t); err != nil {
		t.Errorf("a start that was cut by the stop is no failure: %v", err)
	}
	if diff := cmp.Diff([]string{"start a", "start b", "stop a"}, r.all()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	r.cancel()
}

func TestAllComplete(t *testing.T) {
	r := newRig(t, time.Minute, nil)
	a, b := newFake(r.journal, "a"), newFake(r.journal, "b")
	r.run(a, b)
	r.running(t)
	a.end(nil)
	eventually(t, "a is still alone", func() bool { return len(r.result) == 0 })
	b.end(nil)
	if err := r.wait(t); err != nil {
		t.Errorf("got %v", err)
	}
	r.cancel()
}

func TestASecondSignalEndsAtOnce(t *testing.T) {
	for _, tc := range []struct {
		signal syscall.Signal
		status int
	}{{syscall.SIGINT, 130}, {syscall.SIGTERM, 143}} {
		t.Run(tc.signal.String(), func(t *testing.T) {
			r := newRig(t, 0, nil) // unbounded grace
			a := newFake(r.journal, "a")
			release := make(chan struct{})
			a.stop = func(context.Context) error { <-release; return nil }
			r.run(a)
			r.running(t)
			r.signals <- syscall.SIGTERM
			eventually(t, "stop hangs", func() bool { return r.has("stop a") })
			r.signals <- syscall.SIGHUP // is no second one
			r.signals <- tc.signal
			err := r.wait(t)
			if got := service.ExitStatus(err); got != tc.status {
				t.Errorf("status %d, want %d (%v)", got, tc.status, err)
			}
			close(release)
			r.cancel()
		})
	}
}

func TestAHangingStopIsForced(t *testing.T) {
	r := newRig(t, time.Minute, nil)
	a, b := newFake(r.journal, "a"), newFake(r.journal, "b")
	b.stop = func(ctx context.Context) error { <-ctx.Done(); return nil }
	r.run(a, b)
	r.running(t)
	r.signals <- syscall.SIGTERM
	eventually(t, "stop hangs on a timer", func() bool { return r.has("stop b") && r.clock.HasWaiters() })
	r.clock.Step(59 * time.Second)
	if r.has("end b") {
		t.Error("ended before its time")
	}
	r.clock.Step(time.Second)
	err := r.wait(t)
	if !errors.Is(err, service.ErrStopTimeout) || service.ExitStatus(err) != service.ExitFailed {
		t.Errorf("got %v", err)
	}
	if !r.has("end a") || !r.has("end b") {
		t.Errorf("not all were ended: %v", r.all())
	}
	r.cancel()
}

func TestAStopThatHeedsNothingIsLeft(t *testing.T) {
	r := newRig(t, time.Minute, nil)
	release := make(chan struct{})
	deaf := &deafService{release: release, journal: r.journal}
	r.launcher.Add("deaf", deaf)
	r.run()
	r.running(t)
	r.signals <- syscall.SIGTERM
	eventually(t, "stop hangs", func() bool { return r.has("stop deaf true") && r.clock.HasWaiters() })
	r.clock.Step(time.Minute)
	eventually(t, "force", func() bool { return r.has("stop deaf false") && r.clock.HasWaiters() })
	r.clock.Step(5 * time.Second)
	if err := r.wait(t); !errors.Is(err, service.ErrStopTimeout) {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(r.log.String(), "leaving them") || !strings.Contains(r.log.String(), "deaf") {
		t.Errorf("the log names no service:\n%s", r.log)
	}
	close(release)
	r.cancel()
}

func TestForceCutsTheContextOfStart(t *testing.T) {
	r := newRig(t, time.Minute, nil)
	a := &drainer{fake: newFake(r.journal, "a")}
	r.launcher.Add("a", a)
	r.run()
	r.running(t)
	r.signals <- syscall.SIGTERM
	eventually(t, "the drain hangs on a timer", func() bool { return r.has("drain") && r.clock.HasWaiters() })
	r.clock.Step(time.Minute)
	if err := r.wait(t); !errors.Is(err, service.ErrStopTimeout) {
		t.Errorf("got %v", err)
	}
	if strings.Contains(r.log.String(), "leaving them") {
		t.Errorf("it did not end:\n%s", r.log)
	}
	r.cancel()
}

// drainer ends only when the context of its Start is cut.
type drainer struct {
	*fake
	done <-chan struct{}
}

func (d *drainer) Start(ctx context.Context) error { d.done = ctx.Done(); return nil }
func (d *drainer) Stop(context.Context, bool) error {
	d.add("drain")
	<-d.done
	return nil
}
func (d *drainer) Wait() error { <-d.done; return nil }

// deafService ends only when the test says so.
type deafService struct {
	*journal
	release chan struct{}
}

func (d *deafService) Start(context.Context) error { return nil }
func (d *deafService) Stop(_ context.Context, graceful bool) error {
	d.add("stop deaf %v", graceful)
	<-d.release
	return nil
}
func (d *deafService) Wait() error                 { <-d.release; return nil }
func (d *deafService) Reset(context.Context) error { return nil }

func TestReload(t *testing.T) {
	r := newRig(t, time.Minute, nil)
	a, b := newFake(r.journal, "a"), newFake(r.journal, "b")
	value := "old"
	a.reset = func(context.Context) error { return errors.New("kuryr.conf:3: bad") } // keeps the old value
	b.reset = func(context.Context) error { panic("reset") }
	r.run(a, b)
	r.running(t)
	r.signals <- syscall.SIGHUP
	eventually(t, "reset", func() bool { return strings.Count(r.log.String(), "reload failed") == 2 })
	if value != "old" || len(r.result) > 0 {
		t.Error("a bad reload changed or ended something")
	}
	r.signals <- syscall.SIGHUP
	eventually(t, "reset again", func() bool { return r.count("reset b") == 2 })
	r.signals <- syscall.SIGTERM
	if err := r.wait(t); err != nil {
		t.Errorf("got %v", err)
	}
	r.cancel()
}

func TestAStopGivesUpAReload(t *testing.T) {
	r := newRig(t, 0, nil) // no bound: a reload that cannot be given up would hang for ever
	a := newFake(r.journal, "a")
	begun := make(chan struct{})
	a.reset = func(ctx context.Context) error {
		close(begun)
		<-ctx.Done()
		return ctx.Err()
	}
	r.run(a)
	r.running(t)
	r.signals <- syscall.SIGHUP
	<-begun
	r.signals <- syscall.SIGTERM
	if err := r.wait(t); err != nil {
		t.Errorf("got %v", err)
	}
	r.cancel()
}

func TestReloadsAreGathered(t *testing.T) {
	r := newRig(t, time.Minute, nil)
	a := newFake(r.journal, "a")
	release, startOn := make(chan struct{}), make(chan struct{})
	a.start = func(context.Context) error { <-startOn; return nil }
	a.reset = func(context.Context) error { <-release; return nil }
	r.run(a)
	r.signals <- syscall.SIGHUP // while starting: kept for later
	eventually(t, "the signal is taken", func() bool { return len(r.signals) == 0 })
	if r.has("reset a") {
		t.Error("reset during start")
	}
	close(startOn)
	eventually(t, "the kept reload runs", func() bool { return r.has("reset a") })
	r.signals <- syscall.SIGHUP
	r.signals <- syscall.SIGHUP
	eventually(t, "the signals are taken", func() bool { return len(r.signals) == 0 })
	close(release)
	eventually(t, "two become one", func() bool { return r.count("reset a") == 2 })
	r.signals <- syscall.SIGTERM
	if err := r.wait(t); err != nil || r.count("reset a") != 2 {
		t.Errorf("%v after %v", err, r.all())
	}
	r.cancel()
}

func TestAPanicInWaitIsAFailure(t *testing.T) {
	r := newRig(t, time.Minute, nil)
	r.launcher.Add("loop", service.NewTask(func(context.Context) error { panic("loop") }, nil))
	r.run()
	err := r.wait(t)
	if p, ok := errors.AsType[*service.PanicError](err); !ok || p.Value != "loop" || service.ExitStatus(err) != 1 {
		t.Errorf("got %v", err)
	}
	r.cancel()
}

func TestTaskStops(t *testing.T) {
	r := newRig(t, time.Minute, nil)
	r.launcher.Add("task", service.NewTask(func(ctx context.Context) error {
		<-ctx.Done()
		return fmt.Errorf("looping: %w", ctx.Err())
	}, nil))
	r.run()
	r.running(t)
	r.signals <- syscall.SIGHUP
	r.signals <- syscall.SIGTERM
	if err := r.wait(t); err != nil {
		t.Errorf("got %v", err)
	}
	r.cancel()
}

func TestRealSignals(t *testing.T) {
	r := newRig(t, time.Minute, nil)
	launcher := service.NewLauncher(service.Config{Logger: slog.New(slog.NewTextHandler(r.log, nil))})
	launcher.Add("a", newFake(r.journal, "a"))
	r.launcher = launcher
	r.run()
	r.running(t)
	self := os.Getpid()
	if err := syscall.Kill(self, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "reset", func() bool { return r.has("reset a") })
	if err := syscall.Kill(self, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := r.wait(t); err != nil {
		t.Errorf("got %v", err)
	}
	r.cancel()
}

// mutable is a fake that can be mutated too.
type mutable struct{ *fake }

func (m mutable) Mutate(context.Context) error {
	m.add("mutate %s", m.name)
	return nil
}

// TestMutate: with restart_method mutate, a SIGHUP reaches only those that can take options over in place.
func TestMutate(t *testing.T) {
	r := newRig(t, time.Minute, nil)
	mutate := true
	r.configure(func(c *service.Config) { c.Mutate = func() bool { return mutate } })
	r.launcher.Add("a", newFake(r.journal, "a"))
	r.launcher.Add("b", mutable{newFake(r.journal, "b")})
	r.run()
	r.running(t)
	r.signals <- syscall.SIGHUP
	eventually(t, "mutated", func() bool { return r.has("mutate b") })
	mutate = false // seen by the launcher with the next signal
	r.signals <- syscall.SIGHUP
	eventually(t, "reset", func() bool { return r.has("reset b") })
	r.signals <- syscall.SIGTERM
	if err := r.wait(t); err != nil {
		t.Error(err)
	}
	want := []string{"start a", "start b", "mutate b", "reset a", "reset b", "stop b", "stop a"}
	if diff := cmp.Diff(want, r.all()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	r.cancel()
}
