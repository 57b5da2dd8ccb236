// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"fmt"
	"sync"
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack/internal/stacktest"
	sim "github.com/kuryr/raven/test/sim/openstack"
)

// Neutron refuses rules of several groups in one request, so that they must never get into one.
func TestRulesOfOneGroupGoTogether(t *testing.T) {
	_, c := startSim(t, sim.Options{})
	var groups []string
	for i := range 3 {
		groups = append(
			groups, must(t, c, drivers.KindSecurityGroup, fmt.Sprintf("group-%d", i), map[string]any{"name": "g"}).ID,
		)
	}
	var wait sync.WaitGroup
	for i := range 60 {
		wait.Go(func() {
			identity := stacktest.Named(fmt.Sprintf("rule-%d", i))
			_, err := c.Create(t.Context(), drivers.KindSecurityGroupRule, identity, map[string]any{
				"security_group_id": groups[i%3], "direction": "ingress", "ethertype": "IPv4", "protocol": "tcp",
				"port_range_min": int64(i + 1), "port_range_max": int64(i + 1),
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	found, err := c.List(t.Context(), drivers.KindSecurityGroupRule, "c1")
	if err != nil || len(found) != 60 {
		t.Errorf("there are %d rules, %v", len(found), err)
	}
	if refused := c.Stats().Events["divided"]; refused != 0 {
		t.Errorf("%d requests were refused and divided", refused)
	}
}
