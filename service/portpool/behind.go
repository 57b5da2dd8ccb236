// SPDX-License-Identifier: Apache-2.0

package portpool

import (
	"context"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// write is what is still to be written of a taken port.
type write struct {
	tags  []string
	attrs map[string]any // nil: they are written
	tries int
	since time.Time // when it was taken
	// under says that somebody writes it: what is wanted besides comes too late for that.
	under bool
	// free has one value while somebody writes it.
	free chan struct{}
}

// The times between two tries to write one port.
const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// write wakes a writer.
func (p *Pools) write() {
	select {
	case p.wake <- struct{}{}:
	default: // as many are awake as there are
	}
}

// writer writes taken ports until ctx ends.
func (p *Pools) writer(ctx context.Context) {
	for {
		id, wait := p.next()
		if id == "" || wait > 0 {
			var due <-chan time.Time
			if wait > 0 {
				due = p.env.Clock.After(wait)
			}
			select {
			case <-p.wake:
			case <-due:
			case <-ctx.Done():
				return
			}
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if err := p.finish(ctx, id); err != nil && ctx.Err() == nil {
			p.later(ctx, id, err)
		}
	}
}

// next returns the next port to write, or in what time there is one.
func (p *Pools) next() (id string, wait time.Duration) {
	p.env.State.Update(func(tx *state.Tx) {
		for len(p.queue) > 0 {
			id = p.queue[0]
			w := p.behind[id]
			if w == nil { // it was deleted, or written
				id, p.queue = "", p.queue[1:]
				continue
			}
			if wait = p.rest(tx, w.since); wait <= 0 {
				p.queue = p.queue[1:]
			}
			return
		}
	})
	return id, wait
}

// later queues a port again that could not be written.
func (p *Pools) later(ctx context.Context, id string, err error) {
	wait := firstRetry
	p.env.State.Update(func(*state.Tx) {
		if w := p.behind[id]; w != nil {
			wait = min(wait<<min(w.tries, 10), lastRetry)
			w.tries++
		}
	})
	p.env.Log.WarnContext(ctx, "a port that was taken from a pool could not be written, requeued", "id", id, "after", wait,
		"error", err)
	p.env.Clock.AfterFunc(wait, func() {
		p.env.State.Update(func(*state.Tx) { p.queue = append(p.queue, id) })
		p.write()
	})
}

// finish writes what is still to be written of a taken port, and takes over what came of it. Another writer is waited
// for.
func (p *Pools) finish(ctx context.Context, id string) error {
	var w *write
	p.env.State.View(func(*state.Tx) { w = p.behind[id] })
	if w == nil {
		return nil
	}
	select {
	case w.free <- struct{}{}:
		defer func() { <-w.free }()
	case <-ctx.Done():
		return ctx.Err()
	}
	still := false
	p.env.State.Update(func(*state.Tx) { still, w.under = p.behind[id] == w, true })
	if !still {
		return nil
	}
	now, err := p.rewrite(ctx, id, w)
	gone := openstack.Classify(err) == openstack.ClassNotFound
	if err != nil && !gone {
		p.env.State.Update(func(*state.Tx) { w.under = false })
		return err
	}
	p.env.State.Update(func(tx *state.Tx) {
		if p.behind[id] != w {
			return // it was deleted meanwhile
		}
		delete(p.behind, id)
		if gone {
			tx.Depart(drivers.KindPort, id)
			return
		}
		if known, ok := tx.Cache.Get(drivers.KindPort, id); ok && tx.Arrive(now) {
			tx.WakeOwner(known.Identity.Owner) // it shows more now, such as how it is bound
		}
	})
	return nil
}

// rewrite writes the tags first: they are the record of whose the port is, and what lacks then any plan repairs.
func (p *Pools) rewrite(ctx context.Context, id string, w *write) (plan.Observed, error) {
	if err := p.neutron.Retag(ctx, id, w.tags); err != nil {
		return plan.Observed{}, err
	}
	if w.attrs == nil {
		return p.inner.Get(ctx, drivers.KindPort, id)
	}
	return p.neutron.Change(ctx, id, w.attrs)
}

// join adds an update to what is still to be written of a taken port, if it may wait as well: the node of a pod that
// was scheduled a moment after it was made. It says whether that is all.
func (p *Pools) join(step *plan.Step) (joined bool) {
	for name := range step.Attrs {
		if name != "name" && name != "device_id" && name != "binding:host_id" {
			return false
		}
	}
	p.env.State.Update(func(tx *state.Tx) {
		w := p.behind[step.ID]
		known, there := tx.Cache.Get(drivers.KindPort, step.ID)
		if joined = w != nil && !w.under && there && step.Op == plan.Update; joined {
			w.attrs = merged(w.attrs, step.Attrs)
			known.Attrs = merged(known.Attrs, step.Attrs)
			tx.Arrive(known)
		}
	})
	return joined
}

// catchUp has a taken port be written before something else is done to it, and the step know what it is done to. One
// that is deleted needs no writing.
func (p *Pools) catchUp(ctx context.Context, step *plan.Step) error {
	behind := false
	p.env.State.View(func(*state.Tx) { behind = p.behind[step.ID] != nil })
	if !behind || step.Op == plan.Delete {
		return nil
	}
	if err := p.finish(ctx, step.ID); err != nil {
		return &backend.Failure{Phase: state.Failing, Backoff: true, Err: &backend.StepError{Step: *step, Err: err}}
	}
	p.env.State.View(func(tx *state.Tx) {
		if now, ok := tx.Cache.Get(step.Kind, step.ID); ok && step.Revision > 0 {
			step.Revision = now.Revision
		}
	})
	return nil
}
