// SPDX-License-Identifier: Apache-2.0

// Package neutron observes and changes one project's resources in the networking service. It must never decide what
// should exist, never touch a resource it was not told to, and never let a partial list pass for a whole one.
package neutron

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/internal/search"
	"github.com/kuryr/raven/service/plan"
)

// Client is the networking service, with what was learned of its limits. It is safe for concurrent use. Creates of a
// kind that wait for a slot of the limiter at the same time go in one request.
type Client struct {
	connection  *openstack.Connection
	service     *openstack.Service
	log         *slog.Logger
	clock       clock.Clock
	projectID   string
	extensions  map[string]bool
	kinds       map[drivers.Kind]kind
	unsupported *unsupported
	serial      *serialMode
	room        atomic.Pointer[func(networkID string) (free int, known bool)]
	batchers    map[drivers.Kind]*batcher
	finders     map[drivers.Kind]*search.Finder

	mu     sync.Mutex
	events map[string]int64 // what became of bulk requests
}

// New reads once what the networking service can do.
func New(ctx context.Context, connection *openstack.Connection) (*Client, error) {
	config := connection.Config()
	c := &Client{
		connection: connection, service: connection.Networking(), log: connection.Logger(), clock: config.Clock,
		projectID: connection.ProjectID(), extensions: map[string]bool{}, kinds: kinds(),
		unsupported: newUnsupported(connection.Logger()), serial: newSerialMode(config.Clock),
		batchers: map[drivers.Kind]*batcher{}, finders: map[drivers.Kind]*search.Finder{}, events: map[string]int64{},
	}
	if err := c.readExtensions(ctx); err != nil {
		return nil, err
	}
	for name, k := range c.kinds {
		c.finders[name] = &search.Finder{
			Service: c.service, Collection: k.Collection, Observe: k.observed, Taggable: k.taggable, Project: c.projectID,
			Go:  connection.Go,
			All: func(ctx context.Context, cluster string) ([]plan.Observed, error) { return c.List(ctx, name, cluster) },
		}
		if k.bulk {
			c.batchers[name] = &batcher{
				client: c, kind: k, outstanding: map[string]int{},
				sizes: newSizer(config.MaxBatch, time.Duration(batchShare*float64(config.Timeout))),
			}
		}
	}
	c.log.Info("connected to the cloud", "network", c.service.Endpoint(), "project", c.projectID,
		"tags", c.kinds[drivers.KindPort].taggable, "revisions", c.Has("revision-if-match"))
	return c, nil
}

// Has says whether the networking service has an extension, by alias.
func (c *Client) Has(extension string) bool { return c.extensions[extension] }

// Extensions lists the aliases of the networking service's extensions, sorted.
func (c *Client) Extensions() []string { return slices.Sorted(maps.Keys(c.extensions)) }

// Unsupported lists the best-effort attributes of a kind that these credentials turned out not to be allowed to set.
// They are left out of creates and updates from then on.
func (c *Client) Unsupported(of drivers.Kind) []string { return c.unsupported.of(of) }

// readExtensions reads once what the networking service can do.
func (c *Client) readExtensions(ctx context.Context) error {
	r := openstack.Call{
		Op: "reading the extensions of the networking service at " + c.service.Endpoint(), Method: http.MethodGet,
		Collection: openstack.Collection{One: "extension", Many: "extensions"}, Path: "extensions",
	}
	doc, err := c.service.Do(ctx, r)
	if err != nil {
		return err
	}
	list, err := r.Collection.List(doc)
	if err != nil {
		return openstack.NewError(r, err, true)
	}
	for _, extension := range list {
		if alias, ok := extension["alias"].(string); ok {
			c.extensions[alias] = true
		}
	}
	if !c.extensions["standard-attr-description"] {
		return openstack.Terminal("the networking service at %s has no descriptions (extension standard-attr-description), "+
			"which Raven knows its resources by", c.service.Endpoint())
	}
	limit(c.kinds, c.extensions)
	return nil
}
