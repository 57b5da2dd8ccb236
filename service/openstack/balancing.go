package openstack

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/catalog"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// ErrNoBalancing is in the error of everything that needs a load balancing service where the catalog has none. It may come: nobody
// must conclude that there are no load balancers.
var ErrNoBalancing = errors.New("the cloud has no load balancing service")

// newBalancers joins the load balancing service to a connection; client is nil where there is none yet. Both end together.
func newBalancers(c *Cloud, client *gophercloud.ServiceClient) *balancers {
	own := &Cloud{
		config: c.config, log: c.log, clock: c.clock, transport: c.transport, projectID: c.projectID,
		extensions: map[string]bool{}, kinds: balancerKinds(), limiter: newLimiter(c.config.MaxConcurrency, c.clock),
		gate: newGate(c.clock), fence: c.fence, stats: c.stats, unsupported: c.unsupported, serial: c.serial, polls: make(chan struct{}, maxPolls),
		batchers: map[drivers.Kind]*batcher{}, finders: map[drivers.Kind]*finder{}, stop: c.stop,
	}
	own.client.Store(client)
	k := own.kinds[drivers.KindLoadBalancer]
	own.finders[k.name] = &finder{cloud: own, kind: k}
	b := &balancers{Cloud: own, neutron: c, members: map[string]poolMembers{}, left: map[string]time.Time{}}
	own.balancers = b
	return b
}

// octavia returns the load balancing service; nil as long as it is not known to be there.
func (c *Cloud) octavia() *balancers {
	if c.balancers == nil || c.balancers.client.Load() == nil {
		return nil
	}
	return c.balancers
}

// balancing finds the load balancing service's address in the catalog that came with the token; nil where it is not.
func balancing(config Config, client *gophercloud.ProviderClient) *gophercloud.ServiceClient {
	result, ok := client.GetAuthResult().(interface {
		ExtractServiceCatalog() (*tokens.ServiceCatalog, error)
	})
	if !ok {
		return nil
	}
	list, err := result.ExtractServiceCatalog()
	if err != nil {
		return nil
	}
	return balancingIn(list, config, client)
}

func balancingIn(list *tokens.ServiceCatalog, config Config, client *gophercloud.ProviderClient) *gophercloud.ServiceClient {
	address, err := endpoint(list, config, "", "load-balancer", "load-balancing", "loadbalancer")
	if err != nil {
		return nil
	}
	parsed, err := url.Parse(address)
	if err != nil || parsed.Host == "" {
		return nil
	}
	address = strings.TrimRight(address, "/")
	for _, version := range []string{"/v2.0/lbaas", "/v2/lbaas", "/v2.0", "/v2"} {
		address = strings.TrimSuffix(address, version)
	}
	base := gophercloud.NormalizeURL(address)
	return &gophercloud.ServiceClient{ProviderClient: client, Endpoint: base, ResourceBase: base + "v2.0/", Type: "load-balancer"}
}

// without is the error of everything that needs a load balancing service in a cloud that has none.
func (c *Cloud) without(op, what string) error {
	in := ""
	if c.config.RegionName != "" {
		in = fmt.Sprintf(" for region %q", c.config.RegionName)
	}
	return &Error{
		Op: op, Kind: drivers.KindLoadBalancer, What: what, class: ClassTerminal, cause: ErrNoBalancing,
		Message: ErrNoBalancing.Error() + ": its catalog has no endpoint of type load-balancer" + in,
	}
}

// allBalancers lists the load balancers of a cluster. Where the service is not there, or does not answer, Keystone is asked where it
// is now: it may have come since, or moved.
func (c *Cloud) allBalancers(ctx context.Context, keep func(plan.Observed) bool) ([]plan.Observed, error) {
	err := c.without(opList, "")
	if b := c.octavia(); b != nil {
		var found []plan.Observed
		if found, err = b.all(ctx, keep); err == nil {
			return found, nil
		}
	}
	if !c.lookForBalancing(ctx) {
		return nil, err
	}
	return c.balancers.all(ctx, keep)
}

// lookForBalancing asks Keystone for its present catalog, and says whether the load balancing service is elsewhere than it was.
func (c *Cloud) lookForBalancing(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	provider := c.balancers.neutron.client.Load().ProviderClient
	identity, err := openstack.NewIdentityV3(provider, gophercloud.EndpointOpts{})
	if err != nil {
		return false
	}
	page, err := catalog.List(identity).AllPages(ctx)
	if err != nil {
		c.log.DebugContext(ctx, "asking Keystone for its catalog", "error", brief(err))
		return false
	}
	entries, err := catalog.ExtractServiceCatalog(page)
	if err != nil {
		return false
	}
	found, last := balancingIn(&tokens.ServiceCatalog{Entries: entries}, c.config, provider), c.balancers.client.Load()
	if found == nil || last != nil && last.Endpoint == found.Endpoint {
		return false
	}
	c.balancers.client.Store(found)
	c.log.InfoContext(ctx, "found the load balancing service", "at", redacted(found.Endpoint))
	return true
}

// service returns the connection that a kind is asked through, and the kind.
func (c *Cloud) service(op string, name drivers.Kind, what string) (*Cloud, kind, error) {
	if name != drivers.KindLoadBalancer {
		k, err := c.kind(name)
		return c, k, err
	}
	b := c.octavia()
	if b == nil {
		return nil, kind{}, c.without(op, what)
	}
	return b.Cloud, b.kinds[name], nil
}
