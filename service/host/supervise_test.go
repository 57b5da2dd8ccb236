// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/plugins/wire"
)

func TestPatience(t *testing.T) {
	c := Config{MaxLosses: 4, Timeouts: Timeouts{BackoffMax: 300 * time.Millisecond}}.withDefaults()
	p := newPatience(c)
	type next struct {
		delay time.Duration
		long  bool
	}
	want := func(what string, isolated int, want next) {
		t.Helper()
		if delay, long := p.next(isolated); (next{delay, long}) != want {
			t.Errorf("%s: %s, %t; want %v", what, delay, long, want)
		}
	}
	want("first loss", 0, next{100 * time.Millisecond, false})
	p.lived(c.Timeouts.Stable - 1)
	want("after a life that was not stable", 0, next{200 * time.Millisecond, false})
	want("third", 0, next{300 * time.Millisecond, false})
	want("fourth", 0, next{c.Timeouts.Quarantine, true})
	want("the try after a quarantine", 0, next{c.Timeouts.Quarantine, true})
	want("an object was isolated", 1, next{300 * time.Millisecond, false})
	p.lived(c.Timeouts.Stable)
	want("after a stable life", 1, next{100 * time.Millisecond, false})
}

func TestCrashLoopIsQuarantined(t *testing.T) {
	config := testConfig(t, "plain")
	config.MaxLosses, config.Timeouts.BackoffMin, config.Timeouts.Quarantine = 3, time.Millisecond, time.Hour
	quarantined := make(chan error, 10)
	config.OnQuarantine = func(err error) { quarantined <- err }
	p := launch(t, config)
	for range 3 {
		eventually(t, "ready", func() bool { return p.Status().State == Ready })
		if err := syscall.Kill(p.Status().PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "lost", func() bool { return p.Status().State != Ready || p.Status().Restarts == 3 })
	}
	if err := <-quarantined; !strings.Contains(err.Error(), "killed") {
		t.Errorf("reason: %v", err)
	}
	if s := p.Status(); s.State != Quarantined {
		t.Errorf("%+v", s)
	}
	if _, err := ask(t, p, "fine", ""); !errors.Is(err, ErrUnavailable) {
		t.Errorf("in quarantine: %v", err)
	}
	if err := p.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t, p, "fine", ""); err != nil || p.Status().State != Ready {
		t.Errorf("after Restart: %v, %+v", err, p.Status())
	}
}

func TestObjectThatKillsIsIsolated(t *testing.T) {
	config := testConfig(t, "plain")
	config.Timeouts.BackoffMin = time.Millisecond
	p := launch(t, config)
	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	failed := make([]error, 8)
	for i := range failed { // innocent ones, in the driver with the culprit all the time, each asked until it is answered
		others.Go(func() {
			name := fmt.Sprintf("fine-%d", i)
			for ctx.Err() == nil {
				if _, err := ask(t, p, name, ""); errors.Is(err, ErrIsolated) {
					failed[i] = err
					return
				}
			}
		})
	}
	eventually(t, "the culprit is isolated", func() bool {
		_, err := ask(t, p, "exit", "")
		return errors.Is(err, ErrIsolated)
	})
	eventually(t, "ready", func() bool { return p.Status().State == Ready })
	for i := range failed {
		eventually(t, "the others are answered", func() bool {
			_, err := ask(t, p, fmt.Sprintf("fine-%d", i), "")
			return err == nil
		})
	}
	cancel()
	others.Wait()
	if err := errors.Join(failed...); err != nil {
		t.Error(err)
	}
	status := p.Status()
	if status.Isolated != 1 || status.Restarts != maxStrikes {
		t.Errorf("%+v", status)
	}
	if _, err := ask(t, p, "exit", ""); !errors.Is(err, ErrIsolated) || p.Status().Restarts != maxStrikes {
		t.Errorf("once more: %v", err)
	}
	if _, err := ask(t, p, "exit", "changed"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("a changed object is a new one: %v", err)
	}
}

func TestObjectThatHangsIsIsolated(t *testing.T) {
	config := testConfig(t, "plain")
	config.Timeouts.Call = 2 * time.Second
	p := launch(t, config)
	for range maxStrikes {
		if _, err := ask(t, p, "hang", ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	}
	if _, err := ask(t, p, "hang", ""); !errors.Is(err, ErrIsolated) {
		t.Errorf("it was shown to the driver again: %v", err)
	}
	if _, err := ask(t, p, "fine", ""); err != nil {
		t.Error(err)
	}
}

func TestIsolationEnds(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	s := newSuspects(c, time.Minute)
	object, late := drivers.Object{Watch: "pods", Raw: []byte("{}")}, &wire.Error{Code: wire.Deadline}
	try := func(came error) error {
		leave, err := s.enter(t.Context(), object, drivers.NewNeeds(nil))
		if err == nil {
			leave(came)
		}
		return err
	}
	for range maxStrikes {
		if err := try(late); err != nil {
			t.Fatal(err)
		}
	}
	if err := try(nil); !errors.Is(err, ErrIsolated) {
		t.Errorf("got %v", err)
	}
	c.SetTime(time.Unix(1061, 0))
	if err := try(late); err != nil {
		t.Errorf("its time is over: %v", err)
	}
	if err := try(nil); !errors.Is(err, ErrIsolated) {
		t.Errorf("and it did it again: %v", err)
	}
	s.forgive()
	if err := try(nil); err != nil {
		t.Errorf("forgiven: %v", err)
	}
	if err := try(late); err != nil {
		t.Fatal(err)
	}
	if err := try(nil); err != nil { // answered: no suspect any more
		t.Fatal(err)
	}
	if now, _ := s.counts(); now != 0 || len(s.marks) != 0 {
		t.Errorf("%d isolated, %d marks", now, len(s.marks))
	}
}

func TestRestartInPlace(t *testing.T) {
	config := testConfig(t, "plain")
	var exits, readies atomic.Int32
	config.OnExit, config.OnReady = func(error) { exits.Add(1) }, func() { readies.Add(1) }
	config.Path = copied(t, config.Path)
	p := launch(t, config)
	before := p.Status().PID
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	var answered atomic.Int32
	for range 4 {
		calls.Go(func() {
			for ctx.Err() == nil {
				if _, err := ask(t, p, "fine", ""); err != nil && ctx.Err() == nil {
					t.Errorf("while it is replaced: %v", err)
				}
				answered.Add(1)
			}
		})
	}
	eventually(t, "answers", func() bool { return answered.Load() > 10 })
	if err := p.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	now := answered.Load()
	eventually(t, "answers of the new one", func() bool { return answered.Load() > now })
	cancel()
	calls.Wait()
	after := p.Status()
	if after.PID == before || alive(before) || after.State != Ready || after.Restarts != 0 || exits.Load() != 0 ||
		readies.Load() != 1 {
		t.Errorf("%+v, %d exits, %d times ready", after, exits.Load(), readies.Load())
	}
	if err := os.WriteFile(config.Path+".new", []byte("no program"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(config.Path+".new", config.Path); err != nil {
		t.Fatal(err)
	}
	if err := p.Restart(t.Context()); err == nil {
		t.Error("what cannot be executed was started")
	}
	if s := p.Status(); s.PID != after.PID || s.State != Ready {
		t.Errorf("the old one was to stay: %+v", s)
	}
	if _, err := ask(t, p, "fine", ""); err != nil {
		t.Error(err)
	}
}

// copied copies a program into a folder of its own.
func copied(t *testing.T, path string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "raven-driver-subject")
	from, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = from.Close() }() // only read
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, from); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return to
}
