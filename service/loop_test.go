// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kuryr/raven/service"
)

// looping runs a loop and steps its clock; it returns when each call began, in seconds.
type looping struct {
	clock  *clocktesting.FakeClock
	calls  atomic.Int64
	begun  chan time.Duration
	result chan error
}

func startLoop(run func(l *looping) error) *looping {
	l := &looping{
		clock: clocktesting.NewFakeClock(time.Unix(0, 0)), begun: make(chan time.Duration, 100), result: make(chan error, 1),
	}
	go func() { l.result <- run(l) }()
	return l
}

func (l *looping) called() int64 {
	l.begun <- l.clock.Since(time.Unix(0, 0))
	return l.calls.Add(1)
}

// advance steps second by second, each only when the loop waits.
func (l *looping) advance(t *testing.T, seconds int) {
	t.Helper()
	for range seconds {
		eventually(t, "the loop waits", func() bool { return l.clock.HasWaiters() || len(l.result) > 0 })
		l.clock.Step(time.Second)
	}
}

func (l *looping) end(t *testing.T) ([]time.Duration, error) {
	t.Helper()
	err := <-l.result
	close(l.begun)
	var times []time.Duration
	for at := range l.begun {
		times = append(times, at/time.Second)
	}
	return times, err
}

func TestFixedInterval(t *testing.T) {
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		delay time.Duration
		body  func(l *looping, n int64) error
		want  []time.Duration
		err   error
	}{
		"done": {0, func(_ *looping, n int64) error { return doneAfter(n, 3) }, []time.Duration{0, 10, 20}, nil},
		"initial delay": {
			5 * time.Second, func(_ *looping, n int64) error { return doneAfter(n, 2) }, []time.Duration{5, 15}, nil,
		},
		"an error ends": {0, func(*looping, int64) error { return broken }, []time.Duration{0}, broken},
		"slow calls": {
			0, func(l *looping, n int64) error { l.clock.Step(4 * time.Second); return doneAfter(n, 2) },
			[]time.Duration{0, 10},
			nil,
		},
		"too slow a call": {
			0, func(l *looping, n int64) error { l.clock.Step(14 * time.Second); return doneAfter(n, 2) },
			[]time.Duration{0, 14},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := startLoop(func(l *looping) error {
				return service.Loop{
					Clock: l.clock, Delay: tc.delay, Interval: 10 * time.Second,
				}.Run(t.Context(), func(context.Context) error {
					return tc.body(l, l.called())
				})
			})
			for len(l.result) == 0 {
				l.advance(t, 1)
			}
			times, err := l.end(t)
			if !errors.Is(err, tc.err) {
				t.Errorf("got %v, want %v", err, tc.err)
			}
			if diff := cmp.Diff(tc.want, times); diff != "" {
				t.Errorf("calls at (-want +got):\n%s", diff)
			}
		})
	}
}

func doneAfter(n, last int64) error {
	if n == last {
		return service.ErrDone
	}
	return nil
}

func TestFixedIntervalEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l := startLoop(func(l *looping) error {
		return service.FixedInterval(ctx, l.clock, time.Hour, 0.5, func(context.Context) error { l.called(); return nil })
	})
	eventually(t, "the loop waits", l.clock.HasWaiters)
	l.clock.Step(time.Hour - time.Second) // the jitter only lengthens
	cancel()
	if times, err := l.end(t); err != nil || len(times) != 1 {
		t.Errorf("calls at %v, %v", times, err)
	}
}

func TestAPanicInALoop(t *testing.T) {
	l := startLoop(func(l *looping) error {
		return service.FixedInterval(t.Context(), l.clock, time.Hour, 0, func(context.Context) error { panic("x") })
	})
	_, err := l.end(t)
	if _, ok := errors.AsType[*service.PanicError](err); !ok {
		t.Errorf("got %v", err)
	}
}
