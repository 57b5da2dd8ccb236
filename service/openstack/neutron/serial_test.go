// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/internal/stacktest"
	sim "github.com/kuryr/raven/test/sim/openstack"
)

func portsAtOnce(t *testing.T, c *Client, network string, from, to int) (made, full int) {
	t.Helper()
	var mu sync.Mutex
	var wait sync.WaitGroup
	for i := from; i < to; i++ {
		wait.Go(func() {
			_, err := c.Create(t.Context(), drivers.KindPort, stacktest.IdentityOf(i), map[string]any{"network_id": network})
			mu.Lock()
			defer mu.Unlock()
			switch openstack.Classify(err) {
			case openstack.ClassNone:
				made++
			case openstack.ClassSubnetFull:
				full++
			default:
				t.Error(err)
			}
		})
	}
	wait.Wait()
	return made, full
}

// A create of many that finds a network full costs all the addresses that are left, so that it must not be made twice.
func TestFullNetworkLosesAddressesOnce(t *testing.T) {
	_, c := startSim(t, sim.Options{LeakyBulk: true})
	network, _ := place(t, c, "10.0.0.0/28") // 13 addresses
	made, full := portsAtOnce(t, c, network.ID, 0, 40)
	if made+full != 40 || made > 13 {
		t.Errorf("made %d, %d found no address", made, full)
	}
	must(
		t, c, drivers.KindSubnet, "more",
		map[string]any{"network_id": network.ID, "ip_version": int64(4), "cidr": "10.0.1.0/28"},
	)
	if again, _ := portsAtOnce(t, c, network.ID, 100, 140); again != 13 {
		t.Errorf("of the second subnet's 13 addresses %d were used", again)
	}
}

// Both networks get the same: a hundred ports that wait in order, as many more that come as they like, and the same
// again. The concurrency limit and the batch size are learned anew for each, so that only the known room differs.
func TestKnownRoomIsNotOverdrawn(t *testing.T) {
	for _, network := range []string{"small", "large"} {
		t.Run(network, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &refusing{refuse: func([]map[string]any) (int, string, []string) { return 0, "", nil }}
				c := connect(t, stacktest.TransportConfig(f))
				c.KnowRoom(func(network string) (int, bool) { return 4, network == "small" })
				attrs := func(int) map[string]any { return map[string]any{"network_id": network} }
				errs := queued(t.Context(), t, c, 100, attrs)
				if most := slices.Max(f.sizes); network == "large" && most < firstBatch {
					t.Errorf("of 100 ports that waited at most %d were created together, want %d", most, firstBatch)
				}
				errs = append(errs, burst(t.Context(), c, 100, attrs)...)
				errs = append(errs, queued(t.Context(), t, c, 100, attrs)...)
				errs = append(errs, burst(t.Context(), c, 100, attrs)...)
				for _, err := range errs {
					if err != nil {
						t.Error(err)
					}
				}
				if most := slices.Max(f.sizes); network == "small" && most != 4 {
					t.Errorf("up to %d ports were created together, want 4", most)
				}
			})
		})
	}
}
