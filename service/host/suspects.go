// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/plugins/wire"
)

// ErrIsolated says that an object is not shown to its driver any more, because it ended or hung the driver again and
// again: no opinion.
var ErrIsolated = drivers.ErrIsolated

const (
	// maxStrikes is how often an object may be in a driver that ends, or be left without an answer, before it is isolated.
	maxStrikes = 3
	// maxMarks bounds what is remembered.
	maxMarks = 4096
)

// suspects finds out which objects end or hang a driver. What a driver had in hand when it ended, or did not answer,
// is suspected. Suspects go to the driver one at a time, beside those that are none; who was there once more is
// struck once more:
//
//	no mark ──lost or late──▶ suspected ──again, again──▶ isolated
//	   ▲─────────answered────────┘                          │
//	   ▲────────────its time is over, or the driver was restarted by hand
//
// A mark is of the content of an object and of what answers its needs, so that a change of either is a new beginning.
type suspects struct {
	clock clock.PassiveClock
	lasts time.Duration // how long one is isolated
	seed  maphash.Seed
	lane  chan struct{} // held by the one suspect that is in the driver

	mu       sync.Mutex
	marks    map[uint64]*mark
	isolated int // so far
}

type mark struct {
	strikes int
	until   time.Time // zero: it is not isolated
	why     string
}

func newSuspects(c clock.PassiveClock, lasts time.Duration) *suspects {
	return &suspects{
		clock: c, lasts: lasts, seed: maphash.MakeSeed(), lane: make(chan struct{}, 1), marks: map[uint64]*mark{},
	}
}

func (s *suspects) digest(object drivers.Object, needs *drivers.Needs) uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	_, _ = h.WriteString(object.Watch)
	_, _ = h.Write(object.Raw)
	sum := h.Sum64()
	for need, objects := range needs.Answers() { // in any order
		h.Reset()
		_, _ = h.WriteString(need.String())
		for _, o := range objects {
			_, _ = h.Write(o.Raw)
		}
		sum += h.Sum64()
	}
	return sum
}

// enter lets an object pass to the driver, in its turn. leave must be called with what came of it.
func (s *suspects) enter(
	ctx context.Context, object drivers.Object, needs *drivers.Needs,
) (leave func(error), err error) {
	s.mu.Lock()
	none := len(s.marks) == 0
	s.mu.Unlock()
	if none { // as always
		return func(err error) {
			if blame(err) {
				s.strike(s.digest(object, needs), err)
			}
		}, nil
	}
	digest := s.digest(object, needs)
	suspected, err := s.suspected(digest)
	if err != nil {
		return nil, err
	}
	if suspected {
		select {
		case s.lane <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if _, err := s.suspected(digest); err != nil { // another of its kind was before it
			<-s.lane
			return nil, err
		}
	}
	return func(err error) {
		switch {
		case blame(err):
			s.strike(digest, err)
		case !errors.Is(err, ErrUnavailable) && !errors.Is(err, context.Canceled):
			s.clear(digest)
		}
		if suspected {
			<-s.lane
		}
	}, nil
}

// blame says whether an error may be the object's doing: the driver had it and ended, or did not answer in time.
func blame(err error) bool {
	var lost *wire.LostError
	var own *wire.Error
	return errors.As(err, &lost) || (errors.As(err, &own) && own.Code == wire.Deadline)
}

func (s *suspects) suspected(digest uint64) (suspected bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.marks[digest]
	if m == nil {
		return false, nil
	}
	left := m.until.Sub(s.clock.Now())
	if !m.until.IsZero() && left > 0 {
		return true,
			fmt.Errorf("%w: the driver ended or hung %d times with it (%s); it is asked again when the object changes, "+
				"after `raven driver restart`, or in %s", ErrIsolated, m.strikes, m.why, left.Round(time.Second))
	}
	return true, nil
}

func (s *suspects) strike(digest uint64, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.marks[digest]
	if m == nil {
		if len(s.marks) >= maxMarks {
			for other, known := range s.marks {
				if known.until.IsZero() {
					delete(s.marks, other)
				}
			}
		}
		m = &mark{}
		s.marks[digest] = m
	}
	m.strikes++
	m.why = why.Error()
	if m.strikes >= maxStrikes {
		m.until = s.clock.Now().Add(s.lasts)
		s.isolated++
	}
}

func (s *suspects) clear(digest uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.marks, digest)
}

// forgive forgets all: the driver is another one now.
func (s *suspects) forgive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.marks)
}

// counts returns how many are isolated now, and how many were so far.
func (s *suspects) counts() (now, ever int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.marks {
		if m.until.After(s.clock.Now()) {
			now++
		}
	}
	return now, s.isolated
}
