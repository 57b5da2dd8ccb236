// SPDX-License-Identifier: Apache-2.0

// Package octavia observes and changes one project's load balancers in the load balancing service. It must never decide
// what should exist, never touch a load balancer it was not told to, and never let a partial list, or a service that is
// unavailable, pass for there being no load balancers.
package octavia

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/internal/search"
	"github.com/kuryr/raven/service/plan"
)

// ErrNoBalancing is in the error of everything that needs a load balancing service where the catalog has none. It may
// come: it must not be concluded that there are no load balancers.
var ErrNoBalancing = errors.New("the cloud has no load balancing service")

// Networking is what load balancers need of the networking service: their VIPs are its ports. It is a neutron.Client.
type Networking interface {
	Ports(ctx context.Context, query url.Values) ([]plan.Observed, error)
	Get(ctx context.Context, kind drivers.Kind, id string) (plan.Observed, error)
	Update(ctx context.Context, kind drivers.Kind, id string, revision int64, attrs map[string]any) (plan.Observed, error)
	Delete(ctx context.Context, kind drivers.Kind, id string) error
}

// Client is the load balancing service, Octavia, which the cloud may not have, or not yet: what needs it then fails
// with ErrNoBalancing. It is safe for concurrent use.
type Client struct {
	connection *openstack.Connection
	service    *openstack.Service
	networking Networking
	log        *slog.Logger
	clock      clock.PassiveClock
	projectID  string
	kinds      map[drivers.Kind]openstack.Collection
	finder     *search.Finder

	mu      sync.Mutex
	members map[string]poolMembers // of every pool, as they were last listed
	adds    map[string]bool        // by address of the service: it can change some members of a pool
	left    map[string]time.Time   // VIP ports that seem to be left behind, and since when
}

// New returns the load balancing service of a connection. Nothing is asked of it before it is needed.
func New(connection *openstack.Connection, networking Networking) *Client {
	c := &Client{
		connection: connection, service: connection.Balancing(), networking: networking, log: connection.Logger(),
		clock: connection.Config().Clock, projectID: connection.ProjectID(), kinds: kinds(),
		members: map[string]poolMembers{}, left: map[string]time.Time{},
	}
	k := c.kinds[drivers.KindLoadBalancer]
	c.finder = &search.Finder{
		Service: c.service, Collection: k, Observe: k.Observed, Project: c.projectID, All: c.List, Go: connection.Go,
	}
	return c
}

// Available says, with ErrNoBalancing, that the catalog has no load balancing service, or not yet, and nil if it has.
func (c *Client) Available() error { return c.available(openstack.OpList, "") }

// available is the error of what needs the load balancing service where the cloud has none.
func (c *Client) available(op, what string) error {
	if c.service.Available() {
		return nil
	}
	in := ""
	if region := c.connection.Config().RegionName; region != "" {
		in = fmt.Sprintf(" for region %q", region)
	}
	return &openstack.Error{
		Op: op, Kind: drivers.KindLoadBalancer, What: what, Class: openstack.ClassTerminal, Cause: ErrNoBalancing,
		Message: ErrNoBalancing.Error() + ": its catalog has no endpoint of type load-balancer" + in,
	}
}

// List returns the load balancers in the project that carry the cluster's identity, with all their parts. A partial
// list is an error. Where the service is not there, or does not answer, Keystone is asked where it is now: it may have
// come since, or moved.
func (c *Client) List(ctx context.Context, cluster string) ([]plan.Observed, error) {
	want := plan.Identity{Cluster: cluster}.Key().Cluster
	managed := func(o plan.Observed) bool { return o.Managed && o.Identity.Key().Cluster == want }
	err := c.available(openstack.OpList, "")
	if err == nil {
		var found []plan.Observed
		if found, err = c.all(ctx, managed); err == nil {
			return found, nil
		}
	}
	if !c.connection.RelocateBalancing(ctx) {
		return nil, err
	}
	return c.all(ctx, managed)
}

// ListIdentity returns the load balancers that carry exactly this identity, with their parts, whatever its policy:
// usually none or one.
func (c *Client) ListIdentity(ctx context.Context, identity plan.Identity) ([]plan.Observed, error) {
	if err := c.available(openstack.OpList, identity.Name); err != nil {
		return nil, err
	}
	found, err := c.finder.Find(ctx, identity)
	for i := range found {
		if err == nil && bare(found[i]) {
			found[i], err = c.get(ctx, found[i].ID)
		}
	}
	return found, err
}

// bare says whether a load balancer's document only names its parts.
func bare(lb plan.Observed) bool {
	for _, name := range []string{"listeners", "pools"} {
		for _, element := range listAt(lb.Attrs, name) {
			if part, _ := element.(map[string]any); textOf(part, "name") == "" {
				return true
			}
		}
	}
	return false
}

// Get returns one load balancer by id, with all its parts.
func (c *Client) Get(ctx context.Context, id string) (plan.Observed, error) {
	if err := c.available("reading", id); err != nil {
		return plan.Observed{}, err
	}
	return c.get(ctx, id)
}

// Lookup returns one load balancer, without its parts, by id or, where none has that id, by name. None is
// ClassNotFound; several of one name are ClassTerminal.
func (c *Client) Lookup(ctx context.Context, idOrName string) (plan.Observed, error) {
	if err := c.available("looking up", idOrName); err != nil {
		return plan.Observed{}, err
	}
	k := c.kinds[drivers.KindLoadBalancer]
	return c.service.Lookup(ctx, k, k.Observed, idOrName)
}

// Clusters counts, by cluster id, the load balancers in the project with the identity of any cluster. It is for people,
// not for the loop. Ids that are long are shortened.
func (c *Client) Clusters(ctx context.Context) (map[string]int, error) {
	if err := c.available(openstack.OpList, ""); err != nil {
		return nil, err
	}
	found, err := c.pages(ctx, c.kinds[drivers.KindLoadBalancer], c.mine(), openstack.Everything)
	if err != nil {
		return nil, err
	}
	clusters := map[string]int{}
	for _, o := range found {
		if o.Managed {
			clusters[o.Identity.Key().Cluster]++
		}
	}
	return clusters, nil
}

// mine is the query for what is in the project.
func (c *Client) mine() url.Values {
	query := url.Values{}
	if c.projectID != "" {
		query.Set("project_id", c.projectID)
	}
	return query
}

// pages lists to the end, and keeps what is wanted.
func (c *Client) pages(
	ctx context.Context, k openstack.Collection, query url.Values, keep func(plan.Observed) bool,
) ([]plan.Observed, error) {
	return c.service.Pages(ctx, k, query, k.Observed, keep)
}

// read reads one load balancer, without its parts.
func (c *Client) read(ctx context.Context, op, id string) (plan.Observed, error) {
	k := c.kinds[drivers.KindLoadBalancer]
	r := openstack.Call{Op: op, Method: http.MethodGet, Collection: k, Path: k.PathOf(id), What: id}
	doc, err := c.service.Do(ctx, r)
	if err != nil {
		return plan.Observed{}, err
	}
	return one(r, doc)
}

// one takes a load balancer out of the answer to a request.
func one(r openstack.Call, doc map[string]any) (plan.Observed, error) {
	inner, err := r.Collection.Single(doc)
	if err != nil {
		return plan.Observed{}, openstack.NewError(r, err, true)
	}
	return r.Collection.Observed(inner), nil
}
