package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
)

// clientSession is the core's end of one Translate stream. Calls queue items; the sender sends whatever is queued whenever the
// stream is free, so that a burst travels in few messages and a lone call waits for nobody.
type clientSession struct {
	client *Client
	cancel context.CancelCauseFunc
	done   chan struct{}
	ready  chan struct{}
	wait   sync.WaitGroup

	mu      sync.Mutex
	last    uint64
	queue   []*ravenv1.TranslateItem
	cancels []uint64
	calls   map[uint64]*pendingCall
	err     error
}

type pendingCall struct {
	result chan *ravenv1.TranslateResult // nil when the stream ended
	left   time.Time                     // when the caller gave up; zero while it waits
}

func (c *Client) open(ctx context.Context) (*clientSession, error) {
	lasting, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stream, err := c.rpc.Translate(lasting)
	if err != nil {
		cancel(err)
		return nil, callError(ctx, "opening the stream", err)
	}
	s := &clientSession{
		client: c, cancel: cancel, done: make(chan struct{}), ready: make(chan struct{}, 1), calls: map[uint64]*pendingCall{},
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
	call := &pendingCall{result: make(chan *ravenv1.TranslateResult, 1)}
	s.mu.Lock()
	if s.err != nil {
		defer s.mu.Unlock()
		return nil, s.err
	}
	s.last++
	item.Id = s.last
	s.calls[item.GetId()] = call
	s.queue = append(s.queue, item)
	s.mu.Unlock()
	wake(s.ready)
	select {
	case result := <-call.result:
		return result, nil
	case <-s.done:
		s.mu.Lock()
		defer s.mu.Unlock()
		return nil, s.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	call.left = s.client.config.Clock.Now()
	s.cancels = append(s.cancels, item.GetId())
	s.mu.Unlock()
	wake(s.ready)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, ctxError(ctx)
	}
	return nil, ctx.Err()
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

func (s *clientSession) send(stream grpc.BidiStreamingClient[ravenv1.TranslateRequest, ravenv1.TranslateResponse]) error {
	for {
		select {
		case <-s.ready:
		case <-s.done:
			return nil
		}
		s.mu.Lock()
		items, cancels := s.queue, s.cancels
		s.queue, s.cancels = nil, nil
		s.mu.Unlock()
		for len(items) > 0 || len(cancels) > 0 {
			count := batch(items)
			if err := stream.Send(&ravenv1.TranslateRequest{Items: items[:count], Cancel: cancels}); err != nil {
				return err
			}
			items, cancels = items[count:], nil
		}
	}
}

func (s *clientSession) receive(stream grpc.BidiStreamingClient[ravenv1.TranslateRequest, ravenv1.TranslateResponse]) error {
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return errors.New("the driver ended the stream")
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		for _, result := range response.GetResults() {
			if call := s.calls[result.GetId()]; call != nil {
				delete(s.calls, result.GetId())
				call.result <- result
			}
		}
		s.mu.Unlock()
	}
}
