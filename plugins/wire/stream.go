// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
)

// clientSession is the core's end of one Translate stream. Calls queue items; the sender sends what is queued
// whenever the stream is free, as far as flow lets it, so that a burst travels in few messages and a lone call waits
// for no other. What waits in the queue has no deadline but its caller's, and a caller that leaves takes it along: the
// driver never hears of it.
type clientSession struct {
	client *Client
	cancel context.CancelCauseFunc
	done   chan struct{}
	ready  chan struct{}
	wait   sync.WaitGroup

	mu      sync.Mutex
	last    uint64
	queue   []*pendingCall          // not sent yet, in order
	calls   map[uint64]*pendingCall // sent and not answered
	cancels []uint64                // of calls that were sent
	flow    flow
	err     error
}

type pendingCall struct {
	item     *ravenv1.TranslateItem
	deadline time.Time // the caller's own; zero without one
	result   chan *ravenv1.TranslateResult
	sent     time.Time // zero while it is queued
	left     time.Time // when the caller gave up; zero while it waits
}

func (c *Client) open(ctx context.Context) (*clientSession, error) {
	lasting, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stream, err := c.rpc.Translate(lasting, grpc.MaxCallRecvMsgSize(MaxAnswer))
	if err != nil {
		cancel(err)
		return nil, callError(ctx, "opening the stream", err)
	}
	s := &clientSession{
		client: c, cancel: cancel, done: make(chan struct{}), ready: make(chan struct{}, 1), calls: map[uint64]*pendingCall{},
		flow: newFlow(c.config.Timeout),
	}
	s.wait.Go(func() { s.stop(s.receive(stream)) })
	s.wait.Go(func() {
		if err := s.send(stream); err != nil && !errors.Is(err, io.EOF) { // at EOF the receiver has the reason
			s.stop(err)
		}
	})
	return s, nil
}

// stop ends the session for a reason; the first one counts.
func (s *clientSession) stop(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.err = fmt.Errorf("%w: %s", ErrUnavailable, status.Convert(reason).Message())
	s.cancel(reason)
	close(s.done)
}

func (s *clientSession) call(ctx context.Context, item *ravenv1.TranslateItem) (*ravenv1.TranslateResult, error) {
	call := &pendingCall{item: item, result: make(chan *ravenv1.TranslateResult, 1)}
	call.deadline, _ = ctx.Deadline()
	if err := s.enqueue(call); err != nil {
		return nil, err
	}
	timeout, expires := s.client.config.Timeout, (<-chan time.Time)(nil)
	var timer clock.Timer
	if timeout > 0 {
		timer = s.client.config.Clock.NewTimer(timeout)
		defer timer.Stop()
		expires = timer.C()
	}
	for {
		select {
		case result := <-call.result:
			return result, nil
		case <-s.done:
			s.mu.Lock()
			defer s.mu.Unlock()
			if !call.sent.IsZero() {
				return nil, &LostError{s.err}
			}
			return nil, s.err
		case <-ctx.Done():
			s.leave(call)
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, ctxError(ctx)
			}
			return nil, ctx.Err()
		case <-expires:
			if remaining := s.remaining(call, timeout); remaining > 0 {
				timer.Reset(remaining)
				continue
			}
			s.leave(call)
			return nil, lateError()
		}
	}
}

func (s *clientSession) enqueue(call *pendingCall) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.last++
	call.item.Id = s.last
	s.queue = append(s.queue, call)
	wake(s.ready)
	return nil
}

// remaining returns how much of its time a call has left, which it is given anew when it is sent.
func (s *clientSession) remaining(call *pendingCall, timeout time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if call.sent.IsZero() {
		return timeout
	}
	return timeout - s.client.config.Clock.Since(call.sent)
}

// leave takes back what no caller waits for any more: from the queue, or else from the driver.
func (s *clientSession) leave(call *pendingCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := call.item.GetId()
	switch {
	case call.sent.IsZero():
		if at := slices.Index(s.queue, call); at >= 0 {
			s.queue = slices.Delete(s.queue, at, at+1)
		}
	case s.calls[id] != nil:
		call.left = s.client.config.Clock.Now()
		s.cancels = append(s.cancels, id)
		wake(s.ready)
	}
}

// take returns the next message, nil when there is nothing to send or no room in the driver. What it cancels went
// with an earlier message.
func (s *clientSession) take() *ravenv1.TranslateRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := make([]*ravenv1.TranslateItem, 0, max(min(s.flow.limit-len(s.calls), len(s.queue)), 0))
	for _, call := range s.queue[:cap(items)] {
		items = append(items, call.item)
	}
	items = items[:batch(items)]
	if len(items) == 0 && len(s.cancels) == 0 {
		return nil
	}
	now := s.client.config.Clock.Now()
	for _, call := range s.queue[:len(items)] {
		call.sent = now
		call.item.TimeoutMs = s.timeoutMs(call)
		s.calls[call.item.GetId()] = call
	}
	s.queue = slices.Delete(s.queue, 0, len(items))
	request := &ravenv1.TranslateRequest{Items: items, Cancel: s.cancels}
	s.cancels = nil
	return request
}

// timeoutMs returns the driver's time for a call that is sent now; 0 is no limit.
func (s *clientSession) timeoutMs(call *pendingCall) uint32 {
	timeout := s.client.config.Timeout
	if !call.deadline.IsZero() {
		if own := max(call.deadline.Sub(call.sent), time.Millisecond); timeout <= 0 || own < timeout {
			timeout = own
		}
	}
	if timeout <= 0 {
		return 0
	}
	return uint32(min(max(timeout.Milliseconds(), 1), math.MaxUint32)) // bounded here
}

func (s *clientSession) overdue() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0
	}
	var longest time.Duration
	for _, call := range s.calls {
		if !call.left.IsZero() {
			longest = max(longest, s.client.config.Clock.Since(call.left))
		}
	}
	return longest
}

func (s *clientSession) send(
	stream grpc.BidiStreamingClient[ravenv1.TranslateRequest, ravenv1.TranslateResponse],
) error {
	for {
		select {
		case <-s.ready:
		case <-s.done:
			return nil
		}
		for request := s.take(); request != nil; request = s.take() {
			if err := stream.Send(request); err != nil {
				return err
			}
		}
	}
}

func (s *clientSession) receive(
	stream grpc.BidiStreamingClient[ravenv1.TranslateRequest, ravenv1.TranslateResponse],
) error {
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return errors.New("the driver ended the stream")
		}
		if err != nil {
			return err
		}
		s.settle(response.GetResults())
	}
}

// settle hands results to their calls, which makes room in the driver for others.
func (s *clientSession) settle(results []*ravenv1.TranslateResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.client.config.Clock.Now()
	for _, result := range results {
		if call := s.calls[result.GetId()]; call != nil {
			delete(s.calls, result.GetId())
			s.flow.answered(call.sent, now, len(s.queue) > 0)
			call.result <- result
		}
	}
	if len(s.queue) > 0 {
		wake(s.ready)
	}
}
