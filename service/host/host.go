// SPDX-License-Identifier: Apache-2.0

// Package host runs a driver as a process of its own and presents it as a drivers.Driver: it launches, checks,
// supervises, restarts and stops it. It must never take a dead driver for one that wants nothing: every call that
// such a driver cannot answer is ErrUnavailable.
//
//	          Launch                  exits, hangs, stream ends
//	(none) ───────────▶ ready ────────────────────────────────▶ restarting ──── too often ───▶ quarantined
//	                      ▲                                         │                              │
//	                      └───── started and configured: OnReady ───┴── after a while, or Restart ─┘
//	Stop from either: drain, end, kill, all within a bound.
package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/plugins/wire"
)

// ErrUnavailable says that the driver is dead, stopping or restarting: no opinion.
var ErrUnavailable = wire.ErrUnavailable

// ErrNotStarted says that a driver's program was found and is what was configured, yet did not become a driver that
// can be asked: it ended, hung or spoke nonsense first. Another try may succeed.
var ErrNotStarted = errors.New("the driver did not start")

// notStarted is ErrNotStarted in the words of its reason.
type notStarted struct{ error }

func (n notStarted) Unwrap() []error { return []error{n.error, ErrNotStarted} }

// Error is a driver's error about one object.
type Error = wire.Error

// Config says which driver to run, and how. Name and Path are needed; the rest has good zero values.
type Config struct {
	// Name is the driver's name in `[raven] drivers`. The driver must call itself the same. Empty accepts any.
	Name string
	// Path is the executable; see Discover.
	Path string
	// Args are its arguments.
	Args []string
	// SHA256 is the hexadecimal digest that the executable must have. Empty: any.
	SHA256 string
	// Attach is the socket of a driver that runs already, to be debugged (`raven-driver-x --debug`): it is not started,
	// confined, checked nor ended. Path is not used then.
	Attach string
	// Accepted is what was accepted of the driver: a program that declares more (see drivers.Info.Exceeds) is not run,
	// now or after a loss. Nil: what its first life declares.
	Accepted *drivers.Info
	// Sandbox confines the driver; see NewSandbox. Nil does not.
	Sandbox *Sandbox
	// AllowRead are files and folders that a confined driver may read and execute beside the libraries of the machine.
	AllowRead []string
	// Env adds variables as KEY=value to the few that a driver gets. Nothing secret belongs here: others can read it.
	Env []string
	// Enabled names the drivers that are enabled, which the driver is told.
	Enabled []string
	// Values configure the driver at start. Nil leaves that to Configure.
	Values drivers.Values
	// RuntimeDir is where sockets are made, in a folder that only this user can enter. Empty is the folder for temporary
	// files.
	RuntimeDir string
	// CoreVersion is Raven's version, for the driver.
	CoreVersion string
	// Logger gets the driver's lines, with its name. Nil discards them.
	Logger *slog.Logger
	// Clock decides about backoff and health. Nil is the real one.
	Clock clock.WithTicker
	// Timeouts may be left at zero.
	Timeouts Timeouts
	// OnExit is called when the driver is lost, with the reason, and OnReady when it is back, configured as it was: the
	// core then replays. Neither is called for the first start or for Stop. They must not block nor call Stop.
	OnExit  func(error)
	OnReady func()
	// OnQuarantine is called when the driver is lost again and again and is left alone for a while, with the last
	// reason. It must not block.
	OnQuarantine func(error)
	// MaxLosses is how often in a row it may be lost without having been stable in between; 0 is 10.
	MaxLosses int
}

// Timeouts bound what a driver may take. Zero fields have the defaults named.
type Timeouts struct {
	Start     time.Duration // from execution to the handshake and the info; 10 s
	Configure time.Duration // 30 s
	Call      time.Duration // one call of Translate, from when it is sent to the driver; 30 s
	Ping      time.Duration // between two health checks, and how long one may take; 5 s
	// how long after its deadline a call may stay unanswered before the driver counts as stuck; 5 s
	Overdue time.Duration
	Drain   time.Duration // for work in hand when stopping; 5 s
	Kill    time.Duration // from the request to exit until SIGKILL; 3 s

	BackoffMin time.Duration // before the first restart, doubled each time; 100 ms
	BackoffMax time.Duration // 30 s
	Stable     time.Duration // after so long a life the backoff starts anew; 2 min
	Quarantine time.Duration // how long a driver, or an object that ends it, is left alone; 10 min
}

func (t Timeouts) withDefaults() Timeouts {
	for _, field := range []struct {
		value *time.Duration
		zero  time.Duration
	}{
		{&t.Start, 10 * time.Second},
		{&t.Configure, 30 * time.Second},
		{&t.Call, 30 * time.Second},
		{&t.Ping, 5 * time.Second},
		{&t.Overdue, 5 * time.Second},
		{&t.Drain, 5 * time.Second},
		{&t.Kill, 3 * time.Second},
		{&t.BackoffMin, 100 * time.Millisecond},
		{&t.BackoffMax, 30 * time.Second},
		{&t.Stable, 2 * time.Minute},
		{&t.Quarantine, 10 * time.Minute},
	} {
		if *field.value <= 0 {
			*field.value = field.zero
		}
	}
	return t
}

// withDefaults fills in what was left out.
func (c Config) withDefaults() Config {
	c.Timeouts = c.Timeouts.withDefaults()
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Logger = c.Logger.With("driver", c.label())
	if c.OnExit == nil {
		c.OnExit = func(error) {}
	}
	if c.OnReady == nil {
		c.OnReady = func() {}
	}
	if c.OnQuarantine == nil {
		c.OnQuarantine = func(error) {}
	}
	if c.MaxLosses <= 0 {
		c.MaxLosses = 10
	}
	return c
}

// label is what errors and logs call the driver.
func (c Config) label() string {
	if c.Name != "" {
		return c.Name
	}
	return strings.TrimPrefix(filepath.Base(c.Path), executablePrefix)
}

// Plugin is a driver that runs as a process: a drivers.Driver whose every error names it.
type Plugin struct {
	config Config
	folder *folder
	cancel context.CancelFunc
	done   chan struct{} // closed when the supervisor has returned

	suspects *suspects
	requests chan request // for a restart

	stopping sync.Once
	stopErr  error

	mu         sync.Mutex
	current    *instance // nil while there is none to ask
	accepted   *drivers.Info
	info       drivers.Info
	watches    []drivers.Watch
	values     drivers.Values
	generation int // of values
	status     Status
}

var _ drivers.Driver = (*Plugin)(nil)

// State is what a Plugin is doing.
type State string

// The states.
const (
	Ready      State = "ready"
	Restarting State = "restarting"
	// Quarantined drivers were lost too often: they are tried again after a long while, or when an operator says so.
	Quarantined State = "quarantined"
	Stopped     State = "stopped"
)

// Status describes a Plugin for people.
type Status struct {
	State    State
	PID      int       // 0 while there is no process
	Since    time.Time // when State began
	Restarts int       // since Launch
	LastExit string    // why the last process was lost; empty if none was
	Isolated int       // objects that are kept from the driver, because they end or hang it
}

// Launch starts a driver and returns when it can be asked: after its Info is known and, where Values are given, it is
// configured. What is wrong with the first start is returned, in one line; later losses are followed by restarts. ctx
// bounds the launch alone. The caller must Stop the Plugin.
func Launch(ctx context.Context, config Config) (*Plugin, error) {
	config = config.withDefaults()
	p := &Plugin{
		config: config, done: make(chan struct{}), values: config.Values, accepted: config.Accepted,
		requests: make(chan request),
		suspects: newSuspects(config.Clock, config.Timeouts.Quarantine),
	}
	var err error
	if p.folder, err = newFolder(config.RuntimeDir); err != nil {
		return nil, p.wrap(err)
	}
	first, err := start(ctx, config, p.folder.path)
	if err == nil {
		if err = p.activate(ctx, first); err != nil {
			_ = first.stop(ctx, config.Timeouts, false)
		}
	}
	if err != nil {
		return nil, errors.Join(p.wrap(err), p.folder.remove())
	}
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.cancel = cancel
	go func() {
		defer close(p.done)
		p.supervise(lasting, first)
	}()
	return p, nil
}

// Inspect starts a driver only to ask for its Info, without configuring it.
func Inspect(ctx context.Context, path string) (drivers.Info, error) {
	p, err := Launch(ctx, Config{Path: path})
	if err != nil {
		return drivers.Info{}, err
	}
	info := p.Info()
	return info, p.Stop(ctx)
}

func (p *Plugin) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("driver(%s): %w", p.config.label(), err)
}

// Info implements drivers.Driver.
func (p *Plugin) Info() drivers.Info {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.info
}

// Watches implements drivers.Driver. After OnReady they may be others, if the executable was replaced.
func (p *Plugin) Watches() []drivers.Watch {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.watches
}

// Status returns how the driver is.
func (p *Plugin) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	status := p.status
	status.Isolated, _ = p.suspects.counts()
	return status
}

// Configure implements drivers.Driver. Values that the driver accepts are also those of later restarts.
func (p *Plugin) Configure(ctx context.Context, values drivers.Values) error {
	p.mu.Lock()
	current := p.current
	p.mu.Unlock()
	if current == nil {
		return p.wrap(ErrUnavailable)
	}
	ctx, cancel := context.WithTimeout(ctx, p.config.Timeouts.Configure)
	defer cancel()
	if err := current.client.Configure(ctx, values); err != nil {
		return p.wrap(refusal{err})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.values, p.watches = values, current.client.Watches()
	p.generation++
	return nil
}

// Translate implements drivers.Driver. The error is ErrUnavailable when there is no driver to ask, an *Error when it
// is about this object, ErrIsolated when the object is kept from the driver, or that of ctx. The driver has
// Timeouts.Call for it; before that it may wait for its turn, for as long as the driver answers others or until it is
// given up.
func (p *Plugin) Translate(ctx context.Context, object drivers.Object, needs *drivers.Needs) (drivers.Set, error) {
	current := p.instance()
	for {
		if current == nil {
			return drivers.Set{}, p.wrap(ErrUnavailable)
		}
		leave, err := p.suspects.enter(ctx, object, needs)
		if err != nil {
			return drivers.Set{}, p.wrap(err)
		}
		set, err := current.client.Translate(ctx, object, needs)
		leave(current.excuse(err))
		next := p.instance()
		if err == nil || ctx.Err() != nil || next == nil || next == current || !current.retired.Load() {
			return set, p.wrap(err)
		}
		current = next // it was replaced by Restart: the new one answers
	}
}

// instance is the one to ask, nil if there is none.
func (p *Plugin) instance() *instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

// Stop drains, stops and, where that does not do, kills the driver with all that it started. It takes at most the
// times of Drain and Kill and a moment, also with a driver that hangs or is stopped by a signal; when ctx ends it
// kills at once. Further calls return the same. Calls in flight end with ErrUnavailable once draining is over.
func (p *Plugin) Stop(ctx context.Context) error {
	p.stopping.Do(func() {
		p.cancel()
		<-p.done
		p.mu.Lock()
		current := p.current
		p.current = nil
		p.status.State, p.status.PID, p.status.Since = Stopped, 0, p.config.Clock.Now()
		p.mu.Unlock()
		var err error
		if current != nil {
			err = current.stop(ctx, p.config.Timeouts, true)
		}
		p.stopErr = p.wrap(errors.Join(err, p.folder.remove()))
	})
	return p.stopErr
}
