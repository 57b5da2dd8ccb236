// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gophercloud/gophercloud/v2"
	gos "github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/attributestags"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"
	testclock "k8s.io/utils/clock/testing"

	"github.com/kuryr/raven/test/sim/openstack"
)

// connect logs in as a cloud of the simulated clouds.yaml, as any client does.
func connect(t *testing.T, c *openstack.Cloud, cloud string) *gophercloud.ServiceClient {
	t.Helper()
	file := filepath.Join(t.TempDir(), "clouds.yaml")
	if err := os.WriteFile(file, c.CloudsYAML(), 0o600); err != nil {
		t.Fatal(err)
	}
	auth, endpoint, tlsConfig, err := clouds.Parse(clouds.WithLocations(file), clouds.WithCloudName(cloud))
	if err != nil {
		t.Fatal(err)
	}
	auth.AllowReauth = true
	provider, err := config.NewProviderClient(t.Context(), auth, config.WithTLSConfig(tlsConfig))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	provider.HTTPClient.Transport = transport
	t.Cleanup(transport.CloseIdleConnections)
	client, err := gos.NewNetworkV2(provider, endpoint)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func start(t *testing.T, o openstack.Options) *openstack.Cloud {
	t.Helper()
	c := openstack.New(o)
	if _, err := c.Start(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestGophercloud(t *testing.T) {
	for _, cloud := range []string{openstack.CloudMember, openstack.CloudAppCred} {
		t.Run(cloud, func(t *testing.T) {
			ctx := t.Context()
			c := start(t, openstack.Options{PageLimit: 3})
			client := connect(t, c, cloud)
			if _, err := extensions.Get(ctx, client, "revision-if-match").Extract(); err != nil {
				t.Error(err)
			}
			n, err := networks.Create(ctx, client, networks.CreateOpts{Name: "net"}).Extract()
			if err != nil {
				t.Fatal(err)
			}
			s, err := subnets.Create(ctx, client,
				subnets.CreateOpts{NetworkID: n.ID, CIDR: "10.1.0.0/24", IPVersion: gophercloud.IPv4}).Extract()
			if err != nil {
				t.Fatal(err)
			}
			if s.GatewayIP != "10.1.0.1" || len(s.AllocationPools) != 1 || s.AllocationPools[0].Start != "10.1.0.2" {
				t.Errorf("subnet is %+v", s)
			}
			for range 7 {
				if _, err := ports.Create(ctx, client, ports.CreateOpts{NetworkID: n.ID}).Extract(); err != nil {
					t.Fatal(err)
				}
			}
			c.ExpireTokens() // the client logs in again by itself
			pages, err := ports.List(client, ports.ListOpts{NetworkID: n.ID}).AllPages(ctx)
			if err != nil {
				t.Fatal(err)
			}
			all, err := ports.ExtractPorts(pages)
			if err != nil || len(all) != 7 {
				t.Fatalf("listed %d ports, %v; want 7 over pages of 3", len(all), err)
			}
			id := all[0].ID
			for _, tag := range []string{"b=2", "a 1", "raven:name=x"} {
				if err := attributestags.Add(ctx, client, "ports", id, tag).ExtractErr(); err != nil {
					t.Fatal(err)
				}
			}
			tags, err := attributestags.List(ctx, client, "ports", id).Extract()
			if diff := cmp.Diff([]string{"a 1", "b=2", "raven:name=x"}, tags); err != nil || diff != "" {
				t.Errorf("tags: %v\n%s", err, diff)
			}
			pages, err = ports.List(client, ports.ListOpts{Tags: "a 1,b=2"}).AllPages(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if all, err = ports.ExtractPorts(pages); err != nil || len(all) != 1 || all[0].ID != id {
				t.Errorf("listing by tag gave %v, %v", all, err)
			}
			rev := all[0].RevisionNumber - 1
			name := "late"
			_, err = ports.Update(ctx, client, id, ports.UpdateOpts{Name: &name, RevisionNumber: &rev}).Extract()
			if !gophercloud.ResponseCodeIs(err, http.StatusPreconditionFailed) {
				t.Errorf("a stale update gave %v", err)
			}
		})
	}
}

func TestAuthentication(t *testing.T) {
	c := start(t, openstack.Options{})
	auth := func(change func(*gophercloud.AuthOptions)) error {
		o := gophercloud.AuthOptions{
			IdentityEndpoint: c.AuthURL(), Username: openstack.UserKuryr, Password: "secret", DomainName: "Default",
			TenantName: openstack.ProjectKuryr,
		}
		change(&o)
		_, err := gos.AuthenticatedClient(t.Context(), o)
		return err
	}
	if err := auth(func(*gophercloud.AuthOptions) {}); err != nil {
		t.Fatal(err)
	}
	if err := auth(func(o *gophercloud.AuthOptions) {
		o.IdentityEndpoint = strings.TrimSuffix(o.IdentityEndpoint, "/v3")
	}); err != nil {
		t.Errorf("by discovery: %v", err)
	}
	refused := map[string]func(*gophercloud.AuthOptions){
		"wrong password":  func(o *gophercloud.AuthOptions) { o.Password = "x" },
		"unknown user":    func(o *gophercloud.AuthOptions) { o.Username = "x" },
		"foreign project": func(o *gophercloud.AuthOptions) { o.TenantName = openstack.ProjectOther },
	}
	for name, change := range refused {
		if err := auth(change); !gophercloud.ResponseCodeIs(err, http.StatusUnauthorized) {
			t.Errorf("%s: %v, want a 401", name, err)
		}
	}
}

func TestTokenExpiry(t *testing.T) {
	clock := testclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	const valid = 5 * time.Minute
	c := start(t, openstack.Options{Clock: clock, TokenTTL: valid})
	client := connect(t, c, openstack.CloudMember)
	for _, passed := range []time.Duration{0, valid - time.Second, time.Second} {
		clock.Step(passed)
		if _, err := networks.List(client, nil).AllPages(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	logins, refused := 0, 0
	for _, r := range c.Log(0) {
		if r.Kind == "token" && r.Status == http.StatusCreated {
			logins++
		}
		if r.Kind == "network" && r.Status == http.StatusUnauthorized {
			refused++
		}
	}
	if logins != 2 || refused != 1 {
		t.Errorf("there were %d logins, want 2, and %d requests were refused for their token, want 1", logins, refused)
	}
}
