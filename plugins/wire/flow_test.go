// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
)

func TestFlow(t *testing.T) {
	start := time.Unix(0, 0)
	f := newFlow(8 * time.Second)
	floor := f.limit
	if f.target != time.Second || floor < flowFloor {
		t.Fatalf("begins with %+v", f)
	}
	for range 2 * flowCeiling {
		f.answered(start, start.Add(time.Millisecond), true)
	}
	if f.limit != flowCeiling {
		t.Errorf("fast answers: %d, want %d", f.limit, flowCeiling)
	}
	for range flowCeiling { // all sent under one bound
		f.answered(start, start.Add(2*time.Second), true)
	}
	if want := max(flowCeiling/2, floor); f.limit != want {
		t.Errorf("one round of slow answers: %d, want %d", f.limit, want)
	}
	now := start.Add(2 * time.Second)
	for range 10 {
		f.answered(now, now.Add(2*time.Second), true)
		now = now.Add(2 * time.Second)
	}
	if f.limit != floor {
		t.Errorf("slow answers: %d, want %d", f.limit, floor)
	}
	f.answered(now, now, false)
	f.answered(now, now.Add(700*time.Millisecond), true)
	if f.limit != floor {
		t.Errorf("nothing waits, or neither fast nor slow: %d, want %d", f.limit, floor)
	}
}

// TestTake follows one session without a stream: what is sent, when, and what is taken back.
func TestTake(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	client := NewClient(nil, ClientConfig{Clock: clock, Timeout: 8 * time.Second})
	s := &clientSession{
		client: client, ready: make(chan struct{}, 1), calls: map[uint64]*pendingCall{},
		flow: flow{limit: 2, floor: 2, target: time.Second},
	}
	calls := make([]*pendingCall, 5)
	for i := range calls {
		calls[i] = &pendingCall{item: &ravenv1.TranslateItem{}, result: make(chan *ravenv1.TranslateResult, 1)}
		if i == 1 {
			calls[i].deadline = clock.Now().Add(3 * time.Second)
		}
		if err := s.enqueue(calls[i]); err != nil {
			t.Fatal(err)
		}
	}
	type message struct {
		Items    []uint64
		Timeouts []uint32
		Cancels  []uint64
	}
	take := func() *message {
		request := s.take()
		if request == nil {
			return nil
		}
		out := &message{Cancels: request.GetCancel()}
		for _, item := range request.GetItems() {
			out.Items, out.Timeouts = append(out.Items, item.GetId()), append(out.Timeouts, item.GetTimeoutMs())
		}
		return out
	}
	expect := func(why string, want *message) {
		t.Helper()
		if diff := cmp.Diff(want, take()); diff != "" {
			t.Errorf("%s:\n%s", why, diff)
		}
	}

	clock.Step(time.Second)
	expect("as many as there is room for, with the time counted from now",
		&message{Items: []uint64{1, 2}, Timeouts: []uint32{8000, 2000}})
	expect("no room", nil)
	s.leave(calls[2])
	expect("one that was queued left: nobody hears of it", nil)
	s.leave(calls[0])
	expect("one that was sent left", &message{Cancels: []uint64{1}})
	clock.Step(time.Second)
	if got := s.overdue(); got != time.Second {
		t.Errorf("overdue %s, want 1s: only what was sent is owed", got)
	}
	if got := s.remaining(calls[3], 8*time.Second); got != 8*time.Second {
		t.Errorf("a queued call has %s left", got)
	}
	if got := s.remaining(calls[1], 8*time.Second); got != 7*time.Second {
		t.Errorf("a sent call has %s left", got)
	}
	s.leave(calls[1]) // while the answer to another makes room
	s.settle([]*ravenv1.TranslateResult{{Id: 1}})
	expect("room for one", &message{Items: []uint64{4}, Timeouts: []uint32{8000}, Cancels: []uint64{2}})
	s.settle([]*ravenv1.TranslateResult{{Id: 2}, {Id: 4}})
	s.leave(calls[3])
	expect("what was answered is not cancelled", &message{Items: []uint64{5}, Timeouts: []uint32{8000}})
	if got := s.overdue(); got != 0 {
		t.Errorf("overdue %s", got)
	}
	s.err = errors.New("over")
	if err := s.enqueue(calls[0]); !errors.Is(err, s.err) {
		t.Errorf("a call of an ended session: %v", err)
	}
}
