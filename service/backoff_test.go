// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/service"
)

func TestBackOff(t *testing.T) {
	broken := errors.New("broken")
	half := func() float64 { return -2.5 } // deviations: 1 - 0.25
	for name, tc := range map[string]struct {
		backoff service.BackOff
		body    func(n int64) error
		want    []time.Duration
		value   any
		err     error
	}{
		"doubles from error to error, a success resets": {
			service.BackOff{Initial: time.Second, Max: 4 * time.Second},
			func(n int64) error {
				switch n {
				case 6:
					return nil
				case 8:
					return service.Done("value")
				}
				return broken
			},
			[]time.Duration{0, 2, 6, 10, 14, 18, 19, 21},
			"value", nil,
		},
		"delay and least interval": {
			service.BackOff{Delay: 3 * time.Second, Min: 5 * time.Second},
			func(n int64) error {
				if n == 3 {
					return service.ErrDone
				}
				return broken
			},
			[]time.Duration{3, 8, 18},
			nil, nil,
		},
		"halts before its time is over": {
			service.BackOff{Initial: time.Second, Timeout: 7 * time.Second},
			func(int64) error { return broken },
			[]time.Duration{0, 2, 6},
			nil, service.ErrLoopTimeout,
		},
		"the last error is told": {
			service.BackOff{Initial: time.Second, Timeout: time.Second},
			func(int64) error { return broken },
			[]time.Duration{0},
			nil, broken,
		},
		"jitter around its mean": { // factor 0.75 for the waits, 1 for the growth
			service.BackOff{Initial: 4 * time.Second, Jitter: 1, Normal: half},
			func(n int64) error {
				if n == 4 {
					return service.ErrDone
				}
				return broken
			},
			[]time.Duration{0, 6, 18, 42},
			nil, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var value any
			l := startLoop(func(l *looping) (err error) {
				tc.backoff.Clock = l.clock
				value, err = tc.backoff.Call(t.Context(), func(context.Context) error { return tc.body(l.called()) })
				return err
			})
			for len(l.result) == 0 {
				l.advance(t, 1)
			}
			times, err := l.end(t)
			if diff := cmp.Diff(tc.want, times); diff != "" || !errors.Is(err, tc.err) || value != tc.value {
				t.Errorf("%v, %v, calls at (-want +got):\n%s", value, err, diff)
			}
		})
	}
}

func TestBackOffEndsWithAPanic(t *testing.T) {
	l := startLoop(func(l *looping) error {
		return service.BackOff{
			Clock: l.clock, Initial: time.Second,
		}.Run(t.Context(), func(context.Context) error { panic("x") })
	})
	_, err := l.end(t)
	if _, ok := errors.AsType[*service.PanicError](err); !ok {
		t.Errorf("got %v", err)
	}
}

func TestRetry(t *testing.T) {
	passing, fatal := errors.New("passing"), errors.New("fatal")
	for name, tc := range map[string]struct {
		retry service.Retry
		body  func(n int64) error
		want  []time.Duration
		err   error
	}{
		"waits a step longer each time": {
			service.Retry{Step: 2 * time.Second, Max: 5 * time.Second},
			func(n int64) error {
				if n == 5 {
					return nil
				}
				return passing
			},
			[]time.Duration{0, 2, 6, 11, 16},
			nil,
		},
		"so often": {
			service.Retry{Step: time.Second, Times: 2}, func(int64) error { return passing }, []time.Duration{0, 1, 3}, passing,
		},
		"not on others": {service.Retry{Step: time.Second}, func(n int64) error {
			if n == 2 {
				return fatal
			}
			return passing
		}, []time.Duration{0, 1}, fatal},
	} {
		t.Run(name, func(t *testing.T) {
			l := startLoop(func(l *looping) error {
				tc.retry.Clock = l.clock
				tc.retry.On = func(err error) bool { return errors.Is(err, passing) }
				return tc.retry.Do(t.Context(), func(context.Context) error { return tc.body(l.called()) })
			})
			for len(l.result) == 0 {
				l.advance(t, 1)
			}
			times, err := l.end(t)
			if diff := cmp.Diff(tc.want, times); diff != "" || !errors.Is(err, tc.err) {
				t.Errorf("%v, calls at (-want +got):\n%s", err, diff)
			}
		})
	}
	if err := (service.Retry{}).Do(t.Context(), func(context.Context) error { return passing }); !errors.Is(err, passing) {
		t.Errorf("without On nothing is tried again: %v", err)
	}
}
