package service

import (
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Progress knows which loops of a program must not stand still, and when each last turned. The launcher answers systemd's watchdog
// only while none stands still, so that a program that hangs is ended and started anew.
type Progress struct {
	clock clock.PassiveClock

	mu    sync.Mutex // guards beats and what is in them
	beats map[*Beat]bool
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
	return &Progress{clock: clk, beats: map[*Beat]bool{}}
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

// Stalled names the loops that stand still, sorted. A nil Progress knows none.
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
	slices.Sort(names)
	return names
}
