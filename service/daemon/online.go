// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack/cloud"
	"github.com/kuryr/raven/service/ovn"
	"github.com/kuryr/raven/service/watch"
)

// Online adds what a cluster, a cloud and OVN's northbound database say of the configuration: whether they can be
// reached, and whether this account may do there what rights name. Nothing is changed anywhere.
func (c *Check) Online(ctx context.Context, rights []authorizationv1.ResourceAttributes) {
	if c.Settings == nil {
		return
	}
	if !c.groups["kubernetes"] {
		c.onlineKubernetes(ctx, rights)
	}
	if !c.groups["neutron"] {
		c.onlineCloud(ctx)
	}
	if _, configured := ovn.FromConfig(c.Settings.Values); configured && !c.groups["ovn"] {
		northbound, err := OpenNorthbound(ctx, c.Settings.Values, "")
		if err != nil {
			c.add(LevelError, "connecting to OVN's northbound database: %v; check [ovn]", err)
			return
		}
		c.add(LevelOK, "connected to OVN's northbound database")
		northbound.Close()
	}
}

func (c *Check) onlineKubernetes(ctx context.Context, rights []authorizationv1.ResourceAttributes) {
	rest, err := watch.RESTConfig(c.Settings.Values, c.Settings.loader.Version)
	if err != nil {
		return // which was said
	}
	clients, err := watch.NewClients(rest)
	if err != nil {
		c.add(LevelError, "%v", err)
		return
	}
	defer clients.Close()
	id, err := clusterID(ctx, c.Settings.Values, clients, rest.Host)
	c.tell(err, "cluster at %s, id %s", rest.Host, id)
	if err != nil && !apierrors.IsForbidden(err) {
		return // the other questions would meet the same
	}
	missing := 0
	for _, what := range rights {
		allowed, err := clients.Allowed(ctx, what)
		if err != nil {
			c.add(LevelWarn, "permissions in the cluster are not known: %v", err)
			return
		}
		if !allowed {
			missing++
			c.add(LevelError, "RBAC: this account may not %s; apply the roles that `raven driver rbac` prints", rightText(what))
		}
	}
	if missing == 0 {
		c.add(LevelOK, "RBAC: all %d permissions that Raven needs are granted", len(rights))
	}
}

// rightText names a permission.
func rightText(what authorizationv1.ResourceAttributes) string {
	text := what.Verb + " " + what.Resource
	if what.Subresource != "" {
		text += "/" + what.Subresource
	}
	if what.Group != "" {
		text += "." + what.Group
	}
	if what.Name != "" {
		text += fmt.Sprintf(" %q", what.Name)
	}
	if what.Namespace != "" {
		return text + " in namespace " + what.Namespace
	}
	return text + " in all namespaces"
}

func (c *Check) onlineCloud(ctx context.Context) {
	connected, err := OpenCloud(ctx, c.Settings.Values, slog.New(slog.DiscardHandler))
	if err != nil {
		c.add(LevelError, "%v; check [neutron]", err)
		return
	}
	defer connected.Close()
	c.add(LevelOK, "logged in to the cloud, project %s", connected.ProjectID())
	c.add(LevelOK, "catalog: networking service at %s", connected.Networking().Endpoint())
	c.catalog(connected)
	c.quota(ctx, connected)
	c.externalNetwork(ctx, connected)
}

// catalog says whether there is a load balancing service, for drivers that need one.
func (c *Check) catalog(connected *cloud.Cloud) {
	if err := connected.Octavia.Available(); err == nil {
		c.add(LevelOK, "catalog: load balancing service at %s", connected.Balancing().Endpoint())
		return
	}
	for _, p := range c.Settings.Programs {
		if slices.Contains(p.Info.Kinds, drivers.KindLoadBalancer) {
			c.add(LevelError, "catalog: there is no load balancing service, which driver %s needs; use driver kubeproxy, "+
				"check [neutron] region_name and valid_interfaces, or ask the cloud's operator", p.Name)
			return
		}
	}
	c.add(LevelOK, "catalog: there is no load balancing service, which no enabled driver needs")
}

// quota says how much room the project has for what drivers make.
func (c *Check) quota(ctx context.Context, connected *cloud.Cloud) {
	room, err := connected.Neutron.Quota(ctx)
	if err != nil {
		c.add(LevelWarn, "the project's quota is not known: %v", err)
		return
	}
	var texts, unlimited []string
	for _, q := range room {
		text := fmt.Sprintf("%s %d of %d", q.Resource, q.Used, q.Limit)
		switch {
		case q.Limit < 0:
			unlimited = append(unlimited, q.Resource)
		case q.Used >= q.Limit:
			c.add(LevelError, "quota exhausted: %s are used; delete some, or have the quota raised", text)
		case 10*q.Used >= 9*q.Limit:
			c.add(LevelWarn, "quota nearly exhausted: %s are used; have it raised", text)
		default:
			texts = append(texts, text)
		}
	}
	if len(unlimited) > 0 {
		texts = append(texts, "unlimited "+strings.Join(unlimited, ", "))
	}
	if len(texts) > 0 {
		c.add(LevelOK, "quota: %s", strings.Join(texts, "; "))
	}
}

// externalNetwork looks for the network that floating IPs come from.
func (c *Check) externalNetwork(ctx context.Context, connected *cloud.Cloud) {
	const group, option = "neutron_defaults", "external_svc_net"
	if _, declared := c.Settings.Values.Lookup(group, option); !declared {
		return // by none of the drivers, or it is not set
	}
	name := c.Settings.Values.String(group, option)
	if name == "" {
		return
	}
	found, err := connected.Neutron.Lookup(ctx, drivers.KindNetwork, name)
	if err != nil {
		c.add(LevelError, "[%s] %s = %s: %v; name an external network that `openstack network list --external` shows", group,
			option, name, err)
		return
	}
	external, err := connected.Neutron.External(ctx, found.ID)
	switch {
	case err != nil:
		c.add(LevelWarn, "[%s] %s = %s: whether it is an external network is not known: %v", group, option, name, err)
	case !external:
		c.add(LevelError, "[%s] %s = %s: it is not an external network: name one that `openstack network list --external` "+
			"shows", group, option, name)
	default:
		c.add(LevelOK, "external network %s: %s", name, found.ID)
	}
}
