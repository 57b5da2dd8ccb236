// SPDX-License-Identifier: Apache-2.0

package service

import (
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Progress knows which loops and queues of a program must not stand still, and when each last turned. The launcher
// answers systemd's watchdog only while none stands still, so that a program that hangs is ended and started anew.
type Progress struct {
	clock clock.PassiveClock

	mu    sync.Mutex // guards what follows and what is in it
	beats map[*Beat]bool
	works map[*Work]bool
}

// Beat is the pulse of one loop.
type Beat struct {
	progress *Progress
	name     string
	within   time.Duration
	last     time.Time
}

// NewProgress returns a Progress without loops.
func NewProgress(clk clock.PassiveClock) *Progress {
	return &Progress{clock: clk, beats: map[*Beat]bool{}, works: map[*Work]bool{}}
}

// Watch adds a loop that turns more often than within. It has just turned.
func (p *Progress) Watch(name string, within time.Duration) *Beat {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := &Beat{progress: p, name: name, within: within, last: p.clock.Now()}
	p.beats[b] = true
	return b
}

// Turn says that the loop turned.
func (b *Beat) Turn() {
	b.progress.mu.Lock()
	defer b.progress.mu.Unlock()
	b.last = b.progress.clock.Now()
}

// End forgets the loop.
func (b *Beat) End() {
	b.progress.mu.Lock()
	defer b.progress.mu.Unlock()
	delete(b.progress.beats, b)
}

// Work is a queue, or something else that must end one thing after another while it holds any.
type Work struct {
	progress *Progress
	name     string
	within   time.Duration
	called   time.Time
	ended    uint64
	still    time.Duration
}

// Work adds a queue that ends something within this time while it holds anything, times apart in which it waits for
// what has a bound of its own.
func (p *Progress) Work(name string, within time.Duration) *Work {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &Work{progress: p, name: name, within: within, called: p.clock.Now()}
	p.works[w] = true
	return w
}

// Look says how the queue stands: how much it holds, how often it has ended something so far, and whether it waits
// for something outside. It is to be called often: the time since the call before counts as an eighth of the bound at
// most, so that a process that was stopped does not count as stalled.
func (w *Work) Look(held int, ended uint64, waits bool) {
	w.progress.mu.Lock()
	defer w.progress.mu.Unlock()
	now := w.progress.clock.Now()
	passed := min(now.Sub(w.called), w.within/8)
	w.called = now
	switch {
	case held == 0 || ended != w.ended:
		w.still = 0
	case !waits:
		w.still += passed
	}
	w.ended = ended
}

// End forgets the queue.
func (w *Work) End() {
	w.progress.mu.Lock()
	defer w.progress.mu.Unlock()
	delete(w.progress.works, w)
}

// Stalled names the loops and queues that stand still, sorted. A nil Progress knows none.
func (p *Progress) Stalled() []string {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for b := range p.beats {
		if p.clock.Since(b.last) > b.within {
			names = append(names, b.name)
		}
	}
	for w := range p.works {
		if w.still > w.within {
			names = append(names, w.name)
		}
	}
	slices.Sort(names)
	return names
}
