// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// The bounds of one Retry-After: a server that asks for more is asked again after the longest.
const (
	defaultRetryAfter = time.Second
	longestRetryAfter = 5 * time.Minute
)

// gate holds back every request to a service that asked to be left alone for a while.
type gate struct {
	clock clock.Clock

	mu    sync.Mutex
	until time.Time
}

func newGate(clk clock.Clock) *gate { return &gate{clock: clk} }

// shut keeps the gate shut for at least this long from now.
func (g *gate) shut(d time.Duration) {
	until := g.clock.Now().Add(min(d, longestRetryAfter))
	g.mu.Lock()
	defer g.mu.Unlock()
	if until.After(g.until) {
		g.until = until
	}
}

func (g *gate) left() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.until.Sub(g.clock.Now())
}

func (g *gate) open() bool { return g.left() <= 0 }

// wait returns when the gate is open.
func (g *gate) wait(ctx context.Context, stop <-chan struct{}) error {
	for {
		left := g.left()
		if left <= 0 {
			return nil
		}
		timer := g.clock.NewTimer(left)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-stop:
			timer.Stop()
			return ErrClosed
		}
	}
}
