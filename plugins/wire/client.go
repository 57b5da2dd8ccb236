// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
)

// ClientConfig says how the core talks to a driver. The zero ClientConfig is a good one.
type ClientConfig struct {
	// CoreVersion is Raven's version.
	CoreVersion string
	// Enabled names the drivers that are enabled, which each driver is told.
	Enabled []string
	// Logger gets what the driver says about its configuration without refusing it. Nil discards it.
	Logger *slog.Logger
	// Timeout is how long the driver may take over one item, from when it is sent. A call that waits for its turn in the
	// core waits as long as its context lets it. 0 means no limit.
	Timeout time.Duration
	// Clock decides when a call's time is over and how long it is overdue. Nil means the real one.
	Clock clock.Clock
}

// Client is the core's end of a connection: a drivers.Driver once Connect has returned. It is safe for concurrent
// use. Calls of Translate that come together travel together.
type Client struct {
	rpc    ravenv1.DriverServiceClient
	config ClientConfig

	mu      sync.Mutex
	info    drivers.Info
	watches []drivers.Watch
	session *clientSession
}

var _ drivers.Driver = (*Client)(nil)

// NewClient returns a client that uses a connection made with DialOptions. The connection stays the caller's.
func NewClient(conn grpc.ClientConnInterface, config ClientConfig) *Client {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	config.Logger = orDiscard(config.Logger)
	return &Client{rpc: ravenv1.NewDriverServiceClient(conn), config: config}
}

// Connect asks for the driver's Info and opens the stream. ctx bounds Connect, not the stream: Close ends that.
func (c *Client) Connect(ctx context.Context) error {
	response, err := c.rpc.GetInfo(ctx,
		&ravenv1.GetInfoRequest{CoreVersion: c.config.CoreVersion, Capabilities: coreCapabilities(c.config.Enabled)})
	if err != nil {
		return callError(ctx, "asking for the driver's info", err)
	}
	info, err := InfoFromProto(response)
	if err != nil {
		return fmt.Errorf("reading the driver's info: %w", err)
	}
	session, err := c.open(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.info, c.session = info, session
	return nil
}

// Info implements drivers.Driver; it is empty before Connect.
func (c *Client) Info() drivers.Info {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.info
}

// Watches implements drivers.Driver.
func (c *Client) Watches() []drivers.Watch {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.watches
}

// Configure implements drivers.Driver. Values that the driver refuses give an error with its messages, the same as a
// direct call would.
func (c *Client) Configure(ctx context.Context, values drivers.Values) error {
	request, err := ValuesToProto(values)
	if err != nil {
		return err
	}
	response, err := c.rpc.Configure(ctx, request)
	if err != nil {
		return callError(ctx, "configuring", err)
	}
	for _, diagnostic := range response.GetDiagnostics() {
		if diagnostic.GetSeverity() == ravenv1.Severity_SEVERITY_WARNING {
			c.config.Logger.WarnContext(ctx, "driver warns about its configuration", "group", diagnostic.GetGroup(),
				"option", diagnostic.GetName(), "message", diagnostic.GetMessage())
		}
	}
	if err := refused(response.GetDiagnostics()); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watches = watchesFromProto(response.GetWatches())
	return nil
}

// Drain tells the driver that it will be stopped and waits until nothing is in flight.
func (c *Client) Drain(ctx context.Context) error {
	if _, err := c.rpc.Drain(ctx, &ravenv1.DrainRequest{}); err != nil {
		return callError(ctx, "draining", err)
	}
	return nil
}

// Translate implements drivers.Driver. Only so many items are in the driver at a time; the others wait for their
// turn. The driver has the time of ClientConfig.Timeout, and no more than is left until the deadline of ctx. The
// error is an *Error when it is about this object, ErrUnavailable when there is no driver to ask, or that of ctx.
func (c *Client) Translate(ctx context.Context, object drivers.Object, needs *drivers.Needs) (drivers.Set, error) {
	c.mu.Lock()
	session := c.session
	c.mu.Unlock()
	if session == nil {
		return drivers.Set{}, ErrUnavailable
	}
	item := &ravenv1.TranslateItem{
		Round:  uint32(max(needs.Round(), 1)), // at most MaxRounds
		Object: objectToProto(object), Answers: answersToProto(needs.Answers()),
	}
	if size := proto.Size(item); size > maxPart {
		return drivers.Set{},
			&Error{Code: Invalid, Message: fmt.Sprintf("the object is %d bytes long, over %d", size, maxPart)}
	}
	result, err := session.call(ctx, item)
	if err != nil {
		return drivers.Set{}, err
	}
	if err := checkCounts(result); err != nil {
		return drivers.Set{}, err
	}
	for _, need := range result.GetNeeds() {
		needs.Get(needFromProto(need))
	}
	switch outcome := result.GetOutcome().(type) {
	case *ravenv1.TranslateResult_Set:
		set, err := SetFromProto(outcome.Set)
		if err != nil {
			return drivers.Set{}, &Error{Code: Terminal, Message: err.Error()}
		}
		return set, nil
	case *ravenv1.TranslateResult_Unanswered:
		if !needs.Open() {
			return drivers.Set{}, &Error{Code: Terminal, Message: "the driver waits for an answer but asked nothing new"}
		}
		return drivers.Set{}, nil
	case *ravenv1.TranslateResult_Error:
		return drivers.Set{}, errorFromProto(outcome.Error)
	default:
		return drivers.Set{}, &Error{Code: Terminal, Message: "the driver's result has no outcome"}
	}
}

// Done returns a channel that is closed when the stream has ended and Translate cannot succeed any more. It is nil
// before Connect.
func (c *Client) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil {
		return nil
	}
	return c.session.done
}

// Err returns why the stream has ended.
func (c *Client) Err() error {
	c.mu.Lock()
	session := c.session
	c.mu.Unlock()
	if session == nil {
		return ErrUnavailable
	}
	session.mu.Lock()
	defer session.mu.Unlock()
	return session.err
}

// Overdue returns for how long the driver has owed an answer to a call whose deadline has passed, 0 if it owes none.
// A driver answers at the deadline by itself, so more than a moment means that it, or its stream, is stuck.
func (c *Client) Overdue() time.Duration {
	c.mu.Lock()
	session := c.session
	c.mu.Unlock()
	if session == nil {
		return 0
	}
	return session.overdue()
}

// Close ends the stream and waits for it. Calls in flight return ErrUnavailable.
func (c *Client) Close() {
	c.mu.Lock()
	session := c.session
	c.mu.Unlock()
	if session != nil {
		session.stop(errors.New("connection closed"))
		session.wait.Wait()
	}
}

// callError tells a dead connection from a call that failed, and drops gRPC's framing from what people read.
func callError(ctx context.Context, doing string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", doing, ctx.Err())
	}
	switch status.Code(err) {
	case codes.Unavailable:
		return fmt.Errorf("%s: %w: %s", doing, ErrUnavailable, status.Convert(err).Message())
	case codes.DeadlineExceeded:
		return fmt.Errorf("%s: %w", doing, context.DeadlineExceeded)
	default:
		return fmt.Errorf("%s: %s", doing, status.Convert(err).Message())
	}
}

// InFlight returns how many calls the driver owes an answer to; those that wait in the core are none of them.
func (c *Client) InFlight() int {
	c.mu.Lock()
	session := c.session
	c.mu.Unlock()
	if session == nil {
		return 0
	}
	session.mu.Lock()
	defer session.mu.Unlock()
	return len(session.calls)
}
