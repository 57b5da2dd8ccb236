// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
)

// keystone adds the identity service, its users, roles and catalog, and clouds.yaml.
func (b *builder) keystone() {
	conf, override := b.path("etc", "keystone.conf"), b.override(Keystone)
	b.write("keystone.conf", "etc/keystone.conf")
	b.uwsgi(Component{
		Name: Keystone, After: []string{MariaDB, Memcached}, Conf: override, Dir: "/usr/bin/keystone-wsgi-public",
		Ready: Probe{URL: b.URL().Keystone},
	}, conf, b.Port("keystone"), 4, nil)
	b.step("users and catalog", []string{Keystone}, b.makeIdentity)
}

// neutron adds Neutron with ML2/OVN. It needs no RabbitMQ: there are no agents to talk to.
func (b *builder) neutron() {
	b.write("neutron.conf", "etc/neutron.conf")
	b.component(Component{
		Name: NeutronServer, After: []string{Keystone, MariaDB, Memcached, NorthDB, SouthDB}, Conf: b.override(NeutronServer),
		Argv: []string{
			"/usr/bin/neutron-server", "--config-file", b.path("etc", "neutron.conf"), "--config-file",
			b.path("etc", NeutronServer+".override.conf"),
		},
		// It answers only once it has its database and both of OVN's.
		Ready: Probe{URL: b.URL().Neutron + "/"},
	}, "OVN's databases begun")
	b.step("networks", []string{NeutronServer, "users and catalog", "chassis"}, b.makeNetworks)
}

// override makes the empty file that Override writes.
func (b *builder) override(name string) string {
	path := b.path("etc", name+".override.conf")
	if b.err == nil {
		b.err = os.WriteFile(path, nil, 0o600)
	}
	return path
}

// openstack is an authenticated client of all services.
type openstack struct {
	http   *http.Client
	header http.Header
}

// login gets a token for a user of the default domain.
func (b *builder) login(ctx context.Context, user, project string) (*openstack, error) {
	type m = map[string]any
	domain := m{"id": "default"}
	client := plainClient()
	header, err := callHeader(ctx, client, http.MethodPost, b.URL().Keystone+"/auth/tokens", nil, m{"auth": m{
		"identity": m{
			"methods": []string{"password"}, "password": m{"user": m{"name": user, "domain": domain, "password": password}},
		},
		"scope": m{"project": m{"name": project, "domain": domain}},
	}}, nil)
	if err != nil {
		return nil, fmt.Errorf("logging in as %s: %w", user, err)
	}
	return &openstack{http: client, header: http.Header{"X-Auth-Token": header["X-Subject-Token"]}}, nil
}

// create makes one thing, and gives its id.
func (o *openstack) create(ctx context.Context, base, collection, kind string, body map[string]any) (string, error) {
	var answer map[string]struct{ ID string }
	err := call(ctx, o.http, http.MethodPost, base+"/"+collection, o.header, map[string]any{kind: body}, &answer)
	return answer[kind].ID, err
}

// find gives the id of the thing of that name, or "".
func (o *openstack) find(ctx context.Context, base, collection, name string) (string, error) {
	var answer map[string]any
	if err := call(ctx, o.http, http.MethodGet, base+"/"+collection+"?"+url.Values{"name": {name}}.Encode(), o.header,
		nil, &answer); err != nil {
		return "", err
	}
	for _, item := range answer[collection].([]any) {
		if id, ok := item.(map[string]any)["id"].(string); ok {
			return id, nil
		}
	}
	return "", nil
}

// makeIdentity makes the catalog, and beside the administrator: a user for each service, and the plain member that
// Raven runs as, with an application credential.
func (b *builder) makeIdentity(ctx context.Context) error {
	admin, err := b.login(ctx, "admin", "admin")
	if err != nil {
		return err
	}
	i := &identity{openstack: admin, base: b.URL().Keystone, ids: map[string]string{}}
	for _, s := range []struct{ kind, name, url string }{
		{"identity", "keystone", b.URL().Keystone},
		{"network", "neutron", b.URL().Neutron},
		{"load-balancer", "octavia", b.URL().Octavia},
	} {
		i.service(ctx, s.kind, s.name, s.url)
	}
	for _, project := range []string{"service", "kuryr"} {
		i.ensure(ctx, "projects", "project", project, map[string]any{"domain_id": "default"})
	}
	for _, user := range []string{"admin", "neutron", "octavia", "kuryr"} {
		i.ensure(ctx, "users", "user", user, map[string]any{"domain_id": "default", "password": password})
	}
	for _, role := range []string{"admin", "member", "reader", "load-balancer_member", "load-balancer_admin"} {
		i.ensure(ctx, "roles", "role", role, map[string]any{})
	}
	i.grant(ctx, "neutron", "service", "admin")
	i.grant(ctx, "octavia", "service", "admin")
	for _, role := range []string{"member", "reader", "load-balancer_member"} {
		i.grant(ctx, "kuryr", "kuryr", role)
	}
	i.grant(ctx, "admin", "kuryr", "admin")
	if i.err != nil {
		return i.err
	}
	return b.writeClouds(ctx, i.ids["users kuryr"])
}

// identity makes things in Keystone until the first error.
type identity struct {
	*openstack
	base string
	ids  map[string]string // collection and name to id
	err  error
}

func (i *identity) ensure(ctx context.Context, collection, kind, name string, body map[string]any) {
	if i.err != nil {
		return
	}
	id, err := i.find(ctx, i.base, collection, name)
	if err == nil && id == "" {
		body["name"] = name
		id, err = i.create(ctx, i.base, collection, kind, body)
	}
	i.ids[collection+" "+name], i.err = id, err
}

func (i *identity) service(ctx context.Context, kind, name, url string) {
	i.ensure(ctx, "services", "service", name, map[string]any{"type": kind})
	for _, face := range []string{"public", "internal", "admin"} {
		if i.err == nil {
			_, i.err = i.create(ctx, i.base, "endpoints", "endpoint", map[string]any{
				"service_id": i.ids["services "+name], "interface": face, "url": url, "region_id": "RegionOne",
			})
		}
	}
}

func (i *identity) grant(ctx context.Context, user, project, role string) {
	if i.err == nil {
		url := i.base + "/projects/" + i.ids["projects "+project] + "/users/" + i.ids["users "+user] + "/roles/" +
			i.ids["roles "+role]
		i.err = call(ctx, i.http, http.MethodPut, url, i.header, nil, nil)
	}
}

func (b *builder) writeClouds(ctx context.Context, user string) error {
	member, err := b.login(ctx, "kuryr", "kuryr")
	if err != nil {
		return err
	}
	var answer struct {
		Credential struct{ ID, Secret string } `json:"application_credential"`
	}
	err = call(ctx, member.http, http.MethodPost, b.URL().Keystone+"/users/"+user+"/application_credentials",
		member.header,
		map[string]any{"application_credential": map[string]any{"name": "raven", "unrestricted": true}}, &answer)
	if err != nil {
		return err
	}
	const tail = "    region_name: RegionOne\n    interface: public\n    identity_api_version: 3\n"
	var text strings.Builder
	fmt.Fprintln(&text, "clouds:")
	for _, c := range []struct{ cloud, user, project string }{
		{AdminCloud, "admin", "admin"}, {Cloud, "kuryr", "kuryr"}, {BindingCloud, "admin", "kuryr"},
	} {
		fmt.Fprintf(&text,
			"  %s:\n    auth:\n      auth_url: %s\n      username: %s\n      password: %s\n      project_name: %s\n"+
				"      user_domain_id: default\n      project_domain_id: default\n%s", c.cloud, b.URL().Keystone, c.user,
			password, c.project, tail)
	}
	fmt.Fprintf(&text,
		"  %s:\n    auth_type: v3applicationcredential\n    auth:\n      auth_url: %s\n      application_credential_id: %s\n"+
			"      application_credential_secret: %s\n%s", AppCredCloud, b.URL().Keystone, answer.Credential.ID,
		answer.Credential.Secret, tail)
	return os.WriteFile(b.Clouds(), []byte(text.String()), 0o600)
}

// makeNetworks makes the external network, and the one of Octavia's amphorae.
func (b *builder) makeNetworks(ctx context.Context) error {
	const externalCIDR = "172.24.4.0/24"
	base := b.URL().Neutron + "/v2.0"
	type m = map[string]any
	for _, n := range []struct {
		user, project, name string
		network, subnet     m
		id                  *string
	}{
		{
			"admin", "admin", "public",
			m{
				"router:external": true, "is_default": true, "provider:network_type": "flat",
				"provider:physical_network": "physnet1",
			},
			m{
				"cidr": externalCIDR, "gateway_ip": "172.24.4.1",
				"allocation_pools": []m{{"start": "172.24.4.10", "end": "172.24.4.250"}},
			},
			&b.external,
		},
		{"octavia", "service", "lb-mgmt", m{}, m{"cidr": "172.31.0.0/16"}, &b.management},
	} {
		client, err := b.login(ctx, n.user, n.project)
		if err != nil {
			return err
		}
		n.network["name"], n.subnet["name"], n.subnet["ip_version"], n.subnet["enable_dhcp"] = n.name, n.name+"-v4", 4, false
		if *n.id, err = client.create(ctx, base, "networks", "network", n.network); err != nil {
			return err
		}
		n.subnet["network_id"] = *n.id
		if _, err := client.create(ctx, base, "subnets", "subnet", n.subnet); err != nil {
			return err
		}
	}
	b.state.Network.External, b.state.Network.ExternalCIDR = b.external, externalCIDR
	return nil
}
