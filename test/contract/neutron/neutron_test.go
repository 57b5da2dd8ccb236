// SPDX-License-Identifier: Apache-2.0

package neutron_test

import (
	"context"
	"os"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	gos "github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"

	"github.com/kuryr/raven/test/contract/neutron"
	"github.com/kuryr/raven/test/contract/rest"
	"github.com/kuryr/raven/test/sim/openstack"
)

func TestSimulation(t *testing.T) {
	for name, options := range map[string]openstack.Options{"plain": {}, "with metadata ports": {MetadataPorts: true}} {
		t.Run(name, func(t *testing.T) {
			c := openstack.New(options)
			if _, err := c.Start(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			file := t.TempDir() + "/clouds.yaml"
			if err := os.WriteFile(file, c.CloudsYAML(), 0o600); err != nil {
				t.Fatal(err)
			}
			before := c.Dump(openstack.DumpOptions{})
			target := member(t, clouds.WithLocations(file), clouds.WithCloudName(openstack.CloudMember))
			target.Admin = connect(t, clouds.WithLocations(file), clouds.WithCloudName(openstack.CloudAdmin))
			target.Simulated = true
			neutron.Run(t, target)
			if after := c.Dump(openstack.DumpOptions{}); after != before {
				t.Errorf("the suite left behind:\n%s", after)
			}
		})
	}
}

func TestRealCloud(t *testing.T) {
	name := os.Getenv("RAVEN_CONTRACT_CLOUD")
	if name == "" {
		t.Skip("RAVEN_CONTRACT_CLOUD names no cloud of a clouds.yaml: not run against a real Neutron")
	}
	target := member(t, clouds.WithCloudName(name))
	if other := os.Getenv("RAVEN_CONTRACT_ADMIN_CLOUD"); other != "" {
		target.Admin = connect(t, clouds.WithCloudName(other))
	}
	neutron.Run(t, target)
}

// member is a target with one user's rights.
func member(t *testing.T, options ...clouds.ParseOption) neutron.Target {
	t.Helper()
	return neutron.Target{
		Network: connect(t, options...),
		Login: func(ctx context.Context) (*gophercloud.ProviderClient, error) {
			auth, _, tlsConfig, err := clouds.Parse(options...)
			if err != nil {
				return nil, err
			}
			return config.NewProviderClient(ctx, auth, config.WithTLSConfig(tlsConfig))
		},
	}
}

func connect(t *testing.T, options ...clouds.ParseOption) *gophercloud.ServiceClient {
	t.Helper()
	provider, endpoint := rest.Login(t, options...)
	client, err := gos.NewNetworkV2(provider, endpoint)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
