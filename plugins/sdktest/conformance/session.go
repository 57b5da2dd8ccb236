// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/kuryr/raven/drivers"
	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
	"github.com/kuryr/raven/plugins/wire"
)

// session is a Translate stream on which every result is seen, also one too many.
type session struct {
	stream grpc.BidiStreamingClient[ravenv1.TranslateRequest, ravenv1.TranslateResponse]
	cancel context.CancelFunc
	done   chan struct{}

	sending sync.Mutex

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan *ravenv1.TranslateResult
	strange []string // results that no caller waits for
	err     error
}

func open(ctx context.Context, conn grpc.ClientConnInterface) (*session, error) {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stream, err := ravenv1.NewDriverServiceClient(conn).Translate(lasting)
	if err != nil {
		cancel()
		return nil, err
	}
	s := &session{
		stream: stream, cancel: cancel, done: make(chan struct{}), waiting: map[uint64]chan *ravenv1.TranslateResult{},
	}
	go s.receive()
	return s, nil
}

func (s *session) receive() {
	defer close(s.done)
	for {
		response, err := s.stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("it ended the stream")
			}
			s.mu.Lock()
			s.err = err
			s.mu.Unlock()
			return
		}
		s.mu.Lock()
		for _, result := range response.GetResults() {
			waiter := s.waiting[result.GetId()]
			if waiter == nil {
				s.strange = append(s.strange,
					fmt.Sprintf("a result came for id %d, which has one already or was never sent", result.GetId()))
				continue
			}
			delete(s.waiting, result.GetId())
			waiter <- result
		}
		s.mu.Unlock()
	}
}

// ended returns why the stream is over, nil while it is not.
func (s *session) ended() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// odd returns results that came too often since it was last asked.
func (s *session) odd() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	strange := s.strange
	s.strange = nil
	return strange
}

// pending is an item that was sent.
type pending struct {
	id     uint64
	result chan *ravenv1.TranslateResult
}

// send sends items in one message, and then, in the next one, what is to be cancelled: all of them, if so wanted.
func (s *session) send(items []*ravenv1.TranslateItem, cancel bool) ([]pending, error) {
	sent := make([]pending, 0, len(items))
	var ids []uint64
	s.mu.Lock()
	for _, item := range items {
		s.last++
		item.Id = s.last
		p := pending{id: s.last, result: make(chan *ravenv1.TranslateResult, 1)}
		s.waiting[p.id] = p.result
		sent, ids = append(sent, p), append(ids, p.id)
	}
	s.mu.Unlock()
	s.sending.Lock()
	defer s.sending.Unlock()
	if err := s.stream.Send(&ravenv1.TranslateRequest{Items: items}); err != nil {
		return nil, s.reason(err)
	}
	if cancel {
		// the last is none of Raven's
		if err := s.stream.Send(&ravenv1.TranslateRequest{Cancel: append(ids, 1<<60)}); err != nil {
			return nil, s.reason(err)
		}
	}
	return sent, nil
}

func (s *session) reason(err error) error {
	if errors.Is(err, io.EOF) {
		<-s.done
		return s.ended()
	}
	return err
}

// errNoResult says that an item was not answered in time.
var errNoResult = errors.New("there is no result in time")

// await waits for the result of what was sent.
func (s *session) await(ctx context.Context, p pending, patience time.Duration) (*ravenv1.TranslateResult, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case result := <-p.result:
		return result, nil
	case <-s.done:
		select {
		case result := <-p.result:
			return result, nil
		default:
			return nil, fmt.Errorf("the stream ended: %w", s.ended())
		}
	case <-timer.C:
		return nil, fmt.Errorf("%w (%s)", errNoResult, patience)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// close ends the stream in order, and without patience.
func (s *session) close() {
	s.sending.Lock()
	_ = s.stream.CloseSend()
	s.sending.Unlock()
	timer := time.NewTimer(2 * time.Second)
	defer timer.Stop()
	select {
	case <-s.done:
	case <-timer.C:
	}
	s.cancel()
	<-s.done
}

// outcome is what an object became: a Set, or an error, and what was asked.
type outcome struct {
	text  string // to compare
	set   *drivers.Set
	err   *ravenv1.TranslateError
	asked []drivers.Need
	// rounds is how many it took.
	rounds int
}

// broken says that the driver does not keep the contract.
type broken struct{ error }

// settle translates one object, round after round. known answers needs; false leaves one open, which ends it.
func (s *suite) settle(
	ctx context.Context, object drivers.Object, known func(drivers.Need) ([]drivers.Object, bool),
) (outcome, error) {
	answers := map[drivers.Need][]drivers.Object{}
	for round := 1; round <= drivers.MaxRounds; round++ {
		result, err := s.ask(ctx, wire.NewItem(object, answers, round))
		if err != nil {
			return outcome{}, err
		}
		out, open, err := read(result, answers)
		out.rounds = round
		if err != nil || !open {
			return out, err
		}
		for _, need := range out.asked {
			objects, ok := known(need)
			if !ok {
				out.text = "waits for " + need.String()
				return out, nil
			}
			answers[need] = objects
		}
	}
	return outcome{rounds: drivers.MaxRounds},
		broken{fmt.Errorf("its needs did not settle in %d rounds", drivers.MaxRounds)}
}

// ask awaits the result of one item. A driver that takes longer than it may answers by itself that it was late.
func (s *suite) ask(ctx context.Context, item *ravenv1.TranslateItem) (*ravenv1.TranslateResult, error) {
	item.TimeoutMs = uint32(s.config.Patience.Milliseconds())
	sent, err := s.session.send([]*ravenv1.TranslateItem{item}, false)
	if err != nil {
		return nil, err
	}
	return s.session.await(ctx, sent[0], s.config.Patience+grace)
}

// grace is how much later than its deadline the result of an item may come.
const grace = 3 * time.Second

// read tells what a result says; open says that it waits for answers. The error is a broken.
func read(
	result *ravenv1.TranslateResult, answers map[drivers.Need][]drivers.Object,
) (out outcome, open bool, err error) {
	seen, news := map[drivers.Need]bool{}, false
	for _, message := range result.GetNeeds() {
		need := wire.NeedFromProto(message)
		if seen[need] {
			return out, false, broken{fmt.Errorf("it lists the need %s twice in one result", need)}
		}
		seen[need] = true
		out.asked = append(out.asked, need)
		if _, answered := answers[need]; !answered {
			news = true
		}
	}
	switch got := result.GetOutcome().(type) {
	case *ravenv1.TranslateResult_Set:
		set, err := wire.SetFromProto(got.Set)
		if err != nil {
			return out, false, broken{fmt.Errorf("its Set cannot be read: %w", err)}
		}
		out.set = &set
		canonical, err := proto.MarshalOptions{Deterministic: true}.Marshal(got.Set)
		if err != nil {
			return out, false, broken{fmt.Errorf("its Set cannot be encoded: %w", err)}
		}
		out.text = string(canonical)
	case *ravenv1.TranslateResult_Unanswered:
		if !news {
			return out, false, broken{errors.New("it waits for an answer but asked nothing new")}
		}
		return out, true, nil
	case *ravenv1.TranslateResult_Error:
		out.err = got.Error
		out.text = "error: " + got.Error.GetMessage()
		if got.Error.GetMessage() == "" {
			return out, false, broken{errors.New("its error has no message")}
		}
	default:
		return out, false, broken{errors.New("its result has no outcome")}
	}
	return out, false, nil
}
