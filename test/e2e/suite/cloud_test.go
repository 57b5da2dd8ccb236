// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	gos "github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
)

// The kinds of resources that Raven makes, in an order in which they can be shown. What Octavia has is below lbaas/.
var kinds = []string{
	"subnetpools", "routers", "networks", "subnets", "security-groups", "ports", "floatingips", balancerKind,
}

// cloud is a client of Neutron and Octavia with one user's rights.
type cloud struct {
	client, balancing *gophercloud.ServiceClient // balancing is nil where there is no Octavia
	project           string
}

// connect logs in as a cloud of clouds.yaml.
func connect(ctx context.Context, name string) (*cloud, error) {
	auth, endpoint, tlsConfig, err := clouds.Parse(clouds.WithLocations(world.clouds), clouds.WithCloudName(name))
	if err != nil {
		return nil, err
	}
	auth.AllowReauth = true
	provider, err := config.NewProviderClient(ctx, auth, config.WithTLSConfig(tlsConfig))
	if err != nil {
		return nil, err
	}
	client, err := gos.NewNetworkV2(provider, endpoint)
	if err != nil {
		return nil, err
	}
	client.MoreHeaders = map[string]string{"X-OpenStack-Request-ID": ownRequest}
	c := &cloud{client: client}
	if balancing, err := gos.NewLoadBalancerV2(provider, endpoint); err == nil {
		balancing.ResourceBase = strings.TrimSuffix(balancing.Endpoint, "/") + "/v2.0/"
		balancing.MoreHeaders = client.MoreHeaders
		c.balancing = balancing
	}
	if result, ok := provider.GetAuthResult().(tokens.CreateResult); ok {
		project, err := result.ExtractProject()
		if err != nil {
			return nil, err
		}
		c.project = project.ID
	}
	return c, nil
}

// thing is a resource, or another document.
type thing map[string]any

func (o thing) str(key string) string { s, _ := o[key].(string); return s }

func (o thing) strs(key string) []string {
	var out []string
	list, _ := o[key].([]any)
	for _, e := range list {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func (o thing) things(key string) []thing {
	var out []thing
	list, _ := o[key].([]any)
	for _, e := range list {
		if m, ok := e.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// token returns a word of the identity that Raven writes: of its tags, or else of its description.
func (o thing) token(name string) string {
	for _, word := range append(o.strs("tags"), strings.Fields(o.str("description"))...) {
		if value, ok := strings.CutPrefix(word, "raven:"+name+"="); ok {
			return strings.ReplaceAll(value, "@", ".")
		}
	}
	return ""
}

// of returns the owner's UID, "shared" for what is the cluster's.
func (o thing) of() string {
	driver, uid, _ := strings.Cut(o.token("owner"), ":")
	if uid == "" {
		return driver
	}
	return uid
}

// addresses are those of a port.
func (o thing) addresses() []string {
	var out []string
	for _, ip := range o.things("fixed_ips") {
		out = append(out, ip.str("ip_address"))
	}
	slices.Sort(out)
	return out
}

// call makes a request at a path below /v2.0/ of Neutron, or of Octavia if it begins with lbaas/, and returns the
// document of its answer.
func (c *cloud) call(ctx context.Context, method, path string, body any) (thing, error) {
	out, client := thing{}, c.client
	if strings.HasPrefix(path, "lbaas/") {
		client = c.balancing
	}
	if client == nil {
		return nil, fmt.Errorf("%s %s: the cloud has no load balancing service", method, path)
	}
	o := &gophercloud.RequestOpts{JSONBody: body, OkCodes: []int{200, 201, 202, 204}}
	if method != http.MethodDelete && !(method == http.MethodPut && strings.HasSuffix(path, "/tags")) {
		o.JSONResponse = &out
	}
	response, err := client.Request(ctx, method, client.ResourceBaseURL()+path, o)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if o.JSONResponse == nil {
		_ = response.Body.Close()
	}
	return out, nil
}

// list returns the resources of a kind that a query matches.
func (c *cloud) list(ctx context.Context, kind, query string) ([]thing, error) {
	if query != "" {
		query = "?" + query
	}
	out, err := c.call(ctx, http.MethodGet, kind+query, nil)
	if err != nil {
		return nil, err
	}
	return out.things(strings.ReplaceAll(kind[strings.LastIndex(kind, "/")+1:], "-", "_")), nil
}

// create makes a resource and returns it.
func (c *cloud) create(ctx context.Context, kind string, attributes thing) (thing, error) {
	key := strings.TrimSuffix(strings.ReplaceAll(kind, "-", "_"), "s")
	out, err := c.call(ctx, http.MethodPost, kind, thing{key: attributes})
	if err != nil {
		return nil, err
	}
	made, _ := out[key].(map[string]any)
	return made, nil
}

// update changes a resource.
func (c *cloud) update(ctx context.Context, kind, id string, attributes thing) error {
	key := strings.TrimSuffix(strings.ReplaceAll(kind, "-", "_"), "s")
	_, err := c.call(ctx, http.MethodPut, kind+"/"+id, thing{key: attributes})
	return err
}

// remove deletes a resource; that it is gone already is no error.
func (c *cloud) remove(ctx context.Context, kind, id string) error {
	_, err := c.call(ctx, http.MethodDelete, kind+"/"+id, nil)
	if gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
		return nil
	}
	return err
}

// ours returns all resources that carry a cluster's identity, in whatever way, each with its kind. It looks through
// everything that the project has: a resource with half an identity must be found too.
func (c *cloud) ours(ctx context.Context, cluster string) ([]thing, error) {
	var out []thing
	for _, kind := range kinds {
		if kind == balancerKind && c.balancing == nil {
			continue
		}
		all, err := c.list(ctx, kind, "project_id="+c.project)
		if err != nil {
			return nil, err
		}
		for _, o := range all {
			if strings.Contains(fmt.Sprint(o["tags"], o["description"]), cluster) {
				o["kind"] = kind
				out = append(out, o)
			}
		}
	}
	return out, nil
}

// purge deletes everything of a cluster, without Raven.
func (c *cloud) purge(ctx context.Context, cluster string) error {
	all, err := c.ours(ctx, cluster)
	if err != nil {
		return err
	}
	of := func(kind string) []thing {
		return slices.DeleteFunc(slices.Clone(all), func(o thing) bool { return o["kind"] != kind })
	}
	for _, fip := range of("floatingips") {
		if err := c.remove(ctx, "floatingips", fip.str("id")); err != nil {
			return err
		}
	}
	if err := c.removeBalancers(ctx, of(balancerKind)); err != nil {
		return err
	}
	for _, port := range of("ports") {
		if strings.HasPrefix(port.str("device_owner"), "network:") && port.str("device_id") != "" {
			_, err = c.call(ctx, http.MethodPut, "routers/"+port.str("device_id")+"/remove_router_interface",
				thing{"port_id": port.str("id")})
			if gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
				err = nil
			}
		} else {
			err = c.remove(ctx, "ports", port.str("id"))
		}
		if err != nil {
			return err
		}
	}
	for _, kind := range []string{"routers", "networks", "subnetpools", "security-groups"} {
		for _, o := range of(kind) {
			if err := c.remove(ctx, kind, o.str("id")); err != nil {
				return err
			}
		}
	}
	return nil
}

// describe names resources for people.
func describe(all []thing) []string {
	var out []string
	for _, o := range all {
		out = append(out,
			fmt.Sprintf("%s %s (%s of %s)", strings.TrimSuffix(strings.TrimPrefix(o.str("kind"), "lbaas/"), "s"),
				o.str("name"), o.token("name"), o.token("owner")))
	}
	slices.Sort(out)
	return out
}
