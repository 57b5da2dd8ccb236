// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"time"

	"k8s.io/utils/clock"
)

// BackOff calls a function again and again, the later the more often it has failed: oslo.service's BackOffLoopingCall.
type BackOff struct {
	Clock clock.Clock
	// Delay comes before the first call.
	Delay time.Duration
	// Initial is the interval after a success; each error doubles the one before it, from Min (0: 1 ms) up to Max (0: no
	// bound).
	Initial, Min, Max time.Duration
	// Jitter is the mean of the random factor of each interval, whose deviation is 0.1 (oslo.service has 0.75). 0 is
	// none. Below 0.5 the intervals shrink instead of growing.
	Jitter float64
	// Normal draws from the standard normal distribution; nil is the real thing.
	Normal func() float64
	// Timeout ends the loop with ErrLoopTimeout and the last error where the waits in a series of errors would last
	// longer than this; 0 never does.
	Timeout time.Duration
}

// Run calls f at once and then at intervals until ctx ends (nil), f returns ErrDone or Done (nil) or panics
// (*PanicError), or Timeout would be over. Other errors of f lengthen the interval, a success resets it.
func (b BackOff) Run(ctx context.Context, f func(context.Context) error) error {
	_, err := b.Call(ctx, f)
	return err
}

// Call is Run that also returns the value that f gave to Done, or nil.
func (b BackOff) Call(ctx context.Context, f func(context.Context) error) (any, error) {
	base := float64(b.Initial)
	least, most := float64(max(b.Min, time.Millisecond)), float64(math.MaxInt64/4)
	if b.Max > 0 {
		most = float64(b.Max)
	}
	var waited time.Duration
	return spin(ctx, b.Clock, b.Delay, f, func(err error, _ time.Duration) (time.Duration, error) {
		if _, panicked := errors.AsType[*PanicError](err); panicked || err != nil && ctx.Err() != nil {
			return 0, err
		}
		if err == nil {
			base, waited = float64(b.Initial), 0
			return time.Duration(base * b.factor()), nil
		}
		wait := time.Duration(min(max(base*2*b.factor(), least), most))
		base = min(max(base*2*b.mean(), least), most) // by the mean, so that the intervals grow as they should
		if b.Timeout > 0 && waited+wait > b.Timeout {
			return 0, fmt.Errorf("%w: %s of waiting is over: %w", ErrLoopTimeout, b.Timeout, err)
		}
		waited += wait
		return wait, nil
	})
}

func (b BackOff) mean() float64 {
	if b.Jitter == 0 {
		return 1
	}
	return b.Jitter
}

func (b BackOff) factor() float64 {
	if b.Jitter == 0 {
		return 1
	}
	normal := b.Normal
	if normal == nil {
		normal = rand.NormFloat64
	}
	return math.Abs(b.Jitter + normal()/10)
}

// Retry calls a function again while it fails in ways that may pass, waiting a step longer each time: oslo.service's
// RetryDecorator. It is for users of this package: Raven requeues a key that failed.
type Retry struct {
	Clock  clock.Clock
	Logger *slog.Logger // nil: slog.Default()
	// Times is how often the function is called again at most; 0 is no bound.
	Times int
	// Step is how much longer each wait is than the one before it, up to Max (0: no bound).
	Step, Max time.Duration
	// On says for which errors the function is called again; nil for none, as in oslo.service.
	On func(error) bool
}

// Do returns nil once f does, and f's error where it is none of On's, Times is used up or ctx has ended.
func (r Retry) Do(ctx context.Context, f func(context.Context) error) error {
	var wait time.Duration
	for again := 0; ; again++ {
		err := Guard(func() error { return f(ctx) })
		if err == nil || r.On == nil || !r.On(err) || r.Times > 0 && again >= r.Times {
			return err
		}
		if wait += r.Step; r.Max > 0 {
			wait = min(wait, r.Max)
		}
		orDefault(r.Logger).Debug("trying again", "error", err, "in", wait)
		if !sleep(ctx, r.Clock, wait) {
			return err
		}
	}
}
