// Package cloud joins the services of one project of a cloud to what the loop asks for: it asks the one that keeps a
// kind. It must not know more of a kind than that.
package cloud

import (
	"context"
	"log/slog"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/neutron"
	"github.com/kuryr/raven/service/openstack/octavia"
	"github.com/kuryr/raven/service/plan"
)

type (
	networking = neutron.Client
	balancing  = octavia.Client
)

// Cloud is the networking and the load balancing service of one project. It is safe for concurrent use.
type Cloud struct {
	*openstack.Connection
	*networking
	*balancing
}

// Connect logs in, finds the services and reads what they can do. Its errors are those of openstack.Connect.
func Connect(ctx context.Context, config openstack.Config, logger *slog.Logger) (*Cloud, error) {
	connection, err := openstack.Connect(ctx, config, logger)
	if err != nil {
		return nil, err
	}
	networking, err := neutron.New(ctx, connection)
	if err != nil {
		connection.Close()
		return nil, err
	}
	return &Cloud{connection, networking, octavia.New(connection, networking)}, nil
}

// ObserveKind returns the resources of one kind in the project that carry the cluster's identity.
func (c *Cloud) ObserveKind(ctx context.Context, kind drivers.Kind, cluster string) ([]plan.Observed, error) {
	if kind == drivers.KindLoadBalancer {
		return c.balancing.List(ctx, cluster)
	}
	return c.networking.List(ctx, kind, cluster)
}

// ListIdentity returns the resources of one kind that carry exactly this identity, whatever its policy.
func (c *Cloud) ListIdentity(ctx context.Context, kind drivers.Kind, identity plan.Identity) ([]plan.Observed, error) {
	if kind == drivers.KindLoadBalancer {
		return c.balancing.ListIdentity(ctx, identity)
	}
	return c.networking.ListIdentity(ctx, kind, identity)
}

// Get returns one resource by id.
func (c *Cloud) Get(ctx context.Context, kind drivers.Kind, id string) (plan.Observed, error) {
	if kind == drivers.KindLoadBalancer {
		return c.balancing.Get(ctx, id)
	}
	return c.networking.Get(ctx, kind, id)
}

// Lookup returns one resource by id or, where none has that id, by name.
func (c *Cloud) Lookup(ctx context.Context, kind drivers.Kind, idOrName string) (plan.Observed, error) {
	if kind == drivers.KindLoadBalancer {
		return c.balancing.Lookup(ctx, idOrName)
	}
	return c.networking.Lookup(ctx, kind, idOrName)
}

// Create makes one resource, with its identity in it.
func (c *Cloud) Create(
	ctx context.Context, kind drivers.Kind, identity plan.Identity, attrs map[string]any,
) (plan.Observed, error) {
	if kind == drivers.KindLoadBalancer {
		return c.balancing.Create(ctx, identity, attrs)
	}
	return c.networking.Create(ctx, kind, identity, attrs)
}

// Update changes attributes of a resource that is still at the revision, if its kind has revisions; 0 is any revision.
func (c *Cloud) Update(
	ctx context.Context, kind drivers.Kind, id string, revision int64, attrs map[string]any,
) (plan.Observed, error) {
	if kind == drivers.KindLoadBalancer {
		return c.balancing.Update(ctx, id, attrs)
	}
	return c.networking.Update(ctx, kind, id, revision, attrs)
}

// Delete deletes a resource; one that is not there counts as deleted.
func (c *Cloud) Delete(ctx context.Context, kind drivers.Kind, id string) error {
	if kind == drivers.KindLoadBalancer {
		return c.balancing.Delete(ctx, id)
	}
	return c.networking.Delete(ctx, kind, id)
}

// AddTags adds tags, so that others' tags stay.
func (c *Cloud) AddTags(ctx context.Context, kind drivers.Kind, id string, tags []string) error {
	if kind == drivers.KindLoadBalancer {
		return c.balancing.AddTags(ctx, id, tags)
	}
	return c.networking.AddTags(ctx, kind, id, tags)
}

// RemoveTags removes tags; those that are not there count as removed.
func (c *Cloud) RemoveTags(ctx context.Context, kind drivers.Kind, id string, tags []string) error {
	if kind == drivers.KindLoadBalancer {
		return c.balancing.RemoveTags(ctx, id, tags)
	}
	return c.networking.RemoveTags(ctx, kind, id, tags)
}

// Clusters counts, by cluster id and kind, what stands in the project with the identity of any cluster. Load balancers
// are left out where Available has an error.
func (c *Cloud) Clusters(ctx context.Context) (map[string]map[drivers.Kind]int, error) {
	clusters, err := c.networking.Clusters(ctx)
	if err != nil || c.Available() != nil {
		return clusters, err
	}
	balancers, err := c.balancing.Clusters(ctx)
	if err != nil {
		return nil, err
	}
	for id, n := range balancers {
		if clusters[id] == nil {
			clusters[id] = map[drivers.Kind]int{}
		}
		clusters[id][drivers.KindLoadBalancer] = n
	}
	return clusters, nil
}
