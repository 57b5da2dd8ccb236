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

	"github.com/gophercloud/gophercloud/v2"
)

// maxBody bounds what is read of one response, in bytes; a page of a thousand ports is about one megabyte.
const maxBody = 256 << 20

// opList is the op of a request whose cost nobody knows before.
const opList = "listing"

// call is one request to the networking service.
type call struct {
	op     string // for errors: "creating"
	method string
	kind   kind
	path   string // below v2.0/
	root   bool   // of the service, above v2.0/: its versions
	query  url.Values
	body   map[string]any
	header map[string]string
	items  int    // how many resources it is about; at least 1
	what   string // the resource, for errors: a name or an id
	create bool   // a cut or a server error leaves open whether something was made
}

// do waits for the service's gate and for a slot, and sends the request.
func (c *Cloud) do(ctx context.Context, r call) (map[string]any, error) {
	if r.kind.polled {
		if err := c.enterPoll(ctx); err != nil {
			return nil, newError(r, err, false)
		}
		defer func() { <-c.polls }()
		return c.send(ctx, r)
	}
	if err := c.enter(ctx); err != nil {
		return nil, newError(r, err, false)
	}
	defer c.limiter.release()
	return c.send(ctx, r)
}

// maxPolls is how many requests without a slot there are at a time: enough for one who looks at what is busy beside some who were
// refused since it was.
const maxPolls = 3

// enterPoll waits until the service may be asked, and for its turn among those who do so without a slot. A nil error obliges the caller to
// receive from c.polls.
func (c *Cloud) enterPoll(ctx context.Context) error {
	if err := c.gate.wait(ctx, c.stop); err != nil {
		return err
	}
	select {
	case c.polls <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.stop:
		return ErrClosed
	}
}

// enter waits until the service may be asked, and takes a slot. A nil error obliges the caller to release it.
func (c *Cloud) enter(ctx context.Context) error {
	for {
		select {
		case <-c.stop:
			return ErrClosed
		default:
		}
		if err := c.gate.wait(ctx, c.stop); err != nil {
			return err
		}
		if err := c.limiter.acquire(ctx, c.stop); err != nil {
			return err
		}
		if c.gate.open() {
			return nil
		}
		c.limiter.release()
	}
}

// send sends one request within the time limit, a change only as long as the fence lets it pass; the caller holds a slot. The
// error is always an *Error.
func (c *Cloud) send(ctx context.Context, r call) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	if r.method != http.MethodGet {
		passed, leave, err := c.fence.pass(ctx)
		if err != nil {
			return nil, newError(r, err, false)
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
	client := c.client.Load()
	target := client.ServiceURL(r.path)
	if r.root {
		target = client.Endpoint
	}
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	options := &gophercloud.RequestOpts{
		MoreHeaders: r.header, KeepResponseBody: true, OkCodes: []int{200, 201, 202, 204},
	}
	if r.body != nil {
		options.JSONBody = r.body
	}
	c.stats.sending.Add(1)
	defer c.stats.sending.Add(-1)
	started := c.clock.Now()
	response, err := client.Request(traced, r.method, target, options) //nolint:bodyclose // read closes it
	var doc map[string]any
	if err == nil {
		doc, err = read(response)
	}
	var failure *Error
	if err != nil {
		failure = newError(r, err, sent.Load())
	}
	took := c.clock.Since(started)
	c.note(r, response, failure, sample{n: max(r.items, 1), took: took, started: started, key: r.op + " " + r.kind.path})
	if failure != nil {
		return nil, failure
	}
	return doc, nil
}

// note tells the limiter, the gate and the statistics how a request went.
func (c *Cloud) note(r call, response *http.Response, failure *Error, s sample) {
	status := 0
	if failure != nil {
		status = failure.Status
	} else if response != nil {
		status = response.StatusCode
	}
	c.stats.add(r.method, r.kind.many, status, s)
	if failure == nil {
		if r.op != opList && !r.kind.polled { // How long a list takes says more about its length than about the server.
			c.limiter.observe(s, c.clock.Now())
		}
		return
	}
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusRequestEntityTooLarge:
		if failure.Retry > 0 {
			c.gate.shut(failure.Retry)
		}
	}
	if overload(failure) {
		c.limiter.overloaded(s, c.clock.Now())
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
