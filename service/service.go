// SPDX-License-Identifier: Apache-2.0

// Package service is oslo.service in Go: services, the launcher that runs them and owns all signals, looping calls,
// systemd.
// It must never leave a stop unbounded that was given a bound, nor end without saying why.
//
// Raven itself runs on Launcher, Loop, Dynamic, BackOff, Notifier and Progress. Group, Task, PeriodicTasks, Retry and
// FixedInterval are for other daemons that are built on this package; in this repository only tests and examples call
// them.
package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/kuryr/raven/service/config"
)

// Service is one long-running part of the program. The launcher calls Start once, and Stop only after Start returned
// nil.
type Service interface {
	// Start begins the work and returns when it has begun. The work may use ctx: it is cancelled when the service must
	// end at once, or when the program is told to stop while Start still runs.
	Start(ctx context.Context) error
	// Stop ends the work and returns when it has ended. Graceful means to finish what is in flight for as long as ctx
	// lasts. It may be called again with graceful false while a graceful call hangs, and must be harmless on an ended
	// service.
	Stop(ctx context.Context, graceful bool) error
	// Wait returns when the work has ended: nil if it was stopped or is complete, else why it failed.
	Wait() error
	// Reset follows a SIGHUP: reload, reopen. On an error it must leave everything as it was; the service runs on.
	Reset(ctx context.Context) error
}

// Mutator is a Service that can take mutable options over in place, without ending any work.
type Mutator interface {
	// Mutate follows a SIGHUP where restart_method is mutate. On an error it must leave everything as it was.
	Mutate(ctx context.Context) error
}

// The exit statuses of a program run by a Launcher. Ended at once by a second signal, it is 128 plus the signal's
// number, as shells have it: 130 after SIGINT, 143 after SIGTERM.
const (
	ExitStopped    = 0   // stopped as asked, or complete
	ExitFailed     = 1   // a service failed, or did not stop in time (as in oslo.service)
	ExitSignalBase = 128 // plus the signal's number
)

// ExitStatus returns the exit status for what Launcher.Run returned.
func ExitStatus(err error) int {
	if err == nil {
		return ExitStopped
	}
	if forced, ok := errors.AsType[*ForcedError](err); ok {
		if number, ok := forced.Signal.(syscall.Signal); ok {
			return ExitSignalBase + int(number)
		}
	}
	return ExitFailed
}

// Failure says which service failed, and at what: "starting", "running" or "stopping".
type Failure struct {
	Service string
	Doing   string
	Err     error
}

// Error returns "doing service: cause".
func (f *Failure) Error() string { return fmt.Sprintf("%s %s: %v", f.Doing, f.Service, f.Err) }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// ForcedError says that a second signal ended the program before its services had stopped.
type ForcedError struct{ Signal os.Signal }

// Error names the signal.
func (e *ForcedError) Error() string {
	return fmt.Sprintf("ended at once by a second signal (%v)", e.Signal)
}

// ErrStopTimeout says that services had not stopped within graceful_shutdown_timeout and were ended.
var ErrStopTimeout = errors.New("services did not stop within graceful_shutdown_timeout")

// PanicError is a panic that became an error.
type PanicError struct {
	Value any
	Stack []byte
}

// Error returns the panic's value; the stack is in Stack, for the log.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Guard calls f and returns its error, or a *PanicError if it panics.
func Guard(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	return f()
}

// What a SIGHUP does, the values of restart_method.
const (
	RestartReload = "reload"
	RestartMutate = "mutate"
)

// Options declares the options of the launcher.
func Options() []config.Option {
	const declarer = "kuryr.raven"
	return []config.Option{
		{
			Name: "graceful_shutdown_timeout", Type: config.Duration, Default: "60", Declarer: declarer, Mutable: true,
			Help: "How long to wait at a stop for work in flight, in seconds or with a unit. 0 waits for ever. A second " +
				"SIGTERM or SIGINT ends at once in any case.",
		},
		{
			Name: "log_options", Type: config.Boolean, Default: "true", Declarer: declarer,
			Help: "Log the value and the origin of every option at start, at debug level. Secrets are masked.",
		},
		{
			Name: "restart_method", Default: RestartReload, Choices: []string{RestartReload, RestartMutate}, Declarer: declarer,
			ChoiceHelp: map[string]string{
				RestartReload: "Read the configuration again, stop, and start with it",
				RestartMutate: "Read the configuration again and take over the mutable options in place; the others are warned " +
					"about",
			},
			Mutable: true, Help: "What SIGHUP does.",
		},
	}
}

// Task is the Service of a function that works until its context ends.
type Task struct {
	run    func(context.Context) error
	reset  func(context.Context) error
	cancel context.CancelFunc
	done   chan struct{}
	err    error // of run; read after done
}

// NewTask returns a service that calls run once. Its context is cancelled to stop it; it should then return nil or
// the context's error. Reset may be nil.
func NewTask(run, reset func(context.Context) error) *Task {
	return &Task{run: run, reset: reset, done: make(chan struct{})}
}

// Start calls the function in a goroutine of its own.
func (t *Task) Start(ctx context.Context) error {
	ctx, t.cancel = context.WithCancel(ctx)
	go func() {
		defer close(t.done)
		defer t.cancel()
		err := Guard(func() error { return t.run(ctx) })
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = nil // stopped as asked
		}
		t.err = err
	}()
	return nil
}

// Stop cancels the function's context and waits for it, as long as ctx lasts.
func (t *Task) Stop(ctx context.Context, _ bool) error {
	t.cancel()
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for it to end: %w", ctx.Err())
	}
}

// Wait returns the function's error, or a *PanicError.
func (t *Task) Wait() error {
	<-t.done
	return t.err
}

// Reset calls the reset function.
func (t *Task) Reset(ctx context.Context) error {
	if t.reset == nil {
		return nil
	}
	return t.reset(ctx)
}

// defaultForceTimeout bounds how long services may take to end once they are no longer asked but told.
const defaultForceTimeout = 5 * time.Second
