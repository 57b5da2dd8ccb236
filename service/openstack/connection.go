// SPDX-License-Identifier: Apache-2.0

// Package openstack connects to one project of an OpenStack cloud and sends requests to its services: it logs in, finds
// the services, paces and fences requests, and says what an error means. It is the only user of gophercloud. It must
// never decide what should exist, never touch a resource it was not told to, and never let a partial list pass for a
// whole one.
package openstack

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"k8s.io/utils/clock"
)

// ErrClosed is in the error of a call that was still waiting for its turn when the Connection was closed. Nothing was
// sent.
var ErrClosed = errors.New("the connection to the cloud is closed")

// Connection is a connection to one project of one cloud. It is safe for concurrent use. Each service has a limiter of
// its own, whose limit adapts to what the service bears; the fence is the same for all.
type Connection struct {
	config    Config
	log       *slog.Logger
	clock     clock.Clock
	transport http.RoundTripper
	provider  *gophercloud.ProviderClient
	projectID string
	fence     *fence
	stats     *stats

	identity   *reach
	networking *Service
	balancing  *Service

	stop     chan struct{}
	stopOnce sync.Once
	work     sync.WaitGroup
}

// newConnection builds a Connection around an authenticated client.
func newConnection(
	config Config, provider *gophercloud.ProviderClient, transport http.RoundTripper, identity *reach,
	logger *slog.Logger,
) *Connection {
	c := &Connection{
		config: config, log: logger, clock: config.Clock, transport: transport, provider: provider,
		identity: identity, fence: &fence{}, stats: newStats(), stop: make(chan struct{}),
	}
	c.networking, c.balancing = newService(c), newService(c)
	return c
}

// Close ends waiting calls with ErrClosed, waits for requests in flight, and closes idle connections. Requests in
// flight end by their own time limit or when the contexts of their callers end, so a caller cancels those first.
// Nothing may be asked of a Connection after Close.
func (c *Connection) Close() {
	c.stopOnce.Do(func() { close(c.stop) })
	c.work.Wait()
	if t, ok := c.transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// Networking is the networking service.
func (c *Connection) Networking() *Service { return c.networking }

// Balancing is the load balancing service, which the catalog may not have, or not yet: see Service.Available.
func (c *Connection) Balancing() *Service { return c.balancing }

// ProjectID is the project that everything is made in.
func (c *Connection) ProjectID() string { return c.projectID }

// AmbiguousWait is how long after an ambiguous create the request may still take effect on the server.
func (c *Connection) AmbiguousWait() time.Duration { return c.config.AmbiguousWait }

// RequestTimeout is the longest that one request takes.
func (c *Connection) RequestTimeout() time.Duration { return c.config.Timeout }

// Config is what the connection was made with; what was left open is filled in.
func (c *Connection) Config() Config { return c.config }

// Logger is where what happens to the connection is said.
func (c *Connection) Logger() *slog.Logger { return c.log }

// Go runs work that Close waits for.
func (c *Connection) Go(work func()) { c.work.Go(work) }

// Closed is closed when the Connection is being closed.
func (c *Connection) Closed() <-chan struct{} { return c.stop }

// Ended says why nothing may be asked any more for a caller: it has given up, or the connection is closed.
func (c *Connection) Ended(ctx context.Context) error {
	select {
	case <-c.stop:
		return ErrClosed
	default:
		return ctx.Err()
	}
}
