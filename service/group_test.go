// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kuryr/raven/service"
	"github.com/kuryr/raven/test/harness"
)

func newGroup(limit int) (*service.Group, *clocktesting.FakeClock, *harness.Buffer) {
	clk, log := clocktesting.NewFakeClock(time.Unix(0, 0)), &harness.Buffer{}
	return service.NewGroup(service.GroupConfig{
		Limit: limit, Clock: clk, Logger: slog.New(slog.NewTextHandler(log, nil)),
	}), clk, log
}

// until returns a thread's function that works until release is closed, or with heed until its context ends.
func until(release <-chan struct{}, heed bool) func(context.Context) error {
	return func(ctx context.Context) error {
		if !heed {
			<-release
			return nil
		}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestGroupBoundsItsThreads(t *testing.T) {
	g, _, _ := newGroup(2)
	release := make(chan struct{})
	var running, most atomic.Int64
	work := func(context.Context) error {
		now := running.Add(1)
		for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
		}
		<-release
		running.Add(-1)
		return nil
	}
	added := make(chan error, 5)
	go func() {
		for range 5 {
			_, err := g.Go(t.Context(), "worker", work)
			added <- err
		}
	}()
	eventually(t, "two run", func() bool { return running.Load() == 2 && len(added) == 2 })
	full, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.Go(full, "late", work); !errors.Is(err, context.Canceled) {
		t.Errorf("a thread for which there is no room and no time: %v", err)
	}
	close(release)
	for range 5 {
		if err := <-added; err != nil {
			t.Error(err)
		}
	}
	if err := g.Wait(); err != nil || most.Load() != 2 || len(g.Running()) != 0 {
		t.Errorf("%v, %d at once, still running: %v", err, most.Load(), g.Running())
	}
}

func TestGroupStopsGracefully(t *testing.T) {
	g, clk, _ := newGroup(0)
	release, calling := make(chan struct{}), make(chan struct{})
	if _, err := g.Go(t.Context(), "worker", until(release, true)); err != nil {
		t.Fatal(err)
	}
	timer, err := g.AddTimer(t.Context(), service.Loop{Name: "timer", Interval: time.Second},
		func(ctx context.Context) error {
			close(calling)
			<-release
			return ctx.Err() // nil: a call in flight is not cut
		})
	if err != nil {
		t.Fatal(err)
	}
	<-calling
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Stop(short, true); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "timer, worker") {
		t.Errorf("a stop without time: %v", err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- g.Stop(t.Context(), true) }()
	if _, err := g.Go(t.Context(), "late", until(release, true)); !errors.Is(err, service.ErrStopped) {
		t.Errorf("a thread after the stop: %v", err)
	}
	if _, err := g.AddTimer(t.Context(), service.Loop{Name: "late"}, until(release, true)); !errors.Is(err,
		service.ErrStopped) {
		t.Errorf("a timer after the stop: %v", err)
	}
	if len(stopped) > 0 {
		t.Error("the stop did not wait for what is in flight")
	}
	close(release)
	if err := errors.Join(<-stopped, g.Wait()); err != nil {
		t.Error(err)
	}
	if _, err := timer.Wait(); err != nil || clk.HasWaiters() {
		t.Errorf("the timer: %v", err)
	}
}

func TestGroupStopsAtOnce(t *testing.T) {
	g, _, log := newGroup(0)
	never := make(chan struct{})
	for _, name := range []string{"a", "b"} {
		if _, err := g.Go(t.Context(), name, until(never, true)); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"a", "b"}, g.Running()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := errors.Join(g.Stop(t.Context(), false), g.Wait()); err != nil || log.String() != "" {
		t.Errorf("%v\n%s", err, log)
	}
}

func TestGroupTimers(t *testing.T) {
	g, clk, _ := newGroup(0)
	var fixed, dynamic atomic.Int64
	_, err := g.AddTimer(t.Context(), service.Loop{Name: "fixed", Delay: time.Second, Interval: 2 * time.Second},
		func(context.Context) error {
			fixed.Add(1)
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	value, err := g.AddDynamicTimer(t.Context(), service.Dynamic{Name: "dynamic"},
		func(context.Context) (time.Duration, error) {
			if n := dynamic.Add(1); n == 3 {
				return 0, service.Done(n)
			}
			return time.Second, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range []struct {
		fixed   int64
		waiters int // the clock may only be moved when both timers wait
	}{{0, 2}, {1, 2}, {1, 1}, {2, 1}} {
		eventually(t, "the dynamic timer has run", func() bool { return dynamic.Load() == min(int64(at)+1, 3) })
		eventually(t, "the fixed timer has run", func() bool {
			return fixed.Load() == want.fixed && clk.Waiters() == want.waiters
		})
		clk.Step(time.Second)
	}
	if got, err := value.Wait(); got != int64(3) || err != nil {
		t.Errorf("done with %v, %v", got, err)
	}
	g.StopTimers()
	if err := g.Wait(); err != nil || g.Stop(t.Context(), true) != nil {
		t.Error(err)
	}
}

func TestAThreadFails(t *testing.T) {
	g, _, log := newGroup(0)
	broken := errors.New("broken")
	failing, err := g.Go(t.Context(), "failing", func(context.Context) error { return broken })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := failing.Wait(); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	panicking, err := g.Go(t.Context(), "panicking", func(context.Context) error { panic("terrified") })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := panicking.Wait(); !strings.Contains(err.Error(), "terrified") {
		t.Errorf("got %v", err)
	}
	if err := g.Wait(); !errors.Is(err, broken) || err.Error() != "failing: broken" {
		t.Errorf("got %v, want the first error", err)
	}
	if text := log.String(); strings.Count(text, "a thread failed") != 2 || !strings.Contains(text, "group_test.go") {
		t.Errorf("logged:\n%s", text)
	}
}

func TestThreadStop(t *testing.T) {
	g, _, _ := newGroup(0)
	never := make(chan struct{})
	thread, err := g.Go(t.Context(), "worker", until(never, true))
	if err != nil {
		t.Fatal(err)
	}
	thread.Stop()
	if _, err := thread.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := g.AddTimer(t.Context(), service.Loop{Name: "timer", Interval: time.Hour}, func(context.Context) error {
		return nil
	}); err != nil {
		t.Error("one thread's end ends no other: ", err)
	}
	if err := g.Stop(t.Context(), true); err != nil {
		t.Error(err)
	}
}

// embedding is a service by way of its group.
type embedding struct{ *service.Group }

func (e embedding) Start(ctx context.Context) error {
	_, err := e.AddTimer(ctx, service.Loop{Name: "timer", Interval: time.Hour}, func(context.Context) error { return nil })
	return err
}

func TestAGroupIsAService(t *testing.T) {
	r := newRig(t, time.Minute, nil)
	g, _, _ := newGroup(0)
	r.launcher.Add("group", embedding{g})
	r.run()
	r.running(t)
	if diff := cmp.Diff([]string{"timer"}, g.Running()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	r.cancel()
	if err := r.wait(t); err != nil || len(g.Running()) != 0 {
		t.Errorf("%v, %v", err, g.Running())
	}
}
