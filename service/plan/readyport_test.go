// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// A ready port of a pool is in no Set. It stays as long as its pool is desired, and the mass-deletion guard does not
// count it.
func TestReadyPortsStayWithTheirPool(t *testing.T) {
	of := func(name string) plan.Identity {
		owner := plan.Owner{Driver: "namespace", UID: "shop"}
		return plan.Identity{Cluster: "c", Owner: owner, Name: name, Policy: drivers.Delete}
	}
	ready := of("ready.pool-ABC")
	observed := []plan.Observed{{
		Kind: drivers.KindPort, ID: "p-1", Managed: true, Identity: ready, Tags: ready.Tags(),
		Description: ready.Describe(""), Attrs: map[string]any{"network_id": "n-1"},
	}}
	for name, tc := range map[string]struct {
		pool    string // that is desired
		prune   bool
		deletes int
	}{
		"its pool":                           {pool: "pool", prune: true},
		"another pool":                       {pool: "pools", prune: true, deletes: 1},
		"no pool":                            {prune: true, deletes: 1},
		"before all objects are answered":    {},
		"another one, before they are known": {pool: "other"},
	} {
		t.Run(name, func(t *testing.T) {
			in := plan.Input{Observed: observed, Prune: tc.prune}
			if tc.pool != "" {
				in.Desired = []plan.Desired{{
					Kind: drivers.KindPortPool, Identity: of(tc.pool), Attrs: map[string]any{"network_id": "n-1"},
				}}
			}
			p := kinds.Compute(in)
			deletes := 0
			for _, step := range p.Steps {
				if step.Op == plan.Delete && step.ID == "p-1" {
					deletes++
				}
			}
			if deletes != tc.deletes || p.Held != 0 {
				t.Errorf("%d deletions, not %d, and %d held", deletes, tc.deletes, p.Held)
			}
		})
	}
}
