// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// GroupConfig is what a Group needs. The zero value works.
type GroupConfig struct {
	// Limit is how many threads there are at once; 0 is 10, as in oslo.service. Timers do not count.
	Limit  int
	Clock  clock.Clock  // nil: the real one
	Logger *slog.Logger // nil: slog.Default()
}

// Group runs threads, at most so many at once, and timers, and ends them together: oslo.service's ThreadGroup. It is
// a Service that others embed: they add threads and timers in their Start.
//
// It is for users of this package. Raven does not use it: its goroutines need neither a common bound nor names, and end
// with a context, for which sync.WaitGroup is enough.
type Group struct {
	config  GroupConfig
	slots   chan struct{}
	stopped chan struct{}

	mu      sync.Mutex // guards what follows
	changed *sync.Cond
	members map[*Thread]bool
	closed  bool
	err     error // the first of a thread
}

// Thread is a thread or timer of a Group.
type Thread struct {
	name  string
	timer bool
	// halt ends a timer between two calls; cut cancels the context of what runs.
	halt, cut context.CancelFunc
	done      chan struct{}
	value     any
	err       error
}

// ErrStopped is returned for what is added to a Group that was stopped.
var ErrStopped = errors.New("the group was stopped")

// NewGroup returns a group without threads.
func NewGroup(c GroupConfig) *Group {
	if c.Limit <= 0 {
		c.Limit = 10
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	c.Logger = orDefault(c.Logger)
	g := &Group{config: c, slots: make(chan struct{}, c.Limit), stopped: make(chan struct{}), members: map[*Thread]bool{}}
	g.changed = sync.NewCond(&g.mu)
	return g
}

// Go runs f in a thread of its own, whose context is cancelled with ctx and by a Stop that is not graceful. While
// there are as many threads as may be it waits for one to end. The error is ErrStopped or that of ctx. An error or
// panic of f is logged, and returned by Wait and the thread's Wait.
func (g *Group) Go(ctx context.Context, name string, f func(context.Context) error) (*Thread, error) {
	select {
	case <-g.stopped:
		return nil, ErrStopped
	case <-ctx.Done():
		return nil, ctx.Err()
	case g.slots <- struct{}{}:
	}
	t, err := g.add(ctx, &Thread{name: name}, func(_, working context.Context) (any, error) {
		defer func() { <-g.slots }()
		return nil, f(working)
	})
	if err != nil {
		<-g.slots
	}
	return t, err
}

// AddTimer calls f by the loop, whose Clock and Logger are the group's where they are nil and whose Name is, until
// ctx ends, f is done or fails, or the timer or the group is stopped.
func (g *Group) AddTimer(ctx context.Context, loop Loop, f func(context.Context) error) (*Thread, error) {
	if loop.Clock == nil {
		loop.Clock = g.config.Clock
	}
	if loop.Logger == nil {
		loop.Logger = g.config.Logger
	}
	return g.add(ctx, &Thread{name: loop.Name, timer: true}, func(looping, working context.Context) (any, error) {
		return loop.Call(looping, func(context.Context) error { return f(working) })
	})
}

// AddDynamicTimer is AddTimer for a function that says how long to wait.
func (g *Group) AddDynamicTimer(
	ctx context.Context, loop Dynamic, f func(context.Context) (time.Duration, error),
) (*Thread, error) {
	if loop.Clock == nil {
		loop.Clock = g.config.Clock
	}
	if loop.Logger == nil {
		loop.Logger = g.config.Logger
	}
	return g.add(ctx, &Thread{name: loop.Name, timer: true}, func(looping, working context.Context) (any, error) {
		return loop.Call(looping, func(context.Context) (time.Duration, error) { return f(working) })
	})
}

func (g *Group) add(
	ctx context.Context, t *Thread, run func(looping, working context.Context) (any, error),
) (*Thread, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, ErrStopped
	}
	working, cut := context.WithCancel(ctx)
	looping, halt := context.WithCancel(working)
	t.halt, t.cut, t.done = halt, cut, make(chan struct{})
	g.members[t] = true
	go func() {
		defer cut()
		defer halt()
		err := Guard(func() (err error) { t.value, err = run(looping, working); return err })
		if working.Err() != nil && errors.Is(err, working.Err()) {
			err = nil // stopped as asked
		}
		g.ended(t, err)
	}()
	return t, nil
}

func (g *Group) ended(t *Thread, err error) {
	if err != nil {
		g.config.Logger.Error("a thread failed", slog.String("thread", t.name), errAttr(err), stackAttr(err))
	}
	t.err = err
	defer close(t.done) // last: who waits for the thread finds its end in the group
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil && err != nil {
		g.err = fmt.Errorf("%s: %w", t.name, err)
	}
	delete(g.members, t)
	g.changed.Broadcast()
}

// Stop ends a timer after the call that runs, and cancels the context of a thread. It does not wait.
func (t *Thread) Stop() {
	if t.timer {
		t.halt()
		return
	}
	t.cut()
}

// Wait returns when the thread or timer has ended, with the value that its function gave to Done, and its error.
func (t *Thread) Wait() (any, error) {
	<-t.done
	return t.value, t.err
}

// Start does nothing; what embeds a Group has a Start of its own.
func (g *Group) Start(context.Context) error { return nil }

// Reset does nothing; what embeds a Group may have a Reset of its own.
func (g *Group) Reset(context.Context) error { return nil }

// StopTimers ends the timers after the calls that run. It does not wait.
func (g *Group) StopTimers() {
	g.each(func(t *Thread) {
		if t.timer {
			t.halt()
		}
	})
}

// Stop ends the timers after the calls that run, and waits for them and for the threads, as long as ctx lasts;
// without grace it also cancels the contexts of all. Nothing can be added any more.
func (g *Group) Stop(ctx context.Context, graceful bool) error {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		close(g.stopped)
	}
	g.mu.Unlock()
	g.StopTimers()
	if !graceful {
		g.each(func(t *Thread) { t.cut() })
	}
	unwatch := context.AfterFunc(ctx, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.changed.Broadcast()
	})
	defer unwatch()
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.members) > 0 && ctx.Err() == nil {
		g.changed.Wait()
	}
	if len(g.members) > 0 {
		return fmt.Errorf("waiting for %s: %w", strings.Join(g.names(), ", "), ctx.Err())
	}
	return nil
}

// Wait returns when there is neither a thread nor a timer: the first error of one.
func (g *Group) Wait() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.members) > 0 {
		g.changed.Wait()
	}
	return g.err
}

// Running names the threads and timers, sorted.
func (g *Group) Running() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.names()
}

func (g *Group) names() []string {
	names := make([]string, 0, len(g.members))
	for t := range g.members {
		names = append(names, t.name)
	}
	slices.Sort(names)
	return names
}

func (g *Group) each(do func(*Thread)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for t := range g.members {
		do(t)
	}
}
