// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"testing"

	"google.golang.org/grpc"

	"github.com/kuryr/raven/drivers"
	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
)

// endless is a stream that always has one item more, until its context is over and the receiver has been told.
type endless struct {
	grpc.BidiStreamingServer[ravenv1.TranslateRequest, ravenv1.TranslateResponse]
	ctx  context.Context
	next uint64
	last func() // when the stream has given some items
	over chan struct{}
	left chan struct{} // the receiver has gone
}

func (e *endless) Context() context.Context              { return e.ctx }
func (e *endless) Send(*ravenv1.TranslateResponse) error { return nil }
func (e *endless) item() *ravenv1.TranslateItem          { return &ravenv1.TranslateItem{Id: e.next} }

func (e *endless) Recv() (*ravenv1.TranslateRequest, error) {
	select {
	case <-e.over:
		close(e.left)
		return nil, context.Canceled
	default:
	}
	if e.next++; e.next == 3 {
		e.last()
	}
	return &ravenv1.TranslateRequest{Items: []*ravenv1.TranslateItem{e.item()}}, nil
}

type silent struct{ drivers.Driver }

func (silent) Translate(context.Context, drivers.Object, *drivers.Needs) (drivers.Set, error) {
	return drivers.Set{}, nil
}

// TestNothingStartsOnAStreamThatEnds: a stream is cancelled while items come. It fails where one of them is started
// while those in hand are waited for.
func TestNothingStartsOnAStreamThatEnds(t *testing.T) {
	t.Parallel()
	server := NewServer(silent{}, ServerConfig{})
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		stream := &endless{ctx: ctx, last: cancel, over: make(chan struct{}), left: make(chan struct{})}
		if err := server.Translate(stream); err == nil {
			t.Error("a cancelled stream ended without an error")
		}
		close(stream.over)
		<-stream.left
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	if server.inFlight != 0 {
		t.Errorf("%d translations count as under way", server.inFlight)
	}
}
