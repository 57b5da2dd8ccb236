// SPDX-License-Identifier: Apache-2.0

// Package portpool keeps ready ports in pools, and carries out the create of a port by giving one of them: it wraps
// Neutron's backend. It must never give one port to two owners, and never one of which it is not known whether somebody
// has it.
//
//	taken             one change of the state; from then on the port is its owner's, as if Neutron had answered a create
//	written behind    tags first, the record of whose it is, then name, device_id, host: what is lost of it by a crash
//	                  is what any plan repairs
//	before the tags   the annotation on the owner's object is the record: after a start, or a change of leader, it says
//	                  who has a port. What is ready then is given to nobody else until all objects were seen and what an
//	                  old leader may still write has come; see settle
package portpool

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// Neutron is what is asked of Neutron's backend beside what its registration has.
type Neutron interface {
	// Make carries out a create like Apply, and concludes nothing from a refusal.
	Make(ctx context.Context, step *plan.Step) error
	// Change changes attributes of a port, and returns what came of it.
	Change(ctx context.Context, id string, attrs map[string]any) (plan.Observed, error)
	// Retag replaces all tags of a port.
	Retag(ctx context.Context, id string, tags []string) error
	// Idle says whether a request that is made now waits for no other.
	Idle() bool
}

// Config is how pools behave; the zero value of each field is its default.
type Config struct {
	// Writers is how many taken ports are written at once: 4.
	Writers int
	// Delay is how long nobody takes a port before taken ones are written and pools filled again, so that a burst of pods
	// has the machine for itself: 1 second. It ends after five times as long in any case.
	Delay time.Duration
	// Window is the time whose demand a pool is prepared for: 2 minutes.
	Window time.Duration
	// Surplus is how long a pool has more than that before it gives ports up: 10 minutes.
	Surplus time.Duration
}

// Pools are the pools of a cluster. What they remember is guarded by the state's lock, and made again after a restart.
type Pools struct {
	env     backend.Env
	config  Config
	neutron Neutron
	inner   *backend.Registration
	metrics metrics
	// kick has the pools be looked at, and wake a writer.
	kick, wake chan struct{}

	pools map[string]*pool // by the id of the pool's resource
	ready map[string][]string
	// mine are the names of ready ports that this process makes, which no other process can have given.
	mine map[string]bool
	// busy are ready ports that are being taken by a request, or deleted.
	busy map[string]bool
	// behind are taken ports that are still to be written, and queue those that wait for a writer.
	behind map[string]*write
	queue  []string
	elder  elders
	taken  time.Time // when a port was wanted last
}

// pool is one pool that is desired.
type pool struct {
	plan.Observed
	demand    []time.Time // when ports were wanted, the oldest first
	making    int
	lacking   time.Time // since when it has too few; zero: it has enough
	notBefore time.Time // a try to fill it was refused
	refused   error
	surplus   time.Time // since when it has more than it needs; zero: it has not
}

// New returns pools under which nothing is: see Wrap.
func New(env backend.Env, neutron Neutron, c Config) *Pools {
	if c.Writers == 0 {
		c.Writers = 4
	}
	if c.Delay == 0 {
		c.Delay = time.Second
	}
	if c.Window == 0 {
		c.Window = 2 * time.Minute
	}
	if c.Surplus == 0 {
		c.Surplus = 10 * time.Minute
	}
	p := &Pools{
		env: env, config: c, neutron: neutron, kick: make(chan struct{}, 1), wake: make(chan struct{}, c.Writers),
		pools: map[string]*pool{}, ready: map[string][]string{}, mine: map[string]bool{}, busy: map[string]bool{},
		behind: map[string]*write{}, elder: elders{claims: map[string]string{}, suspects: map[string]bool{}},
	}
	p.metrics = p.newMetrics()
	return p
}

// Wrap returns the registration of Neutron's backend with pools. It must be called once.
func (p *Pools) Wrap(inner *backend.Registration) *backend.Registration {
	p.inner = inner
	r := *inner
	r.Backend = &pooled{inner.Backend, p}
	r.Hooks.Arrived = func(tx *state.Tx, before *plan.Observed, now plan.Observed) {
		if now.Kind == KindReadyPort {
			p.arrived(before, now)
		}
		inner.Hooks.Arrived(tx, before, now)
	}
	r.Hooks.Departed = func(tx *state.Tx, gone plan.Observed) {
		switch gone.Kind { //nolint:exhaustive // the others are Neutron's alone
		case KindReadyPort:
			p.forget(gone)
			gone.Kind = drivers.KindPort // what it leaves, quota and an address, a port can have
		case drivers.KindPort:
			delete(p.behind, gone.ID)
			tx.Cache.Remove(KindReadyPort, gone.ID) // a list may show it as it was before it was taken
		}
		inner.Hooks.Departed(tx, gone)
	}
	r.Remove = func(ctx context.Context, step plan.Step) error {
		if step.Kind == KindReadyPort {
			step.Kind = drivers.KindPort
		}
		return inner.Remove(ctx, step)
	}
	r.Run = p.run
	r.Collectors = slices.Concat(inner.Collectors, p.metrics.collectors)
	return &r
}

// patient bounds how long a burst is waited for, in times of the delay.
const patient = 5

// rest is how long to wait for the end of a burst before something is done that could be done since a moment.
func (p *Pools) rest(tx *state.Tx, since time.Time) time.Duration {
	end := p.taken.Add(p.config.Delay)
	if latest := since.Add(patient * p.config.Delay); latest.Before(end) {
		end = latest
	}
	return end.Sub(tx.Now())
}

func (p *Pools) arrived(before *plan.Observed, now plan.Observed) {
	if before == nil {
		network := textOf(now.Attrs["network_id"])
		p.ready[network] = append(p.ready[network], now.ID)
	}
}

// forget drops a ready port that is gone, or taken.
func (p *Pools) forget(gone plan.Observed) {
	network := textOf(gone.Attrs["network_id"])
	p.ready[network] = slices.DeleteFunc(p.ready[network], func(id string) bool { return id == gone.ID })
	if len(p.ready[network]) == 0 {
		delete(p.ready, network)
	}
	delete(p.busy, gone.ID)
	delete(p.mine, gone.Identity.Name)
	p.look()
}

// look has the pools be looked at soon.
func (p *Pools) look() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// pooled is Neutron's backend with pools.
type pooled struct {
	backend.Backend
	p *Pools
}

// Kinds implements backend.Backend.
func (b *pooled) Kinds() []plan.Descriptor { return slices.Concat(b.Backend.Kinds(), Kinds()) }

// List implements backend.Backend. A taken port is shown as its owner's, whatever of that is written.
func (b *pooled) List(ctx context.Context, cluster string) ([]plan.Observed, error) {
	list, err := b.Backend.List(ctx, cluster)
	if err != nil {
		return nil, err
	}
	b.p.env.State.View(func(tx *state.Tx) {
		for i := range list {
			list[i] = b.p.shown(tx, list[i])
		}
		for _, pool := range b.p.pools {
			list = append(list, pool.Observed)
		}
	})
	return list, nil
}

// Get implements backend.Backend.
func (b *pooled) Get(ctx context.Context, kind drivers.Kind, id string) (o plan.Observed, err error) {
	switch kind { //nolint:exhaustive // the others are Neutron's alone
	case drivers.KindPortPool:
		b.p.env.State.View(func(*state.Tx) {
			if pool := b.p.pools[id]; pool != nil {
				o = pool.Observed
				return
			}
			err = backend.ErrNotFound
		})
		return o, err
	case KindReadyPort:
		kind = drivers.KindPort
	}
	if o, err = b.Backend.Get(ctx, kind, id); err == nil {
		b.p.env.State.View(func(tx *state.Tx) { o = b.p.shown(tx, o) })
	}
	return o, err
}

// shown returns a taken port as its owner's: Neutron may show it as ready, or in part.
func (p *Pools) shown(tx *state.Tx, o plan.Observed) plan.Observed {
	if o.Kind != drivers.KindPort {
		return o
	}
	taken, known := tx.Cache.Get(drivers.KindPort, o.ID)
	if known && (p.behind[o.ID] != nil || tx.Kinds().KindOf(&o) == KindReadyPort) {
		return taken
	}
	return o
}

// Apply implements backend.Backend.
func (b *pooled) Apply(ctx context.Context, owner plan.Owner, step *plan.Step) error {
	switch {
	case step.Kind == drivers.KindPortPool:
		b.p.applyPool(step)
		return nil
	case step.Kind == KindReadyPort:
		return b.p.remove(ctx, step.ID)
	case step.Kind != drivers.KindPort:
		return b.Backend.Apply(ctx, owner, step)
	case step.Op == plan.Create:
		return b.create(ctx, owner, step)
	}
	if b.p.join(step) {
		return nil
	}
	if err := b.p.catchUp(ctx, step); err != nil {
		return err
	}
	return b.Backend.Apply(ctx, owner, step)
}

// create takes a ready port, or makes one. One that lacks quota, or an address, gets what a ready port has.
func (b *pooled) create(ctx context.Context, owner plan.Owner, step *plan.Step) error {
	if taken, err := b.p.take(ctx, step); taken || err != nil {
		return err
	}
	attrs := step.Attrs
	err := b.Backend.Apply(ctx, owner, step)
	if err != nil && b.p.giveWay(ctx, *step, err) {
		step.Attrs = attrs
		err = b.Backend.Apply(ctx, owner, step)
	}
	return err
}

// applyPool takes down what a driver wants of a pool, which no request has to be made for.
func (p *Pools) applyPool(step *plan.Step) {
	p.env.State.Update(func(tx *state.Tx) {
		switch step.Op { //nolint:exhaustive // the others are of other kinds
		case plan.Create:
			k := step.Identity.Key()
			step.ID = k.Driver + "/" + k.UID + "/" + k.Name
			p.pools[step.ID] = &pool{Observed: plan.Observed{
				Kind: step.Kind, ID: step.ID, Identity: step.Identity, Managed: true, Attrs: step.Attrs,
				Tags: step.Identity.Tags(), Description: step.Identity.Description(),
			}}
			tx.Arrive(p.pools[step.ID].Observed)
		case plan.Update:
			if pool := p.pools[step.ID]; pool != nil {
				pool.Attrs = merged(pool.Attrs, step.Attrs)
				tx.Arrive(pool.Observed)
			}
		case plan.Delete:
			delete(p.pools, step.ID)
			tx.Depart(step.Kind, step.ID)
		}
	})
	p.look()
}

// remove deletes a ready port, unless somebody has taken it, or may have.
func (p *Pools) remove(ctx context.Context, id string) error {
	var failure *backend.Failure
	p.env.State.Update(func(tx *state.Tx) {
		o, there := tx.Cache.Get(KindReadyPort, id)
		switch {
		case !there || p.busy[id]:
			failure = &backend.Failure{Phase: state.Waiting, RequeueAfter: time.Second, Quiet: true, Err: errTaken}
		case p.mayBeTaken(o):
			failure = &backend.Failure{Phase: state.Waiting, RequeueAfter: time.Second, Quiet: true, Err: errUnsettled}
		default:
			p.busy[id] = true
		}
	})
	if failure != nil {
		return failure
	}
	return p.drop(ctx, id)
}

// drop deletes a ready port that is marked as busy.
func (p *Pools) drop(ctx context.Context, id string) error {
	err := p.inner.Remove(ctx, plan.Step{Op: plan.Delete, Kind: drivers.KindPort, ID: id})
	p.env.State.Update(func(tx *state.Tx) {
		if delete(p.busy, id); err == nil {
			tx.Depart(KindReadyPort, id)
		}
	})
	if err != nil {
		return &backend.Failure{Phase: state.Failing, Backoff: true, Err: err}
	}
	return nil
}

type metrics struct {
	taken      *prometheus.CounterVec
	collectors []prometheus.Collector
}

// The outcomes of creates of ports on networks with a pool.
const (
	outcomeReady   = "ready"
	outcomeChanged = "changed"
	outcomeEmpty   = "empty"
)

func (p *Pools) newMetrics() metrics {
	taken := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "raven_port_pool_takes_total",
		Help: "Creates of ports on networks with a port pool, by what they found: ready is a port that fits, changed one " +
			"that was changed by a request first, empty none.",
	}, []string{"found"})
	for _, found := range []string{outcomeReady, outcomeChanged, outcomeEmpty} {
		taken.WithLabelValues(found)
	}
	gauge := func(name, help string, value func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() (n float64) {
			p.env.State.View(func(*state.Tx) { n = float64(value()) })
			return n
		})
	}
	return metrics{taken: taken, collectors: []prometheus.Collector{
		taken,
		gauge("raven_port_pool_ready", "Ready ports in all port pools.", func() (n int) {
			for _, list := range p.ready {
				n += len(list)
			}
			return n
		}),
		gauge("raven_port_pool_behind", "Ports that were taken from a port pool and are not written as their owners' yet.",
			func() int { return len(p.behind) }),
	}}
}
