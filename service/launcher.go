// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// Config is what a Launcher needs. The zero value works.
type Config struct {
	Logger *slog.Logger     // nil: slog.Default()
	Clock  clock.WithTicker // nil: the real one
	Signal <-chan os.Signal // nil: the launcher takes SIGTERM, SIGINT and SIGHUP of the process
	Notify *Notifier        // nil: no systemd
	// Progress has the loops that must not stand still while the watchdog is answered; nil: none but the launcher's own.
	Progress *Progress
	// Mutate is asked at each SIGHUP: true calls Mutate of each service that is a Mutator, false or nil Reset of each.
	Mutate func() bool
	Grace  func() time.Duration // graceful_shutdown_timeout, asked at each stop; nil or 0: unbounded
	// Force bounds the time to end what did not stop in time; 0: 5 seconds.
	Force time.Duration
}

// Launcher runs services. It starts them in order and stops them in reverse:
//
//	starting ──all started──▶ running ──last one complete──▶ end
//	   │                         │ SIGHUP: Reset, or Mutate, on each, in order; errors are logged
//	   └────SIGTERM, SIGINT, context done, a service fails───▶ stopping ──all stopped──▶ end
//	                                                             │ second signal ──▶ end at once
//	                                                             └ Grace is over: told to end ──▶ end, after Force
type Launcher struct {
	config  Config
	entries []*entry
}

type entry struct {
	name    string
	service Service
	cancel  context.CancelFunc
	started atomic.Bool
	ended   chan struct{}
	err     error // of Wait; read after ended
}

// NewLauncher returns a launcher without services.
func NewLauncher(c Config) *Launcher {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Grace == nil {
		c.Grace = func() time.Duration { return 0 }
	}
	if c.Force == 0 {
		c.Force = defaultForceTimeout
	}
	return &Launcher{config: c}
}

// Add puts a service behind those that were added before; not during Run. The name is for logs and errors.
func (l *Launcher) Add(name string, s Service) {
	l.entries = append(l.entries, &entry{name: name, service: s, ended: make(chan struct{})})
}

// Run starts the services and returns when all have ended: nil after a stop by signal or context or when all are
// complete; otherwise joined *Failure, ErrStopTimeout or *ForcedError, for ExitStatus. It may be called once. Only
// after ErrStopTimeout and *ForcedError it may leave goroutines behind: the program must then exit.
func (l *Launcher) Run(ctx context.Context) error {
	signals := l.config.Signal
	if signals == nil {
		own := make(chan os.Signal, 8)
		signal.Notify(own, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		defer signal.Stop(own)
		signals = own
	}
	r := &run{Config: l.config, entries: l.entries, signals: signals, ended: make(chan *entry, len(l.entries))}
	tick, stop := r.watchdog()
	defer stop()
	r.tick = tick
	base, cancel := context.WithCancel(context.WithoutCancel(ctx)) // a done ctx asks for a stop in order, it does not cut
	defer cancel()
	starting, cancelStarting := context.WithCancel(base)
	defer cancelStarting()
	r.started = r.startAll(base, starting)
	reason := r.running(ctx, base)
	if errors.Is(reason, errComplete) {
		return nil
	}
	cancelStarting()
	return r.stop(base, reason)
}

// errComplete says that every service ended by itself without an error.
var errComplete = errors.New("complete")

// run is the state of one Run. Its methods run in the caller's goroutine unless they say otherwise.
type run struct {
	Config
	entries []*entry
	signals <-chan os.Signal
	tick    <-chan time.Time
	said    string             // the last status while starting; read after started
	ended   chan *entry        // each entry once, when its Wait has returned
	started <-chan error       // one value when all have started or one could not; nil after it was received
	reset   chan struct{}      // closed when the running reset is done; nil while none runs
	unreset context.CancelFunc // gives the running reset up
	again   bool               // a SIGHUP came meanwhile
}

// startAll starts the services in order in a goroutine, until the starting context ends.
func (r *run) startAll(base, starting context.Context) <-chan error {
	result := make(chan error, 1)
	go func() {
		for _, e := range r.entries {
			if starting.Err() != nil {
				break
			}
			r.said = r.Notify.status("", "starting %s", e.name)
			if err := r.start(base, starting, e); err != nil {
				result <- &Failure{Service: e.name, Doing: "starting", Err: err}
				return
			}
		}
		result <- nil
	}()
	return result
}

func (r *run) start(base, starting context.Context, e *entry) error {
	ctx, cancel := context.WithCancel(base)
	e.cancel = cancel
	stop := context.AfterFunc(starting, cancel)
	defer stop()
	if err := Guard(func() error { return e.service.Start(ctx) }); err != nil {
		cancel()
		return err
	}
	e.started.Store(true)
	go func() {
		e.err = Guard(e.service.Wait)
		cancel()
		close(e.ended)
		r.ended <- e
	}()
	return nil
}

// running lasts until something asks for a stop; it returns why, nil where it was asked for from outside.
func (r *run) running(ctx, base context.Context) error {
	left := len(r.entries)
	for {
		if left == 0 && r.started == nil {
			return errComplete
		}
		select {
		case err := <-r.started:
			r.started = nil
			if err != nil {
				return err
			}
			r.Logger.Info("started", "services", len(r.entries))
			r.Notify.Send("READY=1")
			r.Notify.status(r.said, "running") // unless a service has said more
			if r.again {
				r.startReset(base)
			}
		case e := <-r.ended:
			left--
			if e.err != nil {
				return &Failure{Service: e.name, Doing: "running", Err: e.err}
			}
			r.Logger.Debug("service is complete", "service", e.name)
		case s := <-r.signals:
			if s != syscall.SIGHUP {
				r.Logger.Info("stopping", "signal", s.String())
				return nil
			}
			if r.started != nil || r.reset != nil {
				r.again = true // after the start, or once more after this one
				continue
			}
			r.startReset(base)
		case <-r.reset:
			r.reset = nil
			r.Notify.Send("READY=1")
			if r.again {
				r.startReset(base)
			}
		case <-r.tick:
			r.alive()
		case <-ctx.Done():
			r.Logger.Info("stopping", "reason", context.Cause(ctx).Error())
			return nil
		}
	}
}

// startReset resets each service, or mutates it, in order in a goroutine, so that signals are handled meanwhile.
func (r *run) startReset(base context.Context) {
	r.again = false
	done := make(chan struct{})
	r.reset = done
	ctx, cancel := context.WithCancel(base)
	r.unreset = cancel
	method, verb := r.resetOne, "reloading"
	if r.Mutate != nil && r.Mutate() {
		method, verb = r.mutateOne, "taking over mutable options"
	}
	r.Logger.Info(verb) //nolint:sloglint // one of two constants
	r.Notify.reloading()
	go func() {
		defer close(done)
		defer cancel()
		for _, e := range r.entries {
			select {
			case <-e.ended:
				continue
			default:
			}
			if err := Guard(func() error { return method(ctx, e.service) }); err != nil {
				r.Logger.Error("reload failed, the service goes on as before", slog.String("service", e.name), errAttr(err),
					stackAttr(err))
			}
		}
	}()
}

func (*run) resetOne(ctx context.Context, s Service) error { return s.Reset(ctx) }

func (*run) mutateOne(ctx context.Context, s Service) error {
	if m, ok := s.(Mutator); ok {
		return m.Mutate(ctx)
	}
	return nil
}

func errAttr(err error) slog.Attr { return slog.String("error", err.Error()) }

// stackAttr is the stack of a panic, or nothing.
func stackAttr(err error) slog.Attr {
	if p, ok := errors.AsType[*PanicError](err); ok {
		return slog.String("stack", string(p.Stack))
	}
	return slog.Attr{}
}
