// Package openstack observes and changes one project's network resources in an OpenStack cloud: it is the only user of
// gophercloud. It must never decide what should exist, never touch a resource it was not told to, and never let a partial
// list pass for a whole one.
package openstack

import (
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
)

// ErrClosed is in the error of a call that was still waiting for its turn when the Cloud was closed. Nothing was sent.
var ErrClosed = errors.New("the connection to the cloud is closed")

// Cloud is a connection to one project of one cloud. It is safe for concurrent use. Requests share one limiter, whose limit
// adapts to what the server bears; creates of a kind that wait for a slot at the same time go in one request.
type Cloud struct {
	config      Config
	log         *slog.Logger
	clock       clock.Clock
	client      atomic.Pointer[gophercloud.ServiceClient] // of balancers nil as long as the catalog has no such service
	transport   http.RoundTripper
	projectID   string
	extensions  map[string]bool
	kinds       map[drivers.Kind]kind
	limiter     *limiter
	gate        *gate
	fence       *fence
	stats       *stats
	unsupported *unsupported
	serial      *serialMode
	polls       chan struct{} // semaphore of requests that look at what is busy, without a slot of the limiter; nil where there are none
	room        atomic.Pointer[func(networkID string) (free int, known bool)]
	batchers    map[drivers.Kind]*batcher
	finders     map[drivers.Kind]*finder
	balancers   *balancers

	stop     chan struct{}
	stopOnce sync.Once
	work     sync.WaitGroup
}

// newCloud builds a Cloud around an authenticated client.
func newCloud(config Config, client *gophercloud.ServiceClient, transport http.RoundTripper, logger *slog.Logger) *Cloud {
	c := &Cloud{
		config: config, log: logger, clock: config.Clock, transport: transport,
		extensions: map[string]bool{}, kinds: kinds(),
		limiter: newLimiter(config.MaxConcurrency, config.Clock), gate: newGate(config.Clock),
		fence: &fence{}, stats: newStats(), unsupported: newUnsupported(logger), serial: newSerialMode(config.Clock),
		batchers: map[drivers.Kind]*batcher{}, finders: map[drivers.Kind]*finder{},
		stop: make(chan struct{}),
	}
	c.client.Store(client)
	for name, k := range c.kinds {
		c.finders[name] = &finder{cloud: c, kind: k}
		if k.bulk {
			c.batchers[name] = &batcher{
				cloud: c, kind: k, outstanding: map[string]int{}, sizes: newSizer(config.MaxBatch, time.Duration(batchShare*float64(config.Timeout))),
			}
		}
	}
	return c
}

// Close ends waiting calls with ErrClosed, waits for requests in flight, and closes idle connections. Requests in flight end
// by their own time limit or when the contexts of their callers end, so a caller cancels those first. Nothing may be asked
// of a Cloud after Close.
func (c *Cloud) Close() {
	c.stopOnce.Do(func() { close(c.stop) })
	c.work.Wait()
	if c.balancers != nil {
		c.balancers.work.Wait()
	}
	if t, ok := c.transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// ProjectID is the project that everything is made in.
func (c *Cloud) ProjectID() string { return c.projectID }

// AmbiguousWait is how long after an ambiguous create the request may still take effect on the server.
func (c *Cloud) AmbiguousWait() time.Duration { return c.config.AmbiguousWait }

// RequestTimeout is the longest that one request takes.
func (c *Cloud) RequestTimeout() time.Duration { return c.config.Timeout }

// Has says whether the cloud's networking service has an extension, by alias.
func (c *Cloud) Has(extension string) bool { return c.extensions[extension] }

// Extensions lists the aliases of the networking service's extensions, sorted.
func (c *Cloud) Extensions() []string {
	list := make([]string, 0, len(c.extensions))
	for alias := range c.extensions {
		list = append(list, alias)
	}
	slices.Sort(list)
	return list
}

// Unsupported lists the best-effort attributes of a kind that these credentials turned out not to be allowed to set. They
// are left out of creates and updates from then on.
func (c *Cloud) Unsupported(of drivers.Kind) []string { return c.unsupported.of(of) }
