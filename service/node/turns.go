// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"sync"
)

// signal wakes all who wait for a change.
type signal struct {
	mu sync.Mutex // guards ch
	ch chan struct{}
}

func newSignal() *signal { return &signal{ch: make(chan struct{})} }

// next returns a channel that is closed at the next change.
func (s *signal) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ch
}

func (s *signal) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.ch)
	s.ch = make(chan struct{})
}

// turns has the work on one sandbox's interface done one after the other.
type turns struct {
	mu   sync.Mutex // guards held
	held map[string]*turn
}

type turn struct {
	cancel context.CancelCauseFunc
	ended  chan struct{}
}

var errOvertaken = errors.New("a DEL of the same sandbox has ended it")

// take waits for the turn of a key. It returns a context that ends with the given one, or when another one overtakes
// this, and what ends the turn. Who overtakes has the turn that is under way ended.
func (t *turns) take(ctx context.Context, key string, overtake bool) (context.Context, func(), error) {
	for {
		mine, done, other := t.tryTake(ctx, key)
		if done != nil {
			return mine, done, nil
		}
		if overtake {
			other.cancel(errOvertaken)
		}
		select {
		case <-other.ended:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

// tryTake takes the turn of a key if it is free, or else returns who has it.
func (t *turns) tryTake(ctx context.Context, key string) (context.Context, func(), *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if other := t.held[key]; other != nil {
		return nil, nil, other
	}
	mine, cancel := context.WithCancelCause(ctx)
	one := &turn{cancel: cancel, ended: make(chan struct{})}
	if t.held == nil {
		t.held = map[string]*turn{}
	}
	t.held[key] = one
	return mine, func() {
		cancel(nil)
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.held, key)
		close(one.ended)
	}, nil
}
