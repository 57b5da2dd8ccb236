// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/service/state"
)

const (
	// lookInterval is the time between two looks at whether the state has changed, while a page is open.
	lookInterval = 250 * time.Millisecond
	// share bounds the processor that snapshots take while the state changes all the time: one part in so many.
	share = 12
	// sampleInterval and samples make up the last hour.
	sampleInterval = time.Minute
	samples        = 60
)

// Sample is how many objects were in each state at one time.
type Sample struct {
	Time   time.Time           `json:"time"`
	Counts map[state.Phase]int `json:"counts"`
}

// feed keeps one snapshot for all open pages, and tells them when there is a newer one. A page that is slow misses
// those in between: nothing is kept for it, and nobody waits for it.
type feed struct {
	source Source
	clock  clock.WithTicker

	mu       sync.Mutex // guards what follows
	readers  int
	wake     chan struct{} // has room for one: the first page was opened
	snapshot *Snapshot     // nil: no page is open, or there was none yet
	newer    chan struct{} // closed when there is a newer snapshot
	past     []Sample
}

func newFeed(source Source, c clock.WithTicker) *feed {
	return &feed{source: source, clock: c, wake: make(chan struct{}, 1), newer: make(chan struct{})}
}

// run looks for changes as long as there are pages, and takes a sample each minute.
func (f *feed) run(ctx context.Context) {
	minutes := f.clock.NewTicker(sampleInterval)
	defer minutes.Stop()
	f.sample()
	looks := f.clock.NewTicker(lookInterval)
	defer looks.Stop()
	var next time.Time
	for {
		var look <-chan time.Time
		if f.watched() {
			look = looks.C()
		}
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		case <-minutes.C():
			f.sample()
		case <-look:
			if began := f.clock.Now(); !began.Before(next) && f.refresh() {
				next = f.clock.Now().Add(share * f.clock.Since(began))
			}
		}
	}
}

func (f *feed) watched() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.readers > 0
}

// refresh takes a new snapshot if the state has changed since the last, and tells the pages.
func (f *feed) refresh() bool {
	now := f.source.Changes()
	f.mu.Lock()
	fresh := f.snapshot != nil && f.snapshot.generation == now
	f.mu.Unlock()
	if fresh {
		return false
	}
	s := newSnapshot(now, f.source.Objects())
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.readers > 0 {
		f.snapshot = s
	}
	close(f.newer)
	f.newer = make(chan struct{})
	return true
}

// current returns the snapshot that the open pages share, or a new one where no page is open.
func (f *feed) current() *Snapshot {
	f.mu.Lock()
	s := f.snapshot
	f.mu.Unlock()
	if s == nil {
		now := f.source.Changes() // before the objects: what changes meanwhile is read again
		s = newSnapshot(now, f.source.Objects())
		f.mu.Lock()
		if f.readers > 0 && f.snapshot == nil {
			f.snapshot = s
		}
		f.mu.Unlock()
	}
	return s
}

// join counts a page, up to a bound; leave is called when it is closed.
func (f *feed) join(most int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.readers >= most {
		return false
	}
	f.readers++
	select {
	case f.wake <- struct{}{}:
	default:
	}
	return true
}

func (f *feed) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.readers--; f.readers == 0 {
		f.snapshot = nil
	}
}

// latest returns the number of the last snapshot, 0 without one, and a channel that is closed when there is a newer
// one.
func (f *feed) latest() (generation uint64, newer <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.snapshot != nil {
		generation = f.snapshot.generation
	}
	return generation, f.newer
}

func (f *feed) sample() {
	s := Sample{Time: f.clock.Now(), Counts: f.source.Counts()}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.past = append(f.past, s); len(f.past) > samples {
		f.past = slices.Delete(f.past, 0, 1)
	}
}

func (f *feed) hour() []Sample {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.past)
}
