// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"errors"
	"sync"
)

// ErrFenced is in the error of a change that was not sent because this process may not change the cloud (any more): it
// does not lead.
var ErrFenced = errors.New("this process may not change the cloud: it does not lead")

// fence lets changes pass, or not. At first it lets everything pass.
type fence struct {
	mu    sync.Mutex
	shut  bool
	term  context.Context //nolint:containedctx // of the one who may change things; nil is for ever
	valid func() bool
}

// Fence refuses every change from now on, until Admit. Reading goes on. It is called before the first change.
func (c *Connection) Fence() {
	c.fence.mu.Lock()
	defer c.fence.mu.Unlock()
	c.fence.shut = true
}

// Admit lets changes pass until term ends; those that are under way then are broken off. Beside that, valid is asked
// before each: it must neither block nor ask the Connection.
func (c *Connection) Admit(term context.Context, valid func() bool) {
	c.fence.mu.Lock()
	defer c.fence.mu.Unlock()
	c.fence.shut, c.fence.term, c.fence.valid = false, term, valid
}

// Pass returns the context of another change than one of the cloud, if the fence lets it pass now: one fence for all
// that only one process may do. It must be cancelled; it ends with the term. The error is ErrFenced.
func (c *Connection) Pass(ctx context.Context) (context.Context, context.CancelFunc, error) {
	return c.fence.pass(ctx)
}

// pass returns the context of a change that may be sent now. It must be cancelled.
func (f *fence) pass(ctx context.Context) (context.Context, context.CancelFunc, error) {
	f.mu.Lock()
	shut, term, valid := f.shut, f.term, f.valid
	f.mu.Unlock()
	if shut || term != nil && (term.Err() != nil || !valid()) {
		return nil, nil, ErrFenced
	}
	ctx, cancel := context.WithCancelCause(ctx)
	if term == nil {
		return ctx, func() { cancel(nil) }, nil
	}
	unhook := context.AfterFunc(term, func() { cancel(ErrFenced) })
	return ctx, func() { unhook(); cancel(nil) }, nil
}
