// SPDX-License-Identifier: Apache-2.0

package ovn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/kuryr/raven/service/plan"
)

// mostTogether bounds how many changes go in one transaction: what one of them breaks, all of them have to repeat.
const mostTogether = 500

// mostBytes bounds the text of a transaction that many changes share, so that the server is not busy with one for
// long. A single change may have more.
const mostBytes = 1 << 20

// rereadPause is the least time between two connections that are given up because the database has refused something.
const rereadPause = time.Minute

// change is one change that waits to be written.
type change struct {
	ctx      context.Context //nolint:containedctx // of the caller, who waits for it
	resource Resource
	build    func(*rowIndex, *transaction) error
	done     chan error // gets exactly one
}

// write has a change written, together with what else waits, and returns the resource as it is then.
func (n *Northbound) write(
	ctx context.Context, r Resource, build func(*rowIndex, *transaction) error,
) (plan.Observed, error) {
	if !r.Kind.Northbound() {
		return plan.Observed{}, &InvalidError{fmt.Sprintf("%s is no kind of OVN's northbound database", r.Kind)}
	}
	c := &change{ctx: ctx, resource: r, build: build, done: make(chan error, 1)}
	n.hold(r, 1)
	defer n.hold(r, -1)
	select {
	case n.changes <- c:
	case <-ctx.Done():
		return plan.Observed{}, &UnavailableError{ctx.Err()}
	case <-n.stopped:
		return plan.Observed{}, ErrClosed
	}
	select {
	case err := <-c.done:
		if err != nil {
			return plan.Observed{}, err
		}
	case <-n.stopped:
		return plan.Observed{}, ErrClosed
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.session == nil {
		return plan.Observed{}, n.unavailable()
	}
	o, there := n.index.observe(r)
	if !there {
		delete(n.reported, r)
		return plan.Observed{}, &GoneError{ID: r.ID}
	}
	n.reported[r] = o
	return o, nil
}

// commitLoop writes what waits: all of it in one transaction, and then what came meanwhile.
func (n *Northbound) commitLoop(stop <-chan struct{}) {
	for {
		var waiting []*change
		select {
		case <-stop:
			return
		case c := <-n.changes:
			waiting = append(waiting, c)
		}
	gather:
		for len(waiting) < mostTogether {
			select {
			case c := <-n.changes:
				waiting = append(waiting, c)
			default:
				break gather
			}
		}
		n.commit(waiting)
	}
}

// commit writes changes, as many in one transaction as fit. If the database refuses it, each is tried alone, so that
// the refusal meets who deserves it.
func (n *Northbound) commit(changes []*change) {
	for len(changes) > 0 {
		s, t, in, rest := n.gather(changes)
		changes = rest
		if len(in) == 0 {
			continue
		}
		var refused *refusedError
		err := n.transact(in[0].ctx, s, t)
		switch {
		case !errors.As(err, &refused):
		case len(in) > 1:
			for _, c := range in {
				n.commit([]*change{c})
			}
			continue
		case !wrongByItself(err) && n.mayReread():
			s.GiveUp(err) // it is not as the row index has it
		}
		finish(in, err)
	}
}

// gather makes one transaction of changes, and returns those in it and those that are left for the next. Who has
// nothing to write is done.
func (n *Northbound) gather(changes []*change) (s *session, t *transaction, in, rest []*change) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t = &transaction{taking: map[string]taker{}}
	if n.session == nil {
		finish(changes, n.unavailable())
		return nil, t, nil, nil
	}
	for i, c := range changes {
		if t.size > mostBytes {
			return n.session, t, in, changes[i:]
		}
		alone := &transaction{taking: t.taking} // what is refused before it is sent leaves nothing behind
		if err := c.build(n.index, alone); err != nil {
			c.done <- err
			continue
		}
		if alone.empty() {
			c.done <- nil
			continue
		}
		t.add(alone)
		in = append(in, c)
	}
	return n.session, t, in, nil
}

// wrongByItself says whether a transaction was refused for what is in it, whatever is in the database.
func wrongByItself(err error) bool {
	var broken *ovsdb.ConstraintViolation
	return errors.As(err, &broken)
}

// mayReread says, no more than once in rereadPause, that the row index may be wrong.
func (n *Northbound) mayReread() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.config.Clock.Now()
	if !n.reread.IsZero() && now.Sub(n.reread) < rereadPause {
		return false
	}
	n.reread = now
	return true
}

func finish(changes []*change, err error) {
	for _, c := range changes {
		c.done <- err
	}
}

// add joins another transaction.
func (t *transaction) add(other *transaction) {
	t.ops = append(t.ops, other.ops...)
	t.size += other.size
	for chassis, c := range other.chassis {
		all := t.change(chassis)
		all.uuid = c.uuid
		maps.Copy(all.values, c.values)
	}
	for key, references := range other.sets {
		for to, there := range references {
			t.refer(key.table, key.uuid, key.column, to, there)
		}
	}
}

// refusedError is a transaction that the database has refused.
type refusedError struct{ err error }

func (r *refusedError) Error() string { return "the database refused it: " + r.err.Error() }
func (r *refusedError) Unwrap() error { return r.err }

// transact sends a transaction, and takes over what it has changed before it returns. If it is not answered nothing
// is known: the connection is given up, so that all is read anew. It ends with the session, at a failover or a stop,
// however long it might have taken.
func (n *Northbound) transact(ctx context.Context, s *session, t *transaction) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.config.Timeout)
	defer cancel()
	ended := make(chan struct{})
	defer close(ended)
	n.work.Go(func() {
		select {
		case <-s.Lost():
			cancel()
		case <-ended:
		}
	})
	if n.config.Pass != nil {
		passing, done, err := n.config.Pass(ctx)
		if err != nil {
			return err
		}
		defer done()
		ctx = passing
	}
	ops := t.operations()
	began := n.config.Clock.Now()
	results, err := s.transact(ctx, ops)
	took := n.config.Clock.Since(began)
	if err != nil {
		select {
		case <-s.Lost():
			err = s.Err()
		default:
		}
		n.stats.transaction("unanswered", len(ops), took)
		s.GiveUp(fmt.Errorf("a transaction was not answered: %w", err))
		return &UnavailableError{fmt.Errorf("a transaction of %d operations was not answered: %w", len(ops), err)}
	}
	if details, err := ovsdb.CheckOperationResults(results, ops); err != nil {
		n.stats.transaction("refused", len(ops), took)
		for _, detail := range details {
			err = detail
		}
		return &refusedError{err}
	}
	n.stats.transaction("committed", len(ops), took)
	n.retake(s, ops)
	return nil
}

// retake takes over the rows of a transaction from the connection's copy, which the database brings up to date before
// it answers.
func (n *Northbound) retake(s *session, ops []ovsdb.Operation) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.session != s {
		return
	}
	t := newDirtySet()
	for _, op := range ops {
		uuid := op.UUID
		if uuid == "" && len(op.Where) > 0 {
			if at, ok := op.Where[0].Value.(ovsdb.UUID); ok {
				uuid = at.GoUUID
			}
		}
		s.take(n.index, op.Table, uuid, t)
	}
	n.mark(t)
}
