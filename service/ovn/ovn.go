// SPDX-License-Identifier: Apache-2.0

// Package ovn keeps load balancers and their groups in OVN's northbound database: it is the only user of libovsdb. It
// must never touch a row that does not carry the cluster's identity, but for its own groups in the rows of switches
// and routers, and never let a connection that is lost pass for an empty database.
//
//	callers ──write──▶ changes ──commit: all that waits, one transaction──▶ server
//	   ▲                                                                     │
//	   └─ Follower ◀── notify ◀── row index, by resource ◀───────────────────┘ monitor cache, kept by updates
package ovn

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/ovn/nbdb"
	"github.com/kuryr/raven/service/plan"
)

// Follower is told what changes by itself. It is called from one goroutine, and must not wait for a write.
type Follower interface {
	// Changed says that resources of Raven's are not as they were last listed, written or told of.
	Changed(resources []Resource)
	// Arrived names rows that are there now: switches and routers of Neutron's by name, groups of Raven's by ID.
	Arrived(rows []string)
	// Back says that the database can be asked again, or for the first time.
	Back()
}

// Resource names a load balancer or a group.
type Resource struct {
	Kind drivers.Kind
	ID   string
}

// Northbound is a connection to OVN's northbound database, which lasts: it is made again whenever it is lost. It is
// safe for concurrent use.
type Northbound struct {
	config    Config
	log       *slog.Logger
	stats     *stats
	endpoints []string // of the run loop; the last good one first
	changes   chan *change
	stopped   chan struct{}
	once      sync.Once // of closing stopped
	cancel    context.CancelFunc
	work      sync.WaitGroup
	first     chan struct{} // closed by the first session
	wake      chan struct{}

	mu       sync.Mutex // guards what follows
	session  *session   // nil: there is none
	index    *rowIndex  // of the session
	err      error      // why there is no session
	since    time.Time  // of the session, or of its absence
	follower Follower
	// reported is what was last listed, written or told of each resource; writing counts the writes under way.
	reported map[Resource]plan.Observed
	writing  map[Resource]int
	dirty    *dirtySet
	back     bool // it has to be told that there is a session
	reread   time.Time
	tries    int
}

// Open begins to connect, and goes on with that until Close. What is wrong with the configuration is an error; that
// no server answers is none.
func Open(ctx context.Context, c Config, log *slog.Logger) (*Northbound, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n := &Northbound{
		config: c, log: log, stats: newStats(), endpoints: slices.Clone(c.Endpoints), cancel: cancel,
		changes: make(chan *change, mostTogether), stopped: make(chan struct{}), first: make(chan struct{}),
		wake: make(chan struct{}, 1),
		err:  errors.New("the first connection is being made"), since: c.Clock.Now(), index: newRowIndex(c.Cluster),
		reported: map[Resource]plan.Observed{}, writing: map[Resource]int{}, dirty: newDirtySet(),
	}
	n.work.Go(func() { n.run(running) })
	n.work.Go(func() { n.commitLoop(running.Done()) })
	n.work.Go(func() { n.notifyLoop(running.Done()) })
	return n, nil
}

// Close ends the connection. Writes under way end with ErrClosed.
func (n *Northbound) Close() {
	n.cancel()
	n.work.Wait()
	n.once.Do(func() { close(n.stopped) })
}

// Follow sets the follower that is told of changes from now on, in place of the one before; nil: none.
func (n *Northbound) Follow(f Follower) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.follower = f
	n.back = n.session != nil
	n.signal()
}

// WaitConnected waits for the first connection. The error says why there was none before ctx ended.
func (n *Northbound) WaitConnected(ctx context.Context) error {
	select {
	case <-n.first:
		return nil
	case <-ctx.Done():
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.unavailable()
	}
}

// run keeps a session, and waits ever longer between two attempts that fail.
func (n *Northbound) run(ctx context.Context) {
	wait := n.config.BackoffMin
	for ctx.Err() == nil {
		began := n.config.Clock.Now()
		s, err := n.connect(ctx)
		if err == nil {
			n.activate(s)
			n.log.Info("connected to OVN's northbound database", "endpoint", s.endpoint)
			n.work.Go(func() { n.probe(ctx, s) })
			select {
			case <-ctx.Done():
				s.GiveUp(ErrClosed)
			case <-s.Lost():
			}
			err = s.Err()
			n.leave(s)
			if n.config.Clock.Since(began) > n.config.BackoffMax {
				wait = n.config.BackoffMin
			}
		}
		if ctx.Err() != nil {
			return
		}
		n.missed(ctx, err, wait)
		timer := n.config.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C():
		}
		timer.Stop()
		wait = min(2*wait, n.config.BackoffMax)
	}
}

// activate makes a session the one that is used: its rows are read as a whole, and what differs from what was known is
// told.
func (n *Northbound) activate(s *session) {
	n.mu.Lock()
	defer n.mu.Unlock()
	b, t := newRowIndex(n.config.Cluster), newDirtySet()
	b.templates = !s.northbound.Missing[nbdb.ChassisTemplateVarTable]
	for _, table := range []string{
		nbdb.LoadBalancerGroupTable, nbdb.LoadBalancerTable, nbdb.LogicalSwitchTable, nbdb.LogicalRouterTable,
		nbdb.ChassisTemplateVarTable,
	} {
		for uuid, m := range s.rows.Table(table).RowsShallow() {
			takeRow(b, table, uuid, m, t)
		}
	}
	for r := range n.reported {
		t.ids[r] = true // it may be gone
	}
	n.session, n.index, n.err, n.since, n.back, n.tries = s, b, nil, n.config.Clock.Now(), true, 0
	n.stats.connected()
	n.mark(t)
	select {
	case <-n.first:
	default:
		close(n.first)
	}
}

// Templates says whether the database has the table for what differs by chassis, as OVN has since 22.12. Without a
// connection it is supposed to.
func (n *Northbound) Templates() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.session == nil || n.index.templates
}

// leave ends the use of a session.
func (n *Northbound) leave(s *session) {
	n.mu.Lock()
	n.session, n.err, n.since, n.back = nil, s.Err(), n.config.Clock.Now(), false
	n.mu.Unlock()
	s.Close()
}

// missed notes that there is no session, and tells once in a while.
func (n *Northbound) missed(ctx context.Context, err error, wait time.Duration) {
	n.mu.Lock()
	n.err = err
	n.tries++
	tries := n.tries
	n.mu.Unlock()
	level := slog.LevelDebug
	if tries == 1 || tries%20 == 0 {
		level = slog.LevelWarn
	}
	n.log.Log(ctx, level, "OVN's northbound database is unreachable; what concerns it waits",
		"tries", tries, "again", wait,
		"error", err)
}

// unavailable returns the error of what cannot be asked now. The lock is held.
func (n *Northbound) unavailable() error {
	err := n.err
	if err == nil {
		err = errors.New("the connection was lost")
	}
	return &UnavailableError{err}
}

// updated takes over the rows that the server has changed.
func (n *Northbound) updated(s *session, rows ovsdb.TableUpdates2) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.session != s {
		return // all is read later, or not used any more
	}
	t := newDirtySet()
	for table, changed := range rows {
		for uuid := range changed {
			s.take(n.index, table, uuid, t)
		}
	}
	n.mark(t)
}

// mark notes what may have changed. The lock is held.
func (n *Northbound) mark(t *dirtySet) {
	maps.Copy(n.dirty.ids, t.ids)
	maps.Copy(n.dirty.rows, t.rows)
	n.signal()
}

func (n *Northbound) signal() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// hold keeps what is being written from being told: whoever writes it learns what came of it.
func (n *Northbound) hold(r Resource, by int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.writing[r] += by; n.writing[r] == 0 {
		delete(n.writing, r)
		if n.dirty.ids[r] {
			n.signal()
		}
	}
}

// notifyLoop tells the follower what has changed by itself.
func (n *Northbound) notifyLoop(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-n.wake:
		}
		f, changed, rows, back := n.news()
		if f == nil {
			continue
		}
		if back {
			f.Back()
		}
		if len(rows) > 0 {
			f.Arrived(rows)
		}
		if len(changed) > 0 {
			f.Changed(changed)
		}
	}
}

// news takes what is to be told. As long as there is no session there is none.
func (n *Northbound) news() (f Follower, changed []Resource, rows []string, back bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.session == nil || n.follower == nil {
		return nil, nil, nil, false
	}
	for r := range n.dirty.ids {
		if n.writing[r] > 0 {
			continue
		}
		delete(n.dirty.ids, r)
		now, there := n.index.observe(r)
		then, known := n.reported[r]
		if there == known && reflect.DeepEqual(now, then) {
			continue
		}
		n.reported[r] = now
		if !there {
			delete(n.reported, r)
		}
		changed = append(changed, r)
	}
	rows = slices.Sorted(maps.Keys(n.dirty.rows))
	clear(n.dirty.rows)
	back, n.back = n.back, false
	return n.follower, changed, rows, back
}

// List shows all resources of a kind that carry the cluster's identity. The error is an UnavailableError: then nothing
// is known.
func (n *Northbound) List(kind drivers.Kind) ([]plan.Observed, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.session == nil {
		return nil, n.unavailable()
	}
	ids := n.index.all(kind)
	out := make([]plan.Observed, 0, len(ids))
	for _, id := range ids {
		r := Resource{kind, id}
		if o, ok := n.index.observe(r); ok {
			n.reported[r] = o
			out = append(out, o)
		}
	}
	return out, nil
}

// Get shows one resource, and says whether there is one. The error is an UnavailableError: then nothing is known.
func (n *Northbound) Get(kind drivers.Kind, id string) (plan.Observed, bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.session == nil {
		return plan.Observed{}, false, n.unavailable()
	}
	o, ok := n.index.observe(Resource{kind, id})
	return o, ok, nil
}

// Clusters counts the load balancers and groups of every Raven's cluster in the database, by cluster id. The error is
// an UnavailableError.
func (n *Northbound) Clusters() (map[string]map[drivers.Kind]int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.session == nil {
		return nil, n.unavailable()
	}
	seen := map[string]map[Resource]bool{}
	note := func(kind drivers.Kind, identity plan.Identity) {
		if seen[identity.Cluster] == nil {
			seen[identity.Cluster] = map[Resource]bool{}
		}
		seen[identity.Cluster][Resource{kind, ID(kind, identity)}] = true
	}
	for _, m := range n.session.rows.Table(nbdb.LoadBalancerTable).RowsShallow() {
		if have, ok := m.(*nbdb.LoadBalancer); ok {
			if identity, ours := identityOf(have.ExternalIDs); ours {
				note(drivers.KindOVNLoadBalancer, identity)
			}
		}
	}
	for _, m := range n.session.rows.Table(nbdb.LoadBalancerGroupTable).RowsShallow() {
		if have, ok := m.(*nbdb.LoadBalancerGroup); ok {
			if identity, _, ours := parseGroup(have.Name); ours {
				note(drivers.KindOVNLoadBalancerGroup, identity)
			}
		}
	}
	clusters := map[string]map[drivers.Kind]int{}
	for id, resources := range seen {
		clusters[id] = map[drivers.Kind]int{}
		for r := range resources {
			clusters[id][r.Kind]++
		}
	}
	return clusters, nil
}
