// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"k8s.io/utils/clock"
)

// ErrDone is returned by a looping function to end its loop without an error; see also Done.
var ErrDone = errors.New("looping call is done")

// ErrLoopTimeout is wrapped by the error of a loop that its Timeout has ended.
var ErrLoopTimeout = errors.New("looping call timed out")

// Done ends a loop like ErrDone, with a value that the loop's Call returns.
func Done(value any) error { return &doneError{value} }

type doneError struct{ value any }

func (e *doneError) Error() string { return ErrDone.Error() }
func (e *doneError) Unwrap() error { return ErrDone }

// Loop calls a function at a fixed interval, oslo.service's FixedIntervalLoopingCall and, with a Timeout, its
// FixedIntervalWithTimeoutLoopingCall.
type Loop struct {
	Clock clock.Clock
	// Name is what the log calls the loop.
	Name   string
	Logger *slog.Logger // nil: slog.Default()
	// Delay comes before the first call.
	Delay time.Duration
	// Interval lies between the starts of two calls. A call that takes longer is warned about and followed by the next
	// one at once.
	Interval time.Duration
	// Jitter lengthens each interval by a random share of it, 0 to Jitter, so that many loops do not run in step.
	Jitter float64
	// Timeout ends the loop with ErrLoopTimeout after the first call that ends later than this after the start; 0 never
	// does.
	Timeout time.Duration
	// KeepGoing logs an error or a panic of the function instead of ending the loop with it.
	KeepGoing bool
}

// Run calls f until ctx ends (nil) or f returns an error: nil for ErrDone and Done, else that error. A panic of f is
// a *PanicError. It waits for a running call; f is expected to heed its context.
func (l Loop) Run(ctx context.Context, f func(context.Context) error) error {
	_, err := l.Call(ctx, f)
	return err
}

// Call is Run that also returns the value that f gave to Done, or nil.
func (l Loop) Call(ctx context.Context, f func(context.Context) error) (any, error) {
	start := l.Clock.Now()
	return spin(ctx, l.Clock, l.Delay, f, func(err error, took time.Duration) (time.Duration, error) {
		if err = endless(err, l.KeepGoing, l.Logger, l.Name); err != nil {
			return 0, err
		}
		if late := took - l.Interval; late > 0 {
			orDefault(l.Logger).Warn("a call took longer than the interval of its loop", "loop", l.Name, "over", late)
		}
		if total := l.Clock.Since(start); l.Timeout > 0 && total > l.Timeout {
			return 0, fmt.Errorf("%w after %s", ErrLoopTimeout, total)
		}
		return stretch(l.Interval, l.Jitter) - took, nil
	})
}

// FixedInterval calls f at once and then at the interval, each lengthened by a random share of up to jitter; see
// Loop.Run.
func FixedInterval(
	ctx context.Context, clk clock.Clock, interval time.Duration, jitter float64, f func(context.Context) error,
) error {
	return Loop{Clock: clk, Interval: interval, Jitter: jitter}.Run(ctx, f)
}

// Dynamic calls a function that says itself how long to wait for the next call, oslo.service's DynamicLoopingCall.
type Dynamic struct {
	Clock clock.Clock
	// Name is what the log calls the loop.
	Name   string
	Logger *slog.Logger // nil: slog.Default()
	// Delay comes before the first call.
	Delay time.Duration
	// Max bounds the wait, and is the wait where the function has no opinion; 0: no bound.
	Max time.Duration
	// KeepGoing logs an error or a panic of the function instead of ending the loop with it.
	KeepGoing bool
}

// NoOpinion is returned by a function of a Dynamic loop that does not know how long to wait: Max holds.
const NoOpinion time.Duration = -1

// ErrNoInterval ends a Dynamic loop that has no Max when its function has no opinion.
var ErrNoInterval = errors.New("neither the function nor Max says how long to wait")

// Run is as Loop.Run.
func (d Dynamic) Run(ctx context.Context, f func(context.Context) (time.Duration, error)) error {
	_, err := d.Call(ctx, f)
	return err
}

// Call is as Loop.Call.
func (d Dynamic) Call(ctx context.Context, f func(context.Context) (time.Duration, error)) (any, error) {
	var wish time.Duration
	call := func(ctx context.Context) (err error) {
		wish = NoOpinion // stays where f panics
		wish, err = f(ctx)
		return err
	}
	return spin(ctx, d.Clock, d.Delay, call, func(err error, _ time.Duration) (time.Duration, error) {
		if err = endless(err, d.KeepGoing, d.Logger, d.Name); err != nil {
			return 0, err
		}
		switch {
		case wish < 0 && d.Max <= 0:
			return 0, ErrNoInterval
		case wish < 0, d.Max > 0 && wish > d.Max:
			return d.Max, nil
		}
		return wish, nil
	})
}

// spin calls f until ctx ends, f is done, or idle says why not to go on; idle says how long to wait after a call that
// returned err and took so long.
func spin(
	ctx context.Context, clk clock.Clock, wait time.Duration, f func(context.Context) error,
	idle func(err error, took time.Duration) (time.Duration, error),
) (any, error) {
	for {
		if !sleep(ctx, clk, wait) {
			return nil, nil //nolint:nilnil // ended as asked, with nothing to say
		}
		begun := clk.Now()
		err := Guard(func() error { return f(ctx) })
		if done, ok := errors.AsType[*doneError](err); ok {
			return done.value, nil
		}
		if errors.Is(err, ErrDone) || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return nil, nil //nolint:nilnil // likewise
		}
		if wait, err = idle(err, clk.Since(begun)); err != nil {
			return nil, err
		}
	}
}

// endless logs an error that must not end a loop.
func endless(err error, keepGoing bool, logger *slog.Logger, name string) error {
	if err == nil || !keepGoing {
		return err
	}
	orDefault(logger).Error("a looping call failed and goes on", slog.String("loop", name), errAttr(err), stackAttr(err))
	return nil
}

func orDefault(logger *slog.Logger) *slog.Logger {
	if logger == nil {
		return slog.Default()
	}
	return logger
}

// stretch lengthens d by a random share of up to jitter.
func stretch(d time.Duration, jitter float64) time.Duration {
	return d + time.Duration(float64(d)*jitter*rand.Float64()) //nolint:gosec // spreads load, guards nothing
}

// sleep waits for d; false means that ctx has ended.
func sleep(ctx context.Context, clk clock.Clock, d time.Duration) bool {
	if ctx.Err() != nil || d <= 0 {
		return ctx.Err() == nil
	}
	timer := clk.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}
