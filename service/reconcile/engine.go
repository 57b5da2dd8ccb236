// SPDX-License-Identifier: Apache-2.0

// Package reconcile is the loop that makes the cloud what the drivers say it should be: one key at a time, level
// triggered, with the garbage collector and the drift check beside it. It knows keys, Sets, plans and phases, and no
// kind of resource. It must never delete on an error, an answer that is missing, or a guess: only a source object
// that a synced cache lacks, or a driver's own answer, ends a resource.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
	"github.com/kuryr/raven/service/watch"
	"github.com/kuryr/raven/service/writeback"
)

// Source is the Kubernetes side of one driver: a watch.Subscription.
type Source interface {
	Get(key watch.Key) (drivers.Object, watch.Meta, watch.State)
	Keys(name string) ([]watch.Key, bool)
	Answer(need drivers.Need) ([]drivers.Object, watch.State)
	Remember(owner watch.Key, needs []drivers.Need)
}

// Writeback is the way back to the source objects.
type Writeback interface {
	Apply(ctx context.Context, target writeback.Target, manager string, annotations, labels map[string]string) error
	ApplyIngress(ctx context.Context, target writeback.Target, manager string, addresses []string) error
	Event(target writeback.Target, severity drivers.Severity, reason, message string)
}

// Config is how the loop behaves. The zero value of a duration or count means its default.
type Config struct {
	// Cluster is the cluster id that every identity carries.
	Cluster string
	// Presence says which objects are gone that drivers made something for that are not enabled any more. Nil: it is
	// not known.
	Presence Presence
	// Drivers names every enabled driver, also those that Add brings later: what is shared ends only when all have
	// answered.
	Drivers []string
	// Kinds describes the kinds of resources of all backends.
	Kinds *plan.Kinds
	// Concurrency is how many keys of one driver are under way at once.
	Concurrency int
	// DriftInterval is the time between two drift checks; CollectInterval between two runs of the garbage collector.
	DriftInterval, CollectInterval time.Duration
	// CollectLimit bounds how many orphaned owners one run of the garbage collector takes.
	CollectLimit int
	// MaxReplayDeletes and MaxReplayDeleteShare bound what a replay may delete of objects that still exist: a count,
	// and a share of what exists.
	MaxReplayDeletes     int
	MaxReplayDeleteShare float64
	// SlowRetry is how long a key rests that waits for something outside, such as quota, in case its wake-up never comes.
	SlowRetry time.Duration
	// Grace is how long what is under way may go on after Run has been told to end.
	Grace time.Duration
	// AmbiguousWait is how long a create that was cut may still commit.
	AmbiguousWait time.Duration
	// Standby begins without acting: drivers are asked, but nothing is read from the cloud nor written anywhere before
	// Lead.
	Standby bool
	// ConfirmAfter is the time between the two sightings that make an owner an orphan.
	ConfirmAfter time.Duration
	// SoftWait is how long a resource, to be made or changed, waits for what its soft references lead to.
	SoftWait time.Duration
	// Contributes names what drivers may contribute to, by driver and attribute; a driver that is not in it is not
	// bounded.
	Contributes map[string][]string
	// HeldPerDriver bounds what the Sets of one driver take of memory, in bytes. 0: it grows with the driver's objects.
	HeldPerDriver int
	// BackoffBase and BackoffMax bound the time between two tries of a failing key.
	BackoffBase, BackoffMax time.Duration
}

// Validate fills in defaults and says what cannot be.
func (c *Config) Validate() error {
	if c.Cluster == "" {
		return errors.New("reconcile: the cluster id is empty")
	}
	setDefault(&c.Concurrency, 1024)
	setDefault(&c.DriftInterval, 5*time.Minute)
	setDefault(&c.CollectInterval, time.Minute)
	setDefault(&c.CollectLimit, 100)
	setDefault(&c.SlowRetry, 30*time.Second)
	setDefault(&c.Grace, 5*time.Second)
	setDefault(&c.AmbiguousWait, 2*time.Minute)
	setDefault(&c.ConfirmAfter, 5*time.Second)
	setDefault(&c.SoftWait, 10*time.Second)
	setDefault(&c.BackoffBase, 200*time.Millisecond)
	setDefault(&c.BackoffMax, time.Minute)
	if c.MaxReplayDeletes < 0 || c.MaxReplayDeleteShare < 0 || c.MaxReplayDeleteShare > 1 {
		return errors.New("reconcile: max_replay_deletes must be 0 or more, and its share between 0 and 1")
	}
	return nil
}

func setDefault[T int | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// Engine runs the loop for all watchers.
type Engine struct {
	config    Config
	writeback Writeback
	clock     clock.WithTickerAndDelayedExecution
	log       *slog.Logger
	metrics   *Metrics
	drifts    drifts
	history   history
	state     *state.Loop

	backends []*registered
	byKind   map[drivers.Kind]*registered

	single  singleflight.Group
	refused refusals
	dry     atomic.Bool // DryRun is at work: no Event is written

	runMu      sync.Mutex
	watchers   map[string]*watcher
	shared     *keyQueue
	leavings   *keyQueue
	running    context.Context //nolint:containedctx // set by Run for the queues that Add starts later; ended by Run
	working    context.Context //nolint:containedctx // likewise: that of the work, which outlives running by Grace
	draining   atomic.Bool
	leads      chan struct{} // closed by Lead, or from the beginning
	aborted    chan struct{} // closed by Abort
	abort      sync.Once
	queues     sync.WaitGroup
	driftNow   chan struct{}
	collectNow chan struct{}
	timers     timers
	disabled   disabledState

	observing activity
}

// registered is a backend with the kinds that it keeps.
type registered struct {
	*backend.Registration
	kinds []drivers.Kind
}

// watcher is a driver and its part of the world.
type watcher struct {
	name   string
	driver drivers.Driver
	// accepted is what the driver declared when it was added: what it may make and write, whatever it declares later.
	// info is what it declares of that now: it is read anew with every replay, for the executable may have been
	// replaced.
	accepted drivers.Info
	info     atomic.Pointer[drivers.Info]
	source   Source
	// sources are the watches whose objects are translated, by name.
	sources map[string]drivers.Watch
	queue   *keyQueue
	// manager is the field manager of what is written back.
	manager string
}

// New returns an engine that knows nothing yet: see Register, Observe, Add and Run.
func New(config Config, wb Writeback, clk clock.WithTickerAndDelayedExecution, log *slog.Logger) (*Engine, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	e := &Engine{
		config: config, writeback: wb, clock: clk, log: log,
		byKind: map[drivers.Kind]*registered{}, watchers: map[string]*watcher{},
		leads: make(chan struct{}), aborted: make(chan struct{}),
		driftNow: make(chan struct{}, 1), collectNow: make(chan struct{}, 1),
	}
	e.state = state.New(state.Config{
		Cluster: config.Cluster, Drivers: config.Drivers, Kinds: config.Kinds, Clock: clk, Deliver: e.deliver,
		MaxDeletes: config.MaxReplayDeletes, MaxDeleteShare: config.MaxReplayDeleteShare,
		MemoryPerDriver: config.HeldPerDriver, SoftWait: config.SoftWait,
	})
	e.metrics = newMetrics(e.state)
	for _, d := range config.Kinds.List() {
		e.metrics.drifted.WithLabelValues(string(d.Kind))
	}
	e.state.Update(func(tx *state.LoopTx) { tx.Standby = config.Standby })
	if !config.Standby {
		close(e.leads)
	}
	e.shared = e.newKeyQueue("shared", 1)
	e.leavings = e.newKeyQueue("disabled", config.Concurrency)
	return e, nil
}

// Env is what the engine's backends are made with.
func (e *Engine) Env() backend.Env {
	return backend.Env{
		State: e.state.State, Loop: loop{e}, Clock: e.clock, Log: e.log, Cluster: e.config.Cluster,
		Timing: backend.Timing{SlowRetry: e.config.SlowRetry, UnknownWait: e.config.AmbiguousWait, Refusal: terminalTry},
	}
}

// Register joins the backends, which have the kinds of Config.Kinds. It must be called once, before Observe.
func (e *Engine) Register(backends ...*backend.Registration) error {
	for _, registration := range backends {
		b := &registered{Registration: registration}
		hooks := b.Hooks
		hooks.Backend = b.Name
		for _, d := range b.Kinds() {
			hooks.Kinds = append(hooks.Kinds, d.Kind)
			e.byKind[d.Kind] = b
		}
		b.kinds = hooks.Kinds
		if err := e.state.Register(hooks); err != nil {
			return fmt.Errorf("reconcile: %w", err)
		}
		e.backends = append(e.backends, b)
	}
	return nil
}

// Add joins a watcher whose source is synced, and begins its replay: every source object is translated once.
func (e *Engine) Add(name string, driver drivers.Driver, source Source) error {
	info := driver.Info()
	w := &watcher{
		name: name, driver: driver, source: source, accepted: info,
		sources: map[string]drivers.Watch{},
		manager: writeback.Manager(info),
		queue:   e.newKeyQueue(name, e.config.Concurrency),
	}
	for _, wt := range driver.Watches() {
		if wt.Source {
			w.sources[wt.Name] = wt
		}
	}
	if len(w.sources) == 0 {
		return fmt.Errorf("driver(%s): it declares no source watch, so there is nothing to translate", name)
	}
	if err := e.join(w); err != nil {
		return err
	}
	e.metrics.driver(name, info)
	e.replay(w)
	return nil
}

func (e *Engine) join(w *watcher) error {
	e.runMu.Lock()
	defer e.runMu.Unlock()
	if e.watchers[w.name] != nil {
		return fmt.Errorf("driver(%s): it is there already", w.name)
	}
	role := w.accepted.Role
	for _, other := range e.watchers {
		if role != "" && other.accepted.Role == role {
			return fmt.Errorf("driver(%s): driver %s holds the role %s as well, which only one can: enable one of them",
				w.name, other.name, role)
		}
	}
	e.watchers[w.name] = w
	e.state.Update(func(tx *state.LoopTx) { tx.AddDriver(w.name, role, w.accepted.Kinds) })
	if e.running != nil {
		e.start(w)
	}
	return nil
}

// Replay translates every source object of a driver anew, as after a restart of its plugin. Until all have answered,
// nothing that exists is deleted on that driver's word; see the mass-deletion guard.
func (e *Engine) Replay(name string) {
	e.runMu.Lock()
	w := e.watchers[name]
	e.runMu.Unlock()
	if w != nil {
		e.replay(w)
	}
}

func (e *Engine) replay(w *watcher) {
	info := w.driver.Info()
	if more := info.Exceeds(w.accepted); more != "" {
		e.log.Error("driver declares more than was accepted of it, which does not count", "driver", w.name, "declares", more)
		info = w.accepted
	}
	w.info.Store(&info)
	var keys []watch.Key
	for name := range w.sources {
		list, complete := w.source.Keys(name)
		keys = append(keys, list...)
		if !complete {
			keys = append(keys, watch.Key{Watch: name}) // the replay is not over before it is: see resumeReplay
		}
	}
	e.state.Update(func(tx *state.LoopTx) { tx.BeginEpoch(w.name, keys) })
	for _, key := range keys {
		w.queue.add(key)
	}
	// An epoch without keys is over at once.
	e.finishEpoch(w.name)
}

// Wake tells the engine that a source object of a driver, or something that it needs, changed.
func (e *Engine) Wake(name string, key watch.Key) {
	e.runMu.Lock()
	w := e.watchers[name]
	e.runMu.Unlock()
	if w != nil {
		w.queue.add(key)
	}
}

// Run works until ctx ends, then returns once every key under way has been left: nothing is begun any more, requests
// in flight may end for as long as Config.Grace says, or until Abort.
func (e *Engine) Run(ctx context.Context) error {
	working, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	e.draining.Store(false)
	ended := make(chan struct{})
	var grace sync.WaitGroup
	grace.Go(func() { e.abortAfterGrace(ctx, ended, abort) })

	e.runMu.Lock()
	e.running, e.working = ctx, working
	for _, w := range e.watchers {
		e.start(w) //nolint:contextcheck // it takes e.running
	}
	e.queues.Go(func() {
		e.shared.run(ctx, working, func(ctx context.Context, _ watch.Key) result { return e.reconcileShared(ctx) })
	})
	e.queues.Go(func() { e.leavings.run(ctx, working, e.reconcileDisabled) })
	e.runMu.Unlock()

	var loops sync.WaitGroup
	loops.Go(func() { e.whenLeading(ctx, e.driftLoop) })
	loops.Go(func() { e.whenLeading(ctx, e.collectLoop) })
	for _, b := range e.backends {
		if b.Run != nil {
			loops.Go(func() { e.whenLeading(ctx, b.Run) })
		}
	}
	<-ctx.Done()
	loops.Wait()
	e.runMu.Lock()
	e.running = nil
	e.runMu.Unlock()
	e.queues.Wait()
	close(ended)
	grace.Wait()
	return nil
}

func (e *Engine) abortAfterGrace(ctx context.Context, ended <-chan struct{}, abort func()) {
	<-ctx.Done()
	e.draining.Store(true)
	timer := e.clock.NewTimer(e.config.Grace)
	defer timer.Stop()
	select {
	case <-ended:
	case <-e.aborted:
		abort()
	case <-timer.C():
		abort()
	}
}

// stopping says that nothing may be begun any more.
func (e *Engine) stopping(ctx context.Context) bool { return ctx.Err() != nil || e.draining.Load() }

func (e *Engine) start(w *watcher) {
	ctx, working := e.running, e.working
	e.queues.Go(func() {
		w.queue.run(ctx, working, func(ctx context.Context, key watch.Key) result { return e.reconcileKey(ctx, w, key) })
	})
}

// deliver enqueues requests, wherever they belong.
func (e *Engine) deliver(requests []state.Request) {
	e.runMu.Lock()
	defer e.runMu.Unlock()
	for _, r := range requests {
		switch w := e.watchers[r.Driver]; {
		case r.Driver == state.Shared:
			e.shared.add(watch.Key{})
		case r.Driver == disabledDriver:
			e.leavings.add(r.Key)
		case w != nil:
			w.queue.add(r.Key)
		}
	}
}

// all returns the watchers, by name.
func (e *Engine) all() []*watcher {
	e.runMu.Lock()
	defer e.runMu.Unlock()
	list := make([]*watcher, 0, len(e.watchers))
	for _, w := range e.watchers {
		list = append(list, w)
	}
	slices.SortFunc(list, func(a, b *watcher) int { return strings.Compare(a.name, b.name) })
	return list
}
