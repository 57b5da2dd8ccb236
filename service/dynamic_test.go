// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/service"
	"github.com/kuryr/raven/test/harness"
)

func TestDynamic(t *testing.T) {
	for name, tc := range map[string]struct {
		loop   service.Dynamic
		wishes []time.Duration
		want   []time.Duration
		err    error
	}{
		"as wished":           {service.Dynamic{}, []time.Duration{5, 0, 2}, []time.Duration{0, 5, 5, 7}, nil},
		"up to the most":      {service.Dynamic{Max: 3 * time.Second}, []time.Duration{5, 1}, []time.Duration{0, 3, 4}, nil},
		"no opinion":          {service.Dynamic{Max: 3 * time.Second}, []time.Duration{-1}, []time.Duration{0, 3}, nil},
		"no opinion, no most": {service.Dynamic{}, []time.Duration{-1}, []time.Duration{0}, service.ErrNoInterval},
		"after a first delay": {service.Dynamic{Delay: 4 * time.Second}, []time.Duration{1}, []time.Duration{4, 5}, nil},
		"a panic as no wishes": {
			service.Dynamic{KeepGoing: true, Max: 2 * time.Second}, []time.Duration{-99}, []time.Duration{0, 2}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var value any
			l := startLoop(func(l *looping) (err error) {
				tc.loop.Clock, tc.loop.Logger = l.clock, slog.New(slog.DiscardHandler)
				value, err = tc.loop.Call(t.Context(), func(context.Context) (time.Duration, error) {
					n := int(l.called())
					if n > len(tc.wishes) {
						return 0, service.Done(n)
					}
					if tc.wishes[n-1] == -99 {
						panic("no wish")
					}
					if tc.wishes[n-1] < 0 {
						return service.NoOpinion, nil
					}
					return tc.wishes[n-1] * time.Second, nil
				})
				return err
			})
			for len(l.result) == 0 {
				l.advance(t, 1)
			}
			times, err := l.end(t)
			if diff := cmp.Diff(tc.want, times); diff != "" || !errors.Is(err, tc.err) {
				t.Errorf("%v, calls at (-want +got):\n%s", err, diff)
			}
			if err == nil && value != len(tc.wishes)+1 {
				t.Errorf("the value is %v", value)
			}
		})
	}
}

func TestFixedIntervalWithTimeout(t *testing.T) {
	l := startLoop(func(l *looping) error {
		return service.Loop{
			Clock: l.clock, Delay: 2 * time.Second, Interval: 10 * time.Second, Timeout: 25 * time.Second,
		}.Run(t.Context(),
			func(context.Context) error { l.called(); return nil })
	})
	for len(l.result) == 0 {
		l.advance(t, 1)
	}
	times, err := l.end(t)
	if diff := cmp.Diff([]time.Duration{2, 12, 22, 32}, times); diff != "" || !errors.Is(err, service.ErrLoopTimeout) {
		t.Errorf("%v, calls at (-want +got):\n%s", err, diff)
	}
}

func TestDoneWithAValue(t *testing.T) {
	var value any
	l := startLoop(func(l *looping) (err error) {
		value, err = service.Loop{
			Clock: l.clock, Interval: time.Second,
		}.Call(t.Context(), func(context.Context) error { return service.Done(42) })
		return err
	})
	if _, err := l.end(t); err != nil || value != 42 {
		t.Errorf("%v, %v", value, err)
	}
	if !errors.Is(service.Done(nil), service.ErrDone) {
		t.Error("Done is no ErrDone")
	}
}

func TestOverrunIsWarnedAbout(t *testing.T) {
	var log harness.Buffer
	l := startLoop(func(l *looping) error {
		loop := service.Loop{
			Clock: l.clock, Name: "sweep", Logger: slog.New(slog.NewTextHandler(&log, nil)), Interval: 10 * time.Second,
		}
		return loop.Run(t.Context(), func(context.Context) error {
			if n := l.called(); n == 2 {
				l.clock.Step(13 * time.Second)
			} else if n == 3 {
				return service.ErrDone
			}
			return nil
		})
	})
	for len(l.result) == 0 {
		l.advance(t, 1)
	}
	times, err := l.end(t)
	if diff := cmp.Diff([]time.Duration{0, 10, 23}, times); diff != "" || err != nil {
		t.Errorf("%v, calls at (-want +got):\n%s", err, diff)
	}
	if text := log.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "loop=sweep over=3s") {
		t.Errorf("logged:\n%s", text)
	}
}

func TestALoopThatKeepsGoing(t *testing.T) {
	var log harness.Buffer
	l := startLoop(func(l *looping) error {
		loop := service.Loop{
			Clock: l.clock, Logger: slog.New(slog.NewTextHandler(&log, nil)), Interval: 10 * time.Second, KeepGoing: true,
		}
		return loop.Run(t.Context(), func(context.Context) error {
			switch l.called() {
			case 1:
				return errors.New("broken")
			case 2:
				panic("terrified")
			}
			return service.ErrDone
		})
	})
	for len(l.result) == 0 {
		l.advance(t, 1)
	}
	times, err := l.end(t)
	if diff := cmp.Diff([]time.Duration{0, 10, 20}, times); diff != "" || err != nil {
		t.Errorf("%v, calls at (-want +got):\n%s", err, diff)
	}
	for _, want := range []string{"broken", "terrified", "dynamic_test.go"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q is not logged:\n%s", want, log.String())
		}
	}
}
