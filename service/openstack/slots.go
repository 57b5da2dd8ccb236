package openstack

import (
	"context"
	"math"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// How the number of slots moves. A request class is a method and a path, with the batch size to the next power of two.
//
//	answered about as fast per item as ever, every slot in use   one more slot per round of requests
//	slower than slowFactor times the best of its class           times gentleCut, at most once per round
//	429, 502, 503, 504, time-out                                 times hardCut, at most once per round
//
// The best of a class drifts upwards by drift per request, so that a server that has become slower is not held to its past.
const (
	firstSlots = 4
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

// slots bounds how many requests are in flight: additive increase, multiplicative decrease. Who waits is served in order.
type slots struct {
	clock clock.Clock
	most  float64

	mu      sync.Mutex
	limit   float64
	used    int
	waiting []chan struct{}
	best    map[sampleClass]float64 // seconds per item
	cutAt   time.Time
}

type sampleClass struct {
	key    string
	bucket int
}

func newSlots(most int, clk clock.Clock) *slots {
	return &slots{
		clock: clk, most: float64(most), limit: math.Min(firstSlots, float64(most)), best: map[sampleClass]float64{},
	}
}

// acquire takes a slot, or waits for one. A nil error obliges the caller to release it.
func (s *slots) acquire(ctx context.Context, stop <-chan struct{}) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if len(s.waiting) == 0 && s.used < int(s.limit) {
		s.used++
		s.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	s.waiting = append(s.waiting, turn)
	s.mu.Unlock()

	var err error
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-stop:
		err = ErrClosed
	}
	s.leave(turn)
	return err
}

// leave takes a waiter out of the queue; if its turn came meanwhile, the slot goes to the next.
func (s *slots) leave(turn chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.waiting {
		if other == turn {
			s.waiting = append(s.waiting[:i], s.waiting[i+1:]...)
			return
		}
	}
	s.used--
	s.serve()
}

func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	s.serve()
}

// serve hands free slots to those who wait. The caller holds the lock.
func (s *slots) serve() {
	for len(s.waiting) > 0 && s.used < int(s.limit) {
		turn := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.used++
		close(turn)
	}
}

// observe learns from a request that was answered.
func (s *slots) observe(done sample, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	class := sampleClass{done.key, bucketOf(done.n)}
	cost := done.took.Seconds() / float64(max(done.n, 1))
	best, known := s.best[class]
	if !known || cost < best {
		s.best[class] = cost
	} else {
		s.best[class] = math.Min(best*drift, cost)
	}
	switch {
	case known && cost > best*slowFactor:
		s.cut(gentleCut, done.started, now)
	case s.used >= int(s.limit) && (!known || cost <= best*goodFactor):
		s.limit = math.Min(s.limit+1/s.limit, s.most)
		s.serve()
	}
}

// overloaded learns from a request that the server refused or let wait for too long.
func (s *slots) overloaded(done sample, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut(hardCut, done.started, now)
}

// cut lowers the limit, unless the request began before the last cut: then it tells of what is mended already.
func (s *slots) cut(factor float64, started, now time.Time) {
	if started.Before(s.cutAt) {
		return
	}
	s.limit = math.Max(s.limit*factor, 1)
	s.cutAt = now
}

func (s *slots) state() (limit, used, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(s.limit), s.used, len(s.waiting)
}

// bucketOf is the power of two nearest to n, as an exponent.
func bucketOf(n int) int {
	if n <= 1 {
		return 0
	}
	return int(math.Round(math.Log2(float64(n))))
}
