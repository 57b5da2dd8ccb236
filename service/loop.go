package service

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/utils/clock"
)

// ErrDone is returned by a looping function to end its loop without an error.
var ErrDone = errors.New("looping call is done")

// Loop calls a function at a fixed interval.
type Loop struct {
	Clock clock.Clock
	// Delay comes before the first call.
	Delay time.Duration
	// Interval lies between the starts of two calls. A call that takes longer is followed by the next one at once.
	Interval time.Duration
	// Jitter lengthens each interval by a random share of it, 0 to Jitter, so that many loops do not run in step.
	Jitter float64
}

// Run calls f until ctx ends (nil) or f returns an error: nil for ErrDone, else that error. A panic of f is a *PanicError. It
// waits for a running call; f is expected to heed its context.
func (l Loop) Run(ctx context.Context, f func(context.Context) error) error {
	wait := l.Delay
	for {
		if !sleep(ctx, l.Clock, wait) {
			return nil
		}
		begun := l.Clock.Now()
		if err := Guard(func() error { return f(ctx) }); err != nil {
			return ended(ctx, err)
		}
		wait = stretch(l.Interval, l.Jitter) - l.Clock.Since(begun)
	}
}

// FixedInterval calls f at once and then at the interval, each lengthened by a random share of up to jitter; see Loop.Run.
func FixedInterval(ctx context.Context, clk clock.Clock, interval time.Duration, jitter float64, f func(context.Context) error) error {
	return Loop{Clock: clk, Interval: interval, Jitter: jitter}.Run(ctx, f)
}

// BackOff calls a function again and again, the later the more often it has failed.
type BackOff struct {
	Clock clock.Clock
	// Initial is the interval after a success and after the first error; each further error doubles it, up to Max (0: no bound).
	Initial, Max time.Duration
	// Jitter lengthens each interval by a random share of it, 0 to Jitter.
	Jitter float64
	// Timeout ends the loop with the last error when a series of errors lasts longer; 0 never does.
	Timeout time.Duration
}

// Run calls f at once and then at intervals until ctx ends (nil), f returns ErrDone (nil) or panics (*PanicError), or Timeout is
// over. Other errors of f lengthen the interval, a success resets it.
func (b BackOff) Run(ctx context.Context, f func(context.Context) error) error {
	wait := b.Initial
	var failing time.Time
	for {
		err := Guard(func() error { return f(ctx) })
		_, panicked := errors.AsType[*PanicError](err)
		switch {
		case err == nil:
			wait, failing = b.Initial, time.Time{}
		case panicked || errors.Is(err, ErrDone) || ctx.Err() != nil:
			return ended(ctx, err)
		case failing.IsZero():
			wait, failing = b.Initial, b.Clock.Now()
		default:
			if wait *= 2; b.Max > 0 {
				wait = min(wait, b.Max)
			}
			if b.Timeout > 0 && b.Clock.Since(failing) > b.Timeout {
				return fmt.Errorf("failing for more than %s: %w", b.Timeout, err)
			}
		}
		if !sleep(ctx, b.Clock, stretch(wait, b.Jitter)) {
			return nil
		}
	}
}

// ended is what a loop returns after its function returned this error.
func ended(ctx context.Context, err error) error {
	if errors.Is(err, ErrDone) || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
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
