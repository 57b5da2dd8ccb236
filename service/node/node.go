// SPDX-License-Identifier: Apache-2.0

// Package node is the daemon of a Kubernetes node: it plugs pods into the Neutron ports that Raven has made for them,
// as raven-cni asks, and the node itself into its own. It must never talk to OpenStack, and never touch an interface
// that it did not make.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuryr/raven/service/health"
	"github.com/kuryr/raven/service/openvswitch"
	"github.com/kuryr/raven/service/watch"
)

// Node is the service that does the work.
type Node struct {
	config  Config
	log     *slog.Logger
	metrics *metrics
	ovs     *openvswitch.Switch
	south   *south
	objects *objects
	links   *links
	turns   turns

	// What is reported of each part.
	switched, watched, served, own *health.Component

	// serving is the life of requests. It ends before all else: an ADD that is cut off takes away what it has made.
	serving  context.Context //nolint:containedctx // see above
	refuse   context.CancelFunc
	cancel   context.CancelFunc
	work     sync.WaitGroup
	requests sync.WaitGroup
	server   *http.Server
	ended    chan struct{}

	named atomic.Bool // the API server has shown the Node, so that its pods are those of this machine

	// Used by keep alone: when plugin and CNI configuration were last found as they should be, and what was written on
	// the Node last.
	installed time.Time
	published published
	// translated is what contract.TranslatedAddresses should say.
	translated string

	mu     sync.Mutex // guards what follows
	failed error
	closed bool // requests are not let in any more
	warned bool // of a southbound database that is unavailable
}

// New returns a node's daemon that does nothing yet. It reports to the registry.
func New(c Config, registry *health.Registry) (*Node, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	n := &Node{
		config: c, log: c.Logger, metrics: newMetrics(), south: &south{}, ended: make(chan struct{}),
		switched: registry.Component("openvswitch"), watched: registry.Component("kubernetes"),
		served: registry.Component("cni"), own: registry.Component("node interface"),
	}
	var err error
	n.ovs, err = openvswitch.New(openvswitch.Config{Endpoint: c.OVS, Bridge: c.Bridge, Logger: c.Logger, Clock: c.Clock})
	if err != nil {
		return nil, fmt.Errorf("[node]: %w", err)
	}
	n.objects, err = newObjects(c.Name, watch.Config{
		Clients: c.Clients, Logger: c.Logger, Clock: c.Clock, ListOnly: c.ListOnly,
	})
	return n, err
}

// Metrics returns what the daemon counts.
func (n *Node) Metrics() prometheus.Collector { return n.metrics }

// Start begins to serve. What the daemon needs need not be there yet: requests wait for it.
func (n *Node) Start(ctx context.Context) error {
	var err error
	if n.links, err = newLinks(); err != nil {
		return err
	}
	listener, err := n.listen(ctx)
	if err != nil {
		n.links.close()
		return err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n.cancel = cancel
	n.serving, n.refuse = context.WithCancel(running)
	n.server = &http.Server{
		Handler: n.handler(), ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(n.log.Handler(), slog.LevelWarn),
	}
	n.work.Go(func() {
		if err := n.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			n.fail(fmt.Errorf("serving raven-cni on %s: %w", n.config.Socket, err))
		}
	})
	for _, task := range []func(context.Context) error{n.ovs.Run, n.objects.manager.Run, n.keep} {
		n.work.Go(func() {
			if err := task(running); err != nil && running.Err() == nil {
				n.fail(err)
			}
		})
	}
	go func() {
		n.work.Wait()
		n.refuse()
		n.drain()
		n.south.close()
		n.links.close()
		close(n.ended)
	}()
	n.log.Info("serving raven-cni", "socket", n.config.Socket, "node", n.config.Name)
	return nil
}

// fail keeps the first error, and ends the work.
func (n *Node) fail(err error) {
	n.mu.Lock()
	if n.failed == nil {
		n.failed = err
	}
	n.mu.Unlock()
	n.cancel()
	_ = n.server.Close()
}

// Stop ends the work. Requests that are waiting get an error, upon which the kubelet asks again; what an ADD has made
// by then is taken away. Pods that are plugged in stay so.
func (n *Node) Stop(ctx context.Context, graceful bool) error {
	n.served.NotReady("stopping")
	n.refuse()
	var err error
	if graceful {
		err = n.server.Shutdown(ctx)
	}
	if !graceful || err != nil {
		err = errors.Join(err, n.server.Close())
	}
	n.cancel()
	select {
	case <-n.ended:
		return err
	case <-ctx.Done():
		return errors.Join(err, fmt.Errorf("waiting for the node's daemon to end: %w", ctx.Err()))
	}
}

// Wait returns when the work has ended: nil after Stop.
func (n *Node) Wait() error {
	<-n.ended
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failed
}

// Reset does nothing: a node's daemon is restarted to follow a change of its configuration, under running pods.
func (n *Node) Reset(context.Context) error { return nil }
