// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack/internal/stacktest"
	sim "github.com/kuryr/raven/test/sim/openstack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEachKindHasItsService: load balancers are asked for where they are kept, and left out of the count where
// nothing keeps them.
func TestEachKindHasItsService(t *testing.T) {
	for name, without := range map[string]bool{"with Octavia": false, "without": true} {
		t.Run(name, func(t *testing.T) {
			s := stacktest.StartSim(t, sim.Options{NoOctavia: without})
			c, err := Connect(t.Context(), stacktest.SimConfig(s, sim.UserKuryr), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			network, err := c.Neutron.Create(t.Context(), drivers.KindNetwork, stacktest.Named("net"),
				map[string]any{"name": "net"})
			if err != nil {
				t.Fatal(err)
			}
			subnet, err := c.Neutron.Create(t.Context(), drivers.KindSubnet, stacktest.Named("subnet"), map[string]any{
				"network_id": network.ID, "ip_version": int64(4), "cidr": "10.0.0.0/24",
			})
			if err != nil {
				t.Fatal(err)
			}
			lb, err := c.Octavia.Create(t.Context(), stacktest.Named("lb"), map[string]any{"vip_subnet_id": subnet.ID})
			if (err != nil) != without {
				t.Fatal(err)
			}
			clusters, err := c.Clusters(t.Context())
			if err != nil || clusters["c1"][drivers.KindNetwork] != 1 ||
				(clusters["c1"][drivers.KindLoadBalancer] == 0) != without {
				t.Errorf("got %v, %v", clusters, err)
			}
			found, err := c.Octavia.List(t.Context(), "c1")
			if (err != nil) != without || !without && (len(found) != 1 || found[0].ID != lb.ID) {
				t.Errorf("got %v, %v", found, err)
			}
		})
	}
}
