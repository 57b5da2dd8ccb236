package cloud

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuryr/raven/service/openstack/neutron"
	"github.com/kuryr/raven/service/plan"
)

// Stats returns what was asked of the services so far.
func (c *Cloud) Stats() neutron.Stats { return c.networking.Stats() }

// Collector returns the same as Prometheus metrics.
func (c *Cloud) Collector() prometheus.Collector { return c.networking.Collector() }

// BalancerFlavor is octavia.Client.Flavor.
func (c *Cloud) BalancerFlavor(ctx context.Context, id string) (there bool, provider string, err error) {
	return c.Flavor(ctx, id)
}

// BalancerZone is octavia.Client.Zone.
func (c *Cloud) BalancerZone(ctx context.Context, name string) (there bool, provider string, err error) {
	return c.Zone(ctx, name)
}

// BalancerRoom is octavia.Client.QuotaRoom.
func (c *Cloud) BalancerRoom(ctx context.Context) (room int, bounded bool, err error) {
	return c.QuotaRoom(ctx)
}

// PollLoadBalancers is octavia.Client.Poll.
func (c *Cloud) PollLoadBalancers(ctx context.Context, cluster string, known []string) ([]plan.Observed, error) {
	return c.Poll(ctx, cluster, known)
}

// LoadBalancerProviders is octavia.Client.Providers.
func (c *Cloud) LoadBalancerProviders(ctx context.Context) ([]string, error) { return c.Providers(ctx) }

// InspectLoadBalancers is octavia.Client.Inspect.
func (c *Cloud) InspectLoadBalancers(ctx context.Context, list []plan.Observed) ([]plan.Observed, error) {
	return c.Inspect(ctx, list)
}
