// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// firstTries is how often the first observation is tried, ever later, where another try may help.
const firstTries = 5

// Observe lists what this cluster has in all backends. It must succeed once before Run. What may pass is tried again
// a few times; the error is then the last one.
func (e *Engine) Observe(ctx context.Context) error {
	wait := e.config.BackoffBase
	for try := 1; ; try++ {
		err := e.observe(ctx)
		var passing *backend.Failure
		if err == nil || try == firstTries || !errors.As(err, &passing) {
			return err
		}
		wait = max(2*wait, min(passing.RequeueAfter, e.config.BackoffMax))
		e.log.WarnContext(ctx, "listing the cloud failed, requeued", "after", wait, "error", err)
		timer := e.clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C():
		}
	}
}

// observe lists all backends and brings the cache up to date. A failed list changes nothing.
func (e *Engine) observe(ctx context.Context) (err error) {
	e.observing.do(func() { err = e.observeAll(ctx) })
	return err
}

// listing is what one backend has listed.
type listing struct {
	backend *registered
	list    []plan.Observed
	err     error
}

func (e *Engine) observeAll(ctx context.Context) error {
	var begun uint64
	e.state.View(func(tx *state.LoopTx) { begun = tx.Cache.Sequence() })
	listings := make([]listing, 0, len(e.backends))
	for _, b := range e.backends {
		list, err := b.List(ctx, e.config.Cluster)
		if err != nil && b.Required {
			return fmt.Errorf("listing this cluster's resources in %s: %w", b.Name, err)
		}
		if err == nil {
			e.metrics.list(b.Name, e.clock.Now())
		}
		listings = append(listings, listing{b, list, err})
	}
	e.take(listings, begun)
	for _, l := range listings {
		if l.err != nil && !errors.Is(l.err, backend.ErrAbsent) {
			if ctx.Err() == nil {
				e.log.WarnContext(ctx, "a backend could not be listed; nothing is concluded from it", "backend", l.backend.Name,
					"error", l.err)
			}
			if !l.backend.Follows {
				e.driftAfter(e.config.SlowRetry)
			}
		}
	}
	e.checkLookups(ctx)
	return nil
}

// take brings the cache up to date with lists that were begun at a sequence.
func (e *Engine) take(listings []listing, begun uint64) {
	var (
		drifted   []state.Drift
		first     bool
		available bool
	)
	e.state.Update(func(tx *state.LoopTx) {
		listed := map[drivers.Kind]bool{}
		var all []plan.Observed
		for _, l := range listings {
			available = e.noteListed(tx, l) || available
			if l.err != nil {
				continue
			}
			for _, kind := range l.backend.kinds {
				listed[kind] = true
			}
			all = append(all, l.list...)
		}
		drifted = tx.Observe(func(kind drivers.Kind) bool { return listed[kind] }, all, begun)
		for _, l := range listings {
			if l.backend.Listed != nil {
				l.backend.Listed(tx.Tx, l.err)
			}
		}
		first = tx.Synced.IsZero()
		tx.Synced = tx.Now()
		tx.ForgetRead()
	})
	if !first {
		e.drifted(drifted)
	}
	if available {
		for _, w := range e.all() {
			e.finishEpoch(w.name)
		}
	}
}

// noteListed notes how listing a backend went. Who waits for it is woken when it is available again. It says whether
// it never was before.
func (e *Engine) noteListed(tx *state.LoopTx, l listing) (first bool) {
	kinds := l.backend.kinds
	if len(kinds) == 0 {
		return false
	}
	before := tx.Unavailable(kinds[0])
	first = tx.SetListed(kinds[0], l.err, errors.Is(l.err, backend.ErrAbsent))
	if first || l.err == nil && before != nil {
		tx.Wake(state.ByBackend(l.backend.Name))
		for _, kind := range kinds {
			tx.WakeHaving(kind)
		}
	}
	return first
}

// The bounds of what is told of one drift check, and of what is kept of all.
const (
	maxDriftLines = 100
	maxDrifts     = 100
)

// DriftStatus is a resource that others have changed or deleted, as a check found it.
type DriftStatus struct {
	Found time.Time    `json:"found"`
	Kind  drivers.Kind `json:"kind"`
	ID    string       `json:"id"`
	Of    string       `json:"of"`   // the object that it is for
	What  string       `json:"what"` // what differs: "is gone", "mtu is 1300, was 1500"
}

// drifts are the last resources that others have changed.
type drifts struct {
	mu   sync.Mutex
	last []DriftStatus
}

// Drifts returns the last resources that others have changed, the latest first.
func (e *Engine) Drifts() []DriftStatus {
	e.drifts.mu.Lock()
	defer e.drifts.mu.Unlock()
	list := slices.Clone(e.drifts.last)
	slices.Reverse(list)
	return list
}

// drifted counts, logs and keeps for the status resources that others have changed.
func (e *Engine) drifted(changes []state.Drift) {
	now := e.clock.Now()
	for i, c := range changes {
		e.metrics.drift(c)
		if i < maxDriftLines {
			e.log.Info("others have changed a resource", "kind", c.Kind, "id", c.ID, "of", c.Of, "what", c.What)
		}
	}
	if len(changes) > maxDriftLines {
		e.log.Info("others have changed further resources", "resources", len(changes)-maxDriftLines)
	}
	e.drifts.mu.Lock()
	defer e.drifts.mu.Unlock()
	for _, c := range changes {
		e.drifts.last = append(e.drifts.last, DriftStatus{Found: now, Kind: c.Kind, ID: c.ID, Of: c.Of, What: c.What})
	}
	if more := len(e.drifts.last) - maxDrifts; more > 0 {
		e.drifts.last = slices.Delete(e.drifts.last, 0, more)
	}
}

// driftLoop lists at intervals, with jitter, and once more when a create that was cut off before this process started
// can no longer be carried out.
func (e *Engine) driftLoop(ctx context.Context) {
	e.driftAfter(e.config.AmbiguousWait)
	defer e.stopTimers()
	for {
		wait := e.config.DriftInterval*9/10 + rand.N(e.config.DriftInterval/5+1) //nolint:gosec // jitter
		timer := e.clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		case <-e.driftNow:
			timer.Stop()
		}
		if err := e.observe(ctx); err != nil && ctx.Err() == nil {
			e.log.Warn("the drift check failed; nothing is concluded from it", "error", err)
			e.driftAfter(e.config.SlowRetry)
		}
		e.requestCollection()
	}
}

func (e *Engine) requestDrift() {
	select {
	case e.driftNow <- struct{}{}:
	default:
	}
}

// timers are drift checks that are due at a set time.
type timers struct {
	mu      sync.Mutex
	pending map[int64]func() bool // by the slot of time in which they are due
	stopped bool
}

// driftAfter asks for a drift check after a time, or a little later: those that are due about the same time are one.
func (e *Engine) driftAfter(d time.Duration) {
	e.timers.mu.Lock()
	defer e.timers.mu.Unlock()
	if e.timers.stopped {
		return
	}
	if e.timers.pending == nil {
		e.timers.pending = map[int64]func() bool{}
	}
	width := max(e.config.AmbiguousWait/4, time.Millisecond)
	now := e.clock.Now()
	slot := now.Add(d).UnixNano()/int64(width) + 1
	if e.timers.pending[slot] != nil {
		return
	}
	timer := e.clock.AfterFunc(time.Unix(0, slot*int64(width)).Sub(now), func() {
		e.timers.mu.Lock()
		delete(e.timers.pending, slot)
		e.timers.mu.Unlock()
		e.requestDrift()
	})
	e.timers.pending[slot] = timer.Stop
}

func (e *Engine) stopTimers() {
	e.timers.mu.Lock()
	defer e.timers.mu.Unlock()
	e.timers.stopped = true
	for _, stop := range e.timers.pending {
		stop()
	}
}
