// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/catalog"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
)

// networking finds the networking service's address in the catalog of the token.
func networking(
	config Config, options gophercloud.AuthOptions, client *gophercloud.ProviderClient,
) (*gophercloud.ServiceClient, error) {
	address := config.EndpointOverride
	if address == "" {
		result, ok := client.GetAuthResult().(interface {
			ExtractServiceCatalog() (*tokens.ServiceCatalog, error)
		})
		if !ok {
			return nil, Terminal("the token from %s has no catalog", redacted(options.IdentityEndpoint))
		}
		catalog, err := result.ExtractServiceCatalog()
		if err != nil {
			return nil, Terminal("reading the catalog from %s: %w", redacted(options.IdentityEndpoint), err)
		}
		if address, err = endpoint(catalog, config, options.IdentityEndpoint, "network", "networking"); err != nil {
			return nil, err
		}
	}
	parsed, err := url.Parse(address)
	if err != nil || parsed.Host == "" {
		return nil, Terminal("the networking service's address %q is no URL", redacted(address))
	}
	base := gophercloud.NormalizeURL(strings.TrimSuffix(strings.TrimRight(address, "/"), "/v2.0"))
	return serviceAt(base, "network", client), nil
}

func endpoint(catalog *tokens.ServiceCatalog, config Config, where string, types ...string) (string, error) {
	interfaces := config.Interfaces
	if len(interfaces) == 0 {
		interfaces = []string{"public"}
	}
	var regions, others []string
	for _, wanted := range interfaces {
		for _, entry := range catalog.Entries {
			if !slices.Contains(types, entry.Type) {
				continue
			}
			for _, e := range entry.Endpoints {
				regions = append(regions, e.Region)
				others = append(others, e.Interface)
				inRegion := config.RegionName == "" || e.Region == config.RegionName || e.RegionID == config.RegionName
				if inRegion && e.Interface == string(availability(wanted)) && e.URL != "" {
					return e.URL, nil
				}
			}
		}
	}
	unique := func(list []string) string { slices.Sort(list); return strings.Join(slices.Compact(list), ", ") }
	if len(regions) == 0 {
		return "", Terminal("the catalog from %s has no networking service", redacted(where))
	}
	in := ""
	if config.RegionName != "" {
		in = fmt.Sprintf(" in region %q", config.RegionName)
	}
	return "", Terminal("the catalog from %s has no %s endpoint of the networking service%s: "+
		"it has the regions %s with the interfaces %s", redacted(where), strings.Join(interfaces, " or "), in,
		unique(regions), unique(others))
}

// availability is an interface by keystone's name; the old names end in URL.
func availability(name string) gophercloud.Availability {
	switch a := gophercloud.Availability(strings.TrimSuffix(strings.TrimSpace(name), "URL")); a {
	case gophercloud.AvailabilityPublic, gophercloud.AvailabilityInternal, gophercloud.AvailabilityAdmin:
		return a
	}
	return ""
}

func project(client *gophercloud.ProviderClient) (string, error) {
	result, ok := client.GetAuthResult().(interface {
		ExtractProject() (*tokens.Project, error)
	})
	if !ok {
		return "", errors.New("it names no project")
	}
	project, err := result.ExtractProject()
	if err != nil {
		return "", err
	}
	if project == nil || project.ID == "" {
		return "", errors.New("it is not scoped to a project ([neutron] project_name)")
	}
	return project.ID, nil
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

func balancingIn(
	list *tokens.ServiceCatalog, config Config, client *gophercloud.ProviderClient,
) *gophercloud.ServiceClient {
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
	return serviceAt(base, "load-balancer", client)
}

func serviceAt(base, kind string, client *gophercloud.ProviderClient) *gophercloud.ServiceClient {
	return &gophercloud.ServiceClient{ProviderClient: client, Endpoint: base, ResourceBase: base + "v2.0/", Type: kind}
}

// RelocateBalancing asks Keystone for its present catalog, and says whether the load balancing service is elsewhere
// than it was.
func (c *Connection) RelocateBalancing(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	identity, err := openstack.NewIdentityV3(c.provider, gophercloud.EndpointOpts{})
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
	found, last := balancingIn(&tokens.ServiceCatalog{Entries: entries}, c.config, c.provider), c.balancing.client.Load()
	if found == nil || last != nil && last.Endpoint == found.Endpoint {
		return false
	}
	c.balancing.client.Store(found)
	c.log.InfoContext(ctx, "found the load balancing service", "at", redacted(found.Endpoint))
	return true
}
