// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/gophercloud/gophercloud/v2"
)

// maxBody bounds what is read of one response, in bytes; a page of a thousand ports is about one megabyte.
const maxBody = 256 << 20

const (
	// OpCreate is the op of a create.
	OpCreate = "creating"
	// OpList is the op of a request whose cost is not known before.
	OpList = "listing"
)

// Service is one service of the cloud. It has a limiter and a gate of its own, so that what it bears does not hold up
// another.
type Service struct {
	connection *Connection
	client     atomic.Pointer[gophercloud.ServiceClient] // nil as long as the catalog has no such service
	limiter    *limiter
	gate       *gate
	reach      *reach
	polls      chan struct{} // semaphore of requests that poll what is busy, without a slot of the limiter
}

func newService(c *Connection) *Service {
	return &Service{
		connection: c, limiter: newLimiter(c.config.MaxConcurrency, c.clock), gate: newGate(c.clock),
		reach: &reach{clock: c.clock}, polls: make(chan struct{}, MaxPolls),
	}
}

// Available says whether the catalog has the service. If not, nothing may be asked of it.
func (s *Service) Available() bool { return s.client.Load() != nil }

// Endpoint is where the service is, without a password; empty where it is not available.
func (s *Service) Endpoint() string {
	client := s.client.Load()
	if client == nil {
		return ""
	}
	return redacted(client.Endpoint)
}

// Limit is how many requests may be in flight now.
func (s *Service) Limit() int {
	limit, _, _ := s.limiter.state()
	return limit
}

// Waiting is how many requests wait for a slot.
func (s *Service) Waiting() int {
	_, _, waiting := s.limiter.state()
	return waiting
}

// HeldBack is how long the service asked to be left alone from now.
func (s *Service) HeldBack() time.Duration { return max(s.gate.left(), 0) }

// Call is one request to a service.
type Call struct {
	Op         string // for errors: "creating"
	Method     string
	Collection Collection
	Path       string // below v2.0/
	Root       bool   // of the service, above v2.0/: its versions
	Query      url.Values
	Body       map[string]any
	Header     map[string]string
	Items      int    // how many resources it is about; at least 1
	What       string // the resource, for errors: a name or an id
	Create     bool   // a cut or a server error leaves open whether something was made
}

// Do waits for the service's gate and for a slot, and sends the request.
func (s *Service) Do(ctx context.Context, r Call) (map[string]any, error) {
	if r.Collection.Polled {
		if err := s.enterPoll(ctx); err != nil {
			return nil, NewError(r, err, false)
		}
		defer func() { <-s.polls }()
		return s.Send(ctx, r)
	}
	if err := s.Acquire(ctx); err != nil {
		return nil, NewError(r, err, false)
	}
	defer s.Release()
	return s.Send(ctx, r)
}

// MaxPolls is how many requests without a slot there are at a time: enough for one that polls what is busy beside
// some who were refused since it was.
const MaxPolls = 3

// enterPoll waits until the service may be asked, and for its turn among those who do so without a slot. A nil error
// obliges the caller to receive from s.polls.
func (s *Service) enterPoll(ctx context.Context) error {
	if err := s.gate.wait(ctx, s.connection.stop); err != nil {
		return err
	}
	select {
	case s.polls <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.connection.stop:
		return ErrClosed
	}
}

// Acquire waits until the service may be asked, and takes a slot of its limiter. A nil error obliges the caller to
// Release it.
func (s *Service) Acquire(ctx context.Context) error {
	for {
		select {
		case <-s.connection.stop:
			return ErrClosed
		default:
		}
		if err := s.gate.wait(ctx, s.connection.stop); err != nil {
			return err
		}
		if err := s.limiter.acquire(ctx, s.connection.stop); err != nil {
			return err
		}
		if s.gate.open() {
			return nil
		}
		s.Release()
	}
}

// Release gives back what Acquire took.
func (s *Service) Release() { s.limiter.release() }

// Send sends one request within the time limit, a change only as long as the fence lets it pass; the caller holds a
// slot. The error is always an *Error.
func (s *Service) Send(ctx context.Context, r Call) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, s.connection.config.Timeout)
	defer cancel()
	if r.Method != http.MethodGet {
		passed, leave, err := s.connection.fence.pass(ctx)
		if err != nil {
			return nil, NewError(r, err, false)
		}
		defer leave()
		ctx = passed
	}
	var sent atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		// The transport tries again by itself only if nothing had left: what counts is the last attempt.
		GetConn:      func(string) { sent.Store(false) },
		WroteHeaders: func() { sent.Store(true) },
	})
	client := s.client.Load()
	target := client.ServiceURL(r.Path)
	if r.Root {
		target = client.Endpoint
	}
	if len(r.Query) > 0 {
		target += "?" + r.Query.Encode()
	}
	options := &gophercloud.RequestOpts{
		MoreHeaders: r.Header, KeepResponseBody: true, OkCodes: []int{200, 201, 202, 204},
	}
	if r.Body != nil {
		options.JSONBody = r.Body
	}
	s.connection.stats.sending.Add(1)
	defer s.connection.stats.sending.Add(-1)
	started := s.connection.clock.Now()
	response, err := client.Request(traced, r.Method, target, options) //nolint:bodyclose // read closes it
	var doc map[string]any
	if err == nil {
		doc, err = read(response)
	}
	var failure *Error
	if err != nil {
		failure = NewError(r, err, sent.Load())
	}
	took := s.connection.clock.Since(started)
	done := sample{n: max(r.Items, 1), took: took, started: started, key: r.Op + " " + r.Collection.Path}
	s.note(r, response, failure, done)
	if failure == nil {
		s.reach.note(nil)
		return doc, nil
	}
	s.reach.note(failure)
	return nil, failure
}

// note tells the limiter, the gate and the statistics how a request went.
func (s *Service) note(r Call, response *http.Response, failure *Error, done sample) {
	status := 0
	if failure != nil {
		status = failure.Status
	} else if response != nil {
		status = response.StatusCode
	}
	s.connection.stats.add(r.Method, r.Collection, status, done)
	if failure == nil {
		if r.Op != OpList && !r.Collection.Polled { // How long a list takes says more about its length than about the server.
			s.limiter.observe(done, s.connection.clock.Now())
		}
		return
	}
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusRequestEntityTooLarge:
		if failure.Retry > 0 {
			s.gate.shut(failure.Retry)
		}
	}
	if failure.Overload() {
		s.limiter.overloaded(done, s.connection.clock.Now())
	}
}

// read reads a response whole. A body that ends early is an error.
func read(response *http.Response) (map[string]any, error) {
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	if err != nil {
		return nil, fmt.Errorf("reading the response: %w", err)
	}
	if len(body) > maxBody {
		return nil, fmt.Errorf("the response is longer than %d bytes", maxBody)
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return map[string]any{}, nil
	}
	return decode(body)
}
