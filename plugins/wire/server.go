// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kuryr/raven/drivers"
	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
)

// ServerConfig says how a driver is served. The zero ServerConfig is a good one.
type ServerConfig struct {
	// Logger gets panics with their stacks. Nil discards them.
	Logger *slog.Logger
	// Version is given as the driver's own, whatever its Info says. Empty leaves that.
	Version string
	// Workers is how many objects are translated at a time. 0 means GOMAXPROCS.
	Workers int
	// MaxAbandoned is how many translations may go on after their deadline before the stream is given up, so that the
	// core starts the driver anew. 0 means 16.
	MaxAbandoned int
}

// Server serves a drivers.Driver.
type Server struct {
	ravenv1.UnsafeDriverServiceServer
	driver drivers.Driver
	config ServerConfig
	slots  chan struct{}

	mu        sync.Mutex
	draining  bool
	inFlight  int
	idle      chan struct{} // closed when draining and nothing is in flight
	abandoned int
	core      coreInfo
}

var _ ravenv1.DriverServiceServer = (*Server)(nil)

// NewServer returns a server for a driver.
func NewServer(driver drivers.Driver, config ServerConfig) *Server {
	config.Logger = orDiscard(config.Logger)
	if config.Workers <= 0 {
		config.Workers = runtime.GOMAXPROCS(0)
	}
	if config.MaxAbandoned <= 0 {
		config.MaxAbandoned = 16
	}
	return &Server{driver: driver, config: config, slots: make(chan struct{}, config.Workers), idle: make(chan struct{})}
}

// GetInfo implements the contract.
func (s *Server) GetInfo(_ context.Context, request *ravenv1.GetInfoRequest) (*ravenv1.GetInfoResponse, error) {
	s.noteCore(request)
	var info *ravenv1.GetInfoResponse
	err := s.guard("Info", func() (err error) {
		if aware, ok := s.driver.(drivers.CoreAware); ok {
			aware.Core(request.GetCapabilities())
		}
		said := s.driver.Info()
		said.Version = cmp.Or(s.config.Version, said.Version)
		info, err = InfoToProto(said)
		return err
	})
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return info, nil
}

// Configure implements the contract.
func (s *Server) Configure(ctx context.Context, request *ravenv1.ConfigureRequest) (*ravenv1.ConfigureResponse, error) {
	values, err := ValuesFromProto(request)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	response := &ravenv1.ConfigureResponse{}
	err = s.guard("Configure", func() error {
		if err := s.driver.Configure(ctx, values); err != nil {
			return err
		}
		response.Watches = watchesToProto(s.driver.Watches())
		return nil
	})
	response.Diagnostics = refusal(err)
	return response, nil
}

// Drain implements the contract.
func (s *Server) Drain(ctx context.Context, _ *ravenv1.DrainRequest) (*ravenv1.DrainResponse, error) {
	s.mu.Lock()
	if !s.draining {
		s.draining = true
		if s.inFlight == 0 {
			close(s.idle)
		}
	}
	s.mu.Unlock()
	select {
	case <-s.idle:
		return &ravenv1.DrainResponse{}, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// guard turns a panic of the driver into an error, and says it with its stack in the log.
func (s *Server) guard(what string, call func() error) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		cause := recover()
		s.config.Logger.Error("driver panicked", "in", what, "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
		err = &Error{Code: Panic, Message: fmt.Sprintf("%s panicked: %v", what, cause)}
	}()
	err = call()
	returned = true
	return err
}

// translate makes the result of one item.
func (s *Server) translate(ctx context.Context, item *ravenv1.TranslateItem) *ravenv1.TranslateResult {
	result := &ravenv1.TranslateResult{Id: item.GetId()}
	answers, err := answersFromProto(item.GetAnswers())
	if err != nil {
		return failed(result, &Error{Code: Invalid, Message: err.Error()})
	}
	needs := drivers.NewNeeds(answers).WithRound(int(item.GetRound()))
	var (
		set    *ravenv1.Set
		wanted drivers.Set
	)
	err = s.guard("Translate", func() (err error) {
		object := objectFromProto(item.GetObject())
		logger := slog.New(&objectHandler{Handler: s.config.Logger.Handler(), object: object})
		wanted, err = s.driver.Translate(drivers.WithLogger(ctx, logger), object, needs)
		if err != nil {
			return err
		}
		set, err = SetToProto(wanted)
		return err
	})
	var own *Error
	panicked := errors.As(err, &own) && own.Code == Panic
	if err != nil {
		wanted = drivers.Set{}
	}
	if beyond := s.beyondCore(wanted, needs.Asked()); beyond != nil && !panicked {
		return failed(result, beyond)
	}
	result.Needs = needsToProto(needs.Asked())
	switch {
	case needs.Open() && !panicked:
		result.Outcome = &ravenv1.TranslateResult_Unanswered{Unanswered: &ravenv1.Unanswered{}}
	case err != nil:
		return failed(result, err)
	default:
		result.Outcome = &ravenv1.TranslateResult_Set{Set: set}
	}
	// What cannot be encoded, such as text that is not UTF-8, would end the stream for all: find it here.
	encoded, err := proto.Marshal(result)
	switch {
	case err != nil:
		return failed(&ravenv1.TranslateResult{Id: item.GetId()}, fmt.Errorf("the Set cannot be encoded: %w", err))
	case len(encoded) > MaxResult:
		return failed(&ravenv1.TranslateResult{Id: item.GetId()},
			fmt.Errorf("the Set is %d bytes long, over %d", len(encoded), MaxResult))
	}
	return result
}

func failed(result *ravenv1.TranslateResult, err error) *ravenv1.TranslateResult {
	out := errorToProto(err)
	out.Message = validText(out.GetMessage())
	result.Outcome = &ravenv1.TranslateResult_Error{Error: out}
	return result
}

// enter counts an item in; it says no while draining.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	s.inFlight++
	return true
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight--
	if s.draining && s.inFlight == 0 {
		close(s.idle)
	}
}

func (s *Server) abandon(by int) (tooMany bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abandoned += by
	return s.abandoned >= s.config.MaxAbandoned
}

// Translate implements the contract.
func (s *Server) Translate(stream grpc.BidiStreamingServer[ravenv1.TranslateRequest, ravenv1.TranslateResponse]) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	session := &serverSession{
		server: s, cancels: map[uint64]context.CancelFunc{}, fail: cancel, ready: make(chan struct{}, 1),
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if err := session.send(stream); err != nil {
			cancel(err)
		}
	}()
	received := make(chan error, 1)
	go func() { received <- session.receive(ctx, stream) }()
	var err error
	select {
	case err = <-received: // in order: finish what is in hand
	case <-ctx.Done():
		err = context.Cause(ctx) // returning ends the stream, and with it the receiver
	}
	if err != nil {
		cancel(err)
	}
	session.end()
	session.items.Wait()
	session.close()
	<-sent
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return status.Error(codes.Aborted, err.Error())
	}
	return nil
}

// serverSession is one Translate stream.
type serverSession struct {
	server *Server
	fail   context.CancelCauseFunc
	items  sync.WaitGroup
	ready  chan struct{}

	mu      sync.Mutex
	cancels map[uint64]context.CancelFunc
	results []*ravenv1.TranslateResult
	ending  bool // nothing is started any more
	closed  bool
}

func (s *serverSession) receive(
	ctx context.Context, stream grpc.BidiStreamingServer[ravenv1.TranslateRequest, ravenv1.TranslateResponse],
) error {
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		for _, id := range request.GetCancel() {
			if cancel := s.cancels[id]; cancel != nil {
				cancel()
			}
		}
		s.mu.Unlock()
		for _, item := range request.GetItems() {
			s.start(ctx, item)
		}
	}
}

func (s *serverSession) start(ctx context.Context, item *ravenv1.TranslateItem) {
	ctx, cancel := context.WithCancel(ctx)
	if !s.server.enter() {
		cancel()
		s.deliver(
			failed(&ravenv1.TranslateResult{Id: item.GetId()}, &Error{Code: Cancelled, Message: "the driver is draining"}),
		)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		cancel()
		s.server.leave()
		return
	}
	s.cancels[item.GetId()] = cancel
	s.items.Go(func() {
		result := s.run(ctx, item)
		s.mu.Lock()
		delete(s.cancels, item.GetId())
		s.mu.Unlock()
		cancel()
		s.deliver(result)
		s.server.leave()
	})
}

// run translates one item when a slot is free, from when the item's time counts. When that is over first, the
// translation is left to itself and its slot is free again: one object that hangs must not hold up the others.
func (s *serverSession) run(ctx context.Context, item *ravenv1.TranslateItem) *ravenv1.TranslateResult {
	select {
	case s.server.slots <- struct{}{}:
	case <-ctx.Done():
		return failed(&ravenv1.TranslateResult{Id: item.GetId()}, ctxError(ctx))
	}
	defer func() { <-s.server.slots }()
	if ctx.Err() != nil {
		return failed(&ravenv1.TranslateResult{Id: item.GetId()}, ctxError(ctx))
	}
	if timeout := item.GetTimeoutMs(); timeout > 0 {
		timed, cancel := context.WithTimeout(ctx, time.Duration(timeout)*time.Millisecond)
		defer cancel()
		ctx = timed
	}
	done := make(chan *ravenv1.TranslateResult, 1)
	go func() {
		// This result stands when the driver ends the goroutine itself, by runtime.Goexit.
		result := failed(&ravenv1.TranslateResult{Id: item.GetId()},
			&Error{Code: Panic, Message: "Translate ended its goroutine"})
		defer func() { done <- result }()
		result = s.server.translate(ctx, item)
	}()
	select {
	case result := <-done:
		return result
	case <-ctx.Done():
	}
	if s.server.abandon(1) {
		s.fail(errors.New("too many translations go on after their deadline"))
	}
	go func() {
		<-done
		s.server.abandon(-1)
	}()
	return failed(&ravenv1.TranslateResult{Id: item.GetId()}, ctxError(ctx))
}

func ctxError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return lateError()
	}
	return &Error{Code: Cancelled, Message: "the translation was cancelled"}
}

func lateError() *Error { return &Error{Code: Deadline, Message: "the driver did not answer in time"} }

func (s *serverSession) deliver(result *ravenv1.TranslateResult) {
	s.mu.Lock()
	s.results = append(s.results, result)
	s.mu.Unlock()
	wake(s.ready)
}

// end has the receiver start nothing more, so that what was started can be waited for.
func (s *serverSession) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
}

func (s *serverSession) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	wake(s.ready)
}

// send sends whatever is ready whenever the stream is free.
func (s *serverSession) send(
	stream grpc.BidiStreamingServer[ravenv1.TranslateRequest, ravenv1.TranslateResponse],
) error {
	for range s.ready {
		s.mu.Lock()
		results, closed := s.results, s.closed
		s.results = nil
		s.mu.Unlock()
		for len(results) > 0 {
			count := batch(results)
			if err := stream.Send(&ravenv1.TranslateResponse{Results: results[:count]}); err != nil {
				return err
			}
			results = results[count:]
		}
		if closed {
			return nil
		}
	}
	return nil
}
