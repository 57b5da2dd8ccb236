// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"time"
)

const (
	// probePatience bounds how long others wait for a create that goes by itself: it may hang for reasons of its own.
	probePatience = 5 * time.Second
	// probeTries is how many creates go by themselves; where none of them gets an answer the others go without one.
	probeTries = 3
)

// probe is the create with which it is found out whether these credentials may set the best-effort attributes of a
// kind: the first ones go by themselves, and who has such attributes too waits for what comes of it.
//
//	it works              all others keep the attributes
//	it works without      all others go without them
//	neither               the next one tries
//
// So a refusal costs one small request. Without this, as many full batches are refused, late, as there are slots.
type probe struct {
	tries int
	under chan struct{} // closed when the one under way has ended; nil: none is
}

// queue lets an item wait for a probe, or be one. The caller calls ended when the item's request is over. It returns
// early when ctx ends or the connection is closed.
func (b *batcher) queue(ctx context.Context, it *item) (ended func()) {
	var patience <-chan time.Time
	for {
		under, mine := b.enterProbe(it)
		switch {
		case mine:
			return func() { b.endProbe(under) }
		case under == nil:
			return func() {}
		case patience == nil:
			timer := b.client.clock.NewTimer(probePatience)
			defer timer.Stop()
			patience = timer.C()
		}
		select {
		case <-under:
		case <-patience:
			return func() {}
		case <-ctx.Done():
			return func() {}
		case <-b.client.connection.Closed():
			return func() {}
		}
	}
}

// enterProbe makes an item the probe if one is needed. Otherwise under is what it has to wait for, nil for nothing.
func (b *batcher) enterProbe(it *item) (under chan struct{}, mine bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch p := &b.probe; {
	case !b.client.unsupported.unsure(b.kind.Kind, it.attrs):
		return nil, false
	case p.under != nil:
		return p.under, false
	case p.tries == probeTries:
		return nil, false
	default:
		p.tries, p.under, it.single = p.tries+1, make(chan struct{}), true
		return p.under, true
	}
}

func (b *batcher) endProbe(under chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.probe.under == under {
		b.probe.under = nil
		close(under)
	}
}
