// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// How the limit on requests in flight moves. A request class is a method and a path, with the batch size to the next
// power of two.
//
//	answered about as fast per item as ever, every slot in use   one more slot per round of requests
//	slower than slowFactor times the best of its class           times gentleCut, at most once per round
//	429, 502, 503, 504, time-out                                 times hardCut, at most once per round
//
// The best of a class drifts upwards by drift per request, so that a server that has become slower is not held to its
// past.
const (
	firstLimit = 4
	slowFactor = 1.9
	goodFactor = 1.4
	gentleCut  = 0.8
	hardCut    = 0.5
	drift      = 1.01
)

// sample is one finished request.
type sample struct {
	key     string
	n       int
	took    time.Duration
	started time.Time
}

// limiter bounds how many requests are in flight: additive increase, multiplicative decrease. Who waits is served in
// order, what is urgent before the rest.
type limiter struct {
	clock clock.Clock
	most  float64

	mu      sync.Mutex
	limit   float64
	used    int
	waiting []chan struct{}
	urgent  int                     // how many of those that wait, the first ones, are urgent
	best    map[sampleClass]float64 // seconds per item
	cutAt   time.Time
}

type urgency struct{}

// Urgent returns a context whose requests are sent before others that wait: few, on which many depend.
func Urgent(ctx context.Context) context.Context { return context.WithValue(ctx, urgency{}, true) }

func isUrgent(ctx context.Context) bool { return ctx.Value(urgency{}) != nil }

type sampleClass struct {
	key    string
	bucket int
}

func newLimiter(most int, clk clock.Clock) *limiter {
	return &limiter{
		clock: clk, most: float64(most), limit: math.Min(firstLimit, float64(most)), best: map[sampleClass]float64{},
	}
}

// acquire takes a slot, or waits for one. A nil error obliges the caller to release it.
func (l *limiter) acquire(ctx context.Context, stop <-chan struct{}) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	if len(l.waiting) == 0 && l.used < int(l.limit) {
		l.used++
		l.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	if isUrgent(ctx) {
		l.waiting = slices.Insert(l.waiting, l.urgent, turn)
		l.urgent++
	} else {
		l.waiting = append(l.waiting, turn)
	}
	l.mu.Unlock()

	var err error
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-stop:
		err = ErrClosed
	}
	l.leave(turn)
	return err
}

// leave takes a waiter out of the queue; if its turn came meanwhile, the slot goes to the next.
func (l *limiter) leave(turn chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, other := range l.waiting {
		if other == turn {
			l.remove(i)
			return
		}
	}
	l.used--
	l.serve()
}

func (l *limiter) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used--
	l.serve()
}

// serve hands free slots to those who wait. The caller holds the lock.
func (l *limiter) serve() {
	for len(l.waiting) > 0 && l.used < int(l.limit) {
		turn := l.waiting[0]
		l.remove(0)
		l.used++
		close(turn)
	}
}

// remove takes the i-th out of the queue. The caller holds the lock.
func (l *limiter) remove(i int) {
	l.waiting = slices.Delete(l.waiting, i, i+1)
	if i < l.urgent {
		l.urgent--
	}
}

// observe learns from a request that was answered.
func (l *limiter) observe(done sample, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	class := sampleClass{done.key, BucketOf(done.n)}
	cost := done.took.Seconds() / float64(max(done.n, 1))
	best, known := l.best[class]
	if !known || cost < best {
		l.best[class] = cost
	} else {
		l.best[class] = math.Min(best*drift, cost)
	}
	switch {
	case known && cost > best*slowFactor:
		l.cut(gentleCut, done.started, now)
	case l.used >= int(l.limit) && (!known || cost <= best*goodFactor):
		l.limit = math.Min(l.limit+1/l.limit, l.most)
		l.serve()
	}
}

// overloaded learns from a request that the server refused or let wait for too long.
func (l *limiter) overloaded(done sample, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut(hardCut, done.started, now)
}

// cut lowers the limit, unless the request began before the last cut: then it tells of what the cut has answered
// already.
func (l *limiter) cut(factor float64, started, now time.Time) {
	if started.Before(l.cutAt) {
		return
	}
	l.limit = math.Max(l.limit*factor, 1)
	l.cutAt = now
}

func (l *limiter) state() (limit, used, waiting int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int(l.limit), l.used, len(l.waiting)
}

// BucketOf is the power of two nearest to n, as an exponent: requests about as many resources are compared with each
// other.
func BucketOf(n int) int {
	if n <= 1 {
		return 0
	}
	return int(math.Round(math.Log2(float64(n))))
}
