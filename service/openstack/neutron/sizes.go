// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"math"
	"sync"
	"time"

	"github.com/kuryr/raven/service/openstack"
)

// How the size of batches moves: hill climbing over powers of two, by seconds per item, each smoothed per size.
//
//	a wave of full batches cost less per item than those of half the size         twice the size
//	one took about as long as one of half the size                                four times, at once
//	it cost riseFactor times more per item, or took longer than its share         half, and not above for reprobe batches
//
// Bulk is not always cheaper: a real Neutron takes least per item in tens, a far one with little to do in hundreds.
const (
	firstBatch = 16
	batchShare = 0.25 // of the request time-out: the longest that one batch should take
	smoothing  = 0.4
	riseFactor = 1.2
	gainFactor = 0.98
	goodEnough = 1.1
	flatFactor = 1.3
	reprobe    = 24
)

// sizer decides how many resources go in one request.
type sizer struct {
	most    int
	longest time.Duration

	mu      sync.Mutex
	size    int
	cost    map[int]float64 // seconds per item, by bucket
	ceiling int             // sizes above this one were worse; 0: none known
	probeIn int             // full batches until the ceiling is forgotten
	last    map[int]timing  // the last one, by bucket
	full    int             // full batches of this size so far
}

// timing is how long a batch took, in seconds, and its part of that among all in flight.
type timing struct{ took, part float64 }

func newSizer(most int, longest time.Duration) *sizer {
	return &sizer{
		most: most, longest: longest, size: min(firstBatch, most), cost: map[int]float64{}, last: map[int]timing{},
	}
}

// next is how many of those that wait go together now: a fair part for each slot, but no less than what is about as
// cheap per item as any size, and no more than the size that was found to pay.
func (s *sizer) next(waiting, limit int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	part := (waiting + limit - 1) / max(limit, 1)
	return min(max(part, s.cheap()), s.size, waiting)
}

// cheap is the smallest size known to cost per item about as little as the cheapest.
func (s *sizer) cheap() int {
	least := math.Inf(1)
	for _, cost := range s.cost {
		least = min(least, cost)
	}
	small := openstack.BucketOf(s.size)
	for bucket, cost := range s.cost {
		if cost <= least*goodEnough {
			small = min(small, bucket)
		}
	}
	return 1 << small
}

// current is the size of a batch when there is enough for one.
func (s *sizer) current() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

// observe learns from a batch of n that took so long, beside so many requests in flight, itself included, while so many
// more were waiting. Time is counted in parts of what was in flight, so that a size is not blamed for the company it
// had: where requests queue for the server's workers, each takes longer the more there are.
func (s *sizer) observe(n int, took time.Duration, beside float64, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	bucket := openstack.BucketOf(n)
	now := timing{took: took.Seconds(), part: took.Seconds() / max(beside, 1)}
	half, compared := s.last[bucket-1]
	flat := compared && now.took < half.took*flatFactor && now.part < half.part*flatFactor
	full := bucket >= openstack.BucketOf(s.size)
	if full {
		s.full++
	}
	wave := int(math.Ceil(beside))
	if full && compared && !flat && s.full <= wave && took <= s.longest {
		return // it queued behind batches of the size before: nothing to compare yet
	}
	s.last[bucket] = now
	cost := now.part / float64(n)
	if known, ok := s.cost[bucket]; ok {
		cost = known + smoothing*(cost-known)
	}
	s.cost[bucket] = cost
	if took > s.longest && n > 1 {
		s.shrink(n)
		return
	}
	if !full {
		return // nothing to say about the size of now
	}
	if s.probeIn--; s.probeIn <= 0 {
		s.ceiling = 0
	}
	cheaper := s.cost[bucket-1]
	switch {
	case compared && !flat && s.full < 2*wave:
	case compared && cost > cheaper*riseFactor:
		s.shrink(n)
	case waiting < n || compared && cost > cheaper*gainFactor:
	case flat:
		s.grow(4, took)
	default:
		s.grow(2, took)
	}
}

// failed learns from a batch of n that was too much for the server, or not answered in time.
func (s *sizer) failed(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shrink(n)
}

func (s *sizer) shrink(n int) {
	smaller := max(1<<max(openstack.BucketOf(n)-1, 0), 1)
	if smaller < s.size {
		s.size, s.full = smaller, 0
	}
	s.ceiling, s.probeIn = s.size, reprobe
}

func (s *sizer) grow(factor int, took time.Duration) {
	size := min(s.size*factor, s.most)
	if s.ceiling > 0 {
		size = min(size, s.ceiling)
	}
	// Not to a size that would take too long even if items cost as much as now.
	for size > s.size && took.Seconds()*math.Sqrt(float64(size)/float64(s.size)) > s.longest.Seconds() {
		size /= 2
	}
	if size > s.size {
		s.size, s.full = size, 0
	}
}
