// SPDX-License-Identifier: Apache-2.0

// Package state holds what the loop and the backends know: the resources that were observed, the objects and what
// their drivers want, who waits for what, and how far every driver has come. It must never do I/O, log, or call a
// driver.
//
// There is one lock, and it has a type: what needs it hangs on Tx, or on LoopTx where only the loop may do it, and
// can be called inside of Update and View only. A backend guards its own bookkeeping the same way, by methods that
// take a Tx.
package state

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// Shared is the driver of the object that owns claimed resources; see plan.Owner.
const Shared = plan.Shared

// Config is what a state is made for.
type Config struct {
	// Cluster is the cluster id that every identity carries.
	Cluster string
	// Drivers names every enabled driver, also those that join later: what is shared ends only when all have answered.
	Drivers []string
	// Kinds describes the kinds of resources.
	Kinds *plan.Kinds
	// Clock tells the time.
	Clock clock.PassiveClock
	// MaxDeletes and MaxDeleteShare bound what a replay may delete of objects that still exist: a count, and a share of
	// what exists.
	MaxDeletes     int
	MaxDeleteShare float64
	// SoftWait is how long a resource, to be made or changed, waits for what its soft references lead to.
	SoftWait time.Duration
	// MemoryPerDriver bounds what the Sets of one driver take of memory, in bytes. 0: it grows with the driver's objects.
	MemoryPerDriver int
	// Deliver is given the requests that an update has woken, after the lock was released.
	Deliver func([]Request)
}

// Hooks are what a backend adds to the state for its kinds. Each is called with the lock held and must do no I/O. A
// nil hook does nothing.
type Hooks struct {
	// Backend names the backend for people, such as "the load balancing service".
	Backend string
	// Kinds are the kinds that the backend keeps.
	Kinds []drivers.Kind
	// Refine prepares what an owner wants for the plan: hints, places, further resources.
	Refine func(tx *Tx, w *Want)
	// Arrived is called when a resource was put into the cache, with what was known of it before, if anything was.
	Arrived func(tx *Tx, before *plan.Observed, now plan.Observed)
	// Departed is called when a resource has left the cache.
	Departed func(tx *Tx, gone plan.Observed)
	// Forgotten is called when an object is forgotten, which has nothing left.
	Forgotten func(tx *Tx, id plan.Owner)
	// Document renders a document that is made of more than one resource, or of a part of one, such as the subnets of a
	// port; missing are resources that have to be read before. Without one, or where handled is false, a document is the
	// resource's own.
	Document func(tx *Tx, o plan.Observed, attribute string) (doc any, missing []ResourceKey, handled bool)
	// Unsupported lists the best-effort attributes of a kind that the credentials may not set.
	Unsupported func(drivers.Kind) []string
}

// backend is what is known of one backend.
type backend struct {
	Hooks
	listed bool  // it was listed once
	absent bool  // the cloud had no such service last time
	err    error // why it could not be listed last time
}

// known says whether it is known what the backend has: it was listed once, or there is none.
func (b *backend) known() bool { return b.listed || b.absent }

// Loop is the state for the loop.
type Loop struct{ *State }

// State is what the daemon knows. Nothing in it is needed after a restart: it is made again from the cloud and from
// the drivers' answers.
type State struct {
	deliver func([]Request)
	changes atomic.Uint64

	mu sync.Mutex
	tx LoopTx
}

// Changes counts the updates, without the lock: who has read the state before knows by it whether to read it again.
func (s *State) Changes() uint64 { return s.changes.Load() }

// Tx is the state while it is locked. It must not be kept.
type Tx struct {
	// Cache is what was observed.
	Cache *Cache

	config   Config
	kinds    *plan.Kinds
	backends []*backend
	byKind   map[drivers.Kind]*backend

	objects   map[plan.Owner]*Object
	byRequest map[Request]map[plan.Owner]bool
	drivers   map[string]*DriverState
	roles     map[drivers.Role]map[exporter]bool
	claims    map[string]map[plan.Owner]bool
	// undecided are the names that Sets leave undecided; it shows in the cloud whether one is a claim's.
	undecided map[string]map[plan.Owner]bool
	// disputed are claims that disagree, with the reason.
	disputed map[string]string
	// contributions are by target role.
	contributions map[drivers.Role]map[plan.Owner][]drivers.Contribution
	waiters       map[Key]map[*Object]bool
	// signals counts how often something scarce may have become free, so that a refusal that crossed with it is noticed.
	signals map[Key]uint64
	// unknown are creates whose outcome is unknown.
	unknown map[IdentityKey]UnknownCreate
	lookups map[drivers.Lookup]plan.Observed
	// foreign are resources that are not this cluster's, but that documents of its resources show.
	foreign map[ResourceKey]plan.Observed
	// deferred are the objects that hold something back until every driver has answered.
	deferred map[*Object]bool

	woken []Request
	after []func()
}

// LoopTx is the state while it is locked, for the loop.
type LoopTx struct {
	*Tx
	// Orphans counts in how many checks in a row an owner was without its object.
	Orphans map[plan.Owner]int
	// Synced is when the cloud was last observed as a whole; zero: never.
	Synced time.Time
	// Standby says that nothing may be done yet, since another process leads.
	Standby bool
}

// New returns a state that knows nothing.
func New(c Config) *Loop {
	tx := &Tx{
		Cache:  NewCache(c.Kinds),
		config: c, kinds: c.Kinds, byKind: map[drivers.Kind]*backend{},
		objects: map[plan.Owner]*Object{}, byRequest: map[Request]map[plan.Owner]bool{}, drivers: map[string]*DriverState{},
		roles: map[drivers.Role]map[exporter]bool{}, claims: map[string]map[plan.Owner]bool{},
		undecided: map[string]map[plan.Owner]bool{}, disputed: map[string]string{},
		contributions: map[drivers.Role]map[plan.Owner][]drivers.Contribution{},
		waiters:       map[Key]map[*Object]bool{}, signals: map[Key]uint64{}, unknown: map[IdentityKey]UnknownCreate{},
		lookups: map[drivers.Lookup]plan.Observed{}, foreign: map[ResourceKey]plan.Observed{}, deferred: map[*Object]bool{},
	}
	for _, name := range c.Drivers {
		tx.drivers[name] = &DriverState{Name: name, owns: name}
	}
	return &Loop{&State{deliver: c.Deliver, tx: LoopTx{Tx: tx, Orphans: map[plan.Owner]int{}}}}
}

// Update runs f while the state is locked. What f wakes is delivered, and what it has put off with After is run, when
// the lock is released.
func (s *State) Update(f func(*Tx)) { s.update(func(tx *LoopTx) { f(tx.Tx) }) }

// View runs f while the state is locked. f must change nothing.
func (s *State) View(f func(*Tx)) { s.view(func(tx *LoopTx) { f(tx.Tx) }) }

// Update is State.Update with what only the loop may do.
func (l *Loop) Update(f func(*LoopTx)) { l.update(f) }

// View is State.View with what only the loop may see.
func (l *Loop) View(f func(*LoopTx)) { l.view(f) }

func (s *State) update(f func(*LoopTx)) {
	woken, after := s.locked(f)
	if len(woken) > 0 && s.deliver != nil {
		s.deliver(woken)
	}
	for _, f := range after {
		f()
	}
}

func (s *State) locked(f func(*LoopTx)) (woken []Request, after []func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		woken, after = s.tx.woken, s.tx.after
		s.tx.woken, s.tx.after = nil, nil
		s.changes.Add(1) // at the end: who sees the new number reads the new state
	}()
	f(&s.tx)
	return woken, after
}

func (s *State) view(f func(*LoopTx)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.tx)
	if len(s.tx.woken)+len(s.tx.after) > 0 {
		panic("state: a View has changed something")
	}
}

// Register joins a backend's hooks. It must be called before anything is observed.
func (l *Loop) Register(hooks Hooks) error {
	var err error
	l.update(func(tx *LoopTx) {
		b := &backend{Hooks: hooks}
		for _, kind := range hooks.Kinds {
			if other := tx.byKind[kind]; other != nil {
				err = fmt.Errorf("kind %s is kept by %s and by %s", kind, other.Backend, hooks.Backend)
				return
			}
		}
		for _, kind := range hooks.Kinds {
			tx.byKind[kind] = b
		}
		tx.backends = append(tx.backends, b)
	})
	return err
}

// After has f run once the lock is released.
func (tx *Tx) After(f func()) { tx.after = append(tx.after, f) }

// Now is the time.
func (tx *Tx) Now() time.Time { return tx.config.Clock.Now() }

// Kinds describes the kinds of resources.
func (tx *Tx) Kinds() *plan.Kinds { return tx.kinds }

// Unavailable is why resources of a kind could not be listed last time; nil: they could, or no backend keeps them.
func (tx *Tx) Unavailable(kind drivers.Kind) error {
	if b := tx.byKind[kind]; b != nil {
		return b.err
	}
	return nil
}

// Listed says whether resources of a kind were listed once, or are known not to exist. Before, nothing may be
// concluded from their absence.
func (tx *Tx) Listed(kind drivers.Kind) bool {
	b := tx.byKind[kind]
	return b == nil || b.known()
}

// SetListed notes how listing a backend's kinds went; absent says that the cloud has no such service, so that there
// is nothing to list as long as it has none. It says whether it is known now what the backend has, and was not before.
func (tx *LoopTx) SetListed(kind drivers.Kind, err error, absent bool) (first bool) {
	b := tx.byKind[kind]
	before := b.known()
	b.listed, b.absent, b.err = b.listed || err == nil, absent, err
	return !before && b.known()
}

// SetAvailable notes that a backend which was listed before can be asked again, and that all of its resources were
// taken over since. Who waits for it is woken, and who has resources of its kinds if it was unavailable. One that was
// never listed has to be listed for that.
func (tx *Tx) SetAvailable(kind drivers.Kind) {
	b := tx.byKind[kind]
	if b == nil || !b.listed {
		return
	}
	if b.err != nil {
		for _, kind := range b.Kinds {
			tx.WakeHaving(kind)
		}
	}
	b.err = nil
	tx.Wake(ByBackend(b.Backend))
}

// Unlisted names a backend that was never listed and of whose kinds a driver may have resources: it makes some, or it
// holds a role whose former holder made the alternative kind; "" if there is none. Without a driver's name it is any
// backend that was never listed.
func (tx *Tx) Unlisted(driver string) string {
	d := tx.drivers[driver]
	for _, b := range tx.backends {
		if b.known() {
			continue
		}
		for _, kind := range b.Kinds {
			if d == nil || len(d.kinds) == 0 || d.kinds[kind] || d.owns != d.Name && d.kinds[tx.kinds.Of(kind).Alternative] {
				return b.Backend
			}
		}
	}
	return ""
}
