// SPDX-License-Identifier: Apache-2.0

package octavia_test

import (
	"os"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	gos "github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"

	"github.com/kuryr/raven/test/contract/octavia"
	"github.com/kuryr/raven/test/contract/rest"
	"github.com/kuryr/raven/test/sim/openstack"
)

func providers() []octavia.Provider { return []octavia.Provider{octavia.OVN(), octavia.Amphora()} }

func TestSimulation(t *testing.T) {
	work := openstack.Work{
		Create: 300 * time.Millisecond, Delete: 100 * time.Millisecond, Update: 100 * time.Millisecond,
		Listener: time.Millisecond,
		Pool:     time.Millisecond, Member: time.Millisecond, Monitor: time.Millisecond,
	}
	for _, p := range providers() {
		t.Run(p.Name, func(t *testing.T) {
			c := openstack.New(openstack.Options{
				MetadataPorts: true, Providers: []openstack.Provider{openstack.Amphora(work), openstack.OVN(work)},
			})
			if _, err := c.Start(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			file := t.TempDir() + "/clouds.yaml"
			if err := os.WriteFile(file, c.CloudsYAML(), 0o600); err != nil {
				t.Fatal(err)
			}
			network, balancing := connect(t, clouds.WithLocations(file), clouds.WithCloudName(openstack.CloudMember))
			_, admin := connect(t, clouds.WithLocations(file), clouds.WithCloudName(openstack.CloudAdmin))
			before := c.Dump(openstack.DumpOptions{})
			t.Run("suite", func(t *testing.T) {
				octavia.Run(t,
					octavia.Target{Network: network, Balancing: balancing, Admin: admin, Provider: p, Poll: 2 * time.Millisecond})
			})
			if after := c.Dump(openstack.DumpOptions{}); after != before {
				t.Errorf("the suite left behind:\n%s", after)
			}
		})
	}
}

func TestRealCloud(t *testing.T) {
	name := os.Getenv("RAVEN_CONTRACT_CLOUD")
	if name == "" {
		t.Skip("RAVEN_CONTRACT_CLOUD names no cloud of a clouds.yaml: not run against a real Octavia")
	}
	network, balancing := connect(t, clouds.WithCloudName(name))
	var admin *gophercloud.ServiceClient
	if other := os.Getenv("RAVEN_CONTRACT_ADMIN_CLOUD"); other != "" {
		_, admin = connect(t, clouds.WithCloudName(other))
	}
	for _, p := range providers() {
		t.Run(p.Name, func(t *testing.T) {
			octavia.Run(t, octavia.Target{Network: network, Balancing: balancing, Admin: admin, Provider: p})
		})
	}
}

func connect(t *testing.T, options ...clouds.ParseOption) (network, balancing *gophercloud.ServiceClient) {
	t.Helper()
	provider, endpoint := rest.Login(t, options...)
	var err error
	if network, err = gos.NewNetworkV2(provider, endpoint); err != nil {
		t.Fatal(err)
	}
	if balancing, err = gos.NewLoadBalancerV2(provider, endpoint); err != nil {
		t.Fatal(err)
	}
	return network, balancing
}
