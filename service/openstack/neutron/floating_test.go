// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
	"github.com/kuryr/raven/service/watch"
)

// TestWhoseAFloatingIPIs: one that leads nowhere is had only if no owner can have a claim to it.
func TestWhoseAFloatingIPIs(t *testing.T) {
	mine := plan.Identity{Cluster: "c", Owner: plan.Owner{Driver: "a", UID: "mine"}, Name: "fip.4"}
	theirs := func(driver string) plan.Observed {
		id := plan.Identity{Cluster: "c", Owner: state.OwnerOf(driver, "theirs"), Name: "fip.4"}
		return plan.Observed{
			Kind: drivers.KindFloatingIP, ID: "1", Identity: id, Managed: true, Attrs: map[string]any{"port_id": nil},
		}
	}
	key := watch.Key{Watch: "maps", Name: "theirs"}
	object := func(tx *state.LoopTx) *state.Object {
		return tx.Ensure(state.Request{Driver: "a", Key: key}, state.Target{Name: "shop", UID: "theirs"})
	}
	open := []watch.Key{key}
	for name, c := range map[string]struct {
		found  plan.Observed
		role   string
		unread bool        // the driver was never asked
		open   []watch.Key // not answered
		setup  func(tx *state.LoopTx)
		want   string // "": it is free
	}{
		"nobody's":              {found: plan.Observed{Kind: drivers.KindFloatingIP, ID: "1"}},
		"of an object not read": {found: theirs("a"), open: open, want: "not answered"},
		"of one that is gone":   {found: theirs("a")},
		"of one that is ending": {found: theirs("a"), setup: func(tx *state.LoopTx) { object(tx).Gone = true }},
		"of one that is there":  {found: theirs("a"), setup: func(tx *state.LoopTx) { object(tx) }, want: "it belongs to"},
		"before any replay":     {found: theirs("a"), unread: true, want: "not answered"},
		"of a driver left out":  {found: theirs("b"), want: "not enabled"},
		"of a role, not read":   {found: theirs("service-proxy"), role: "service-proxy", open: open, want: "not answered"},
		"of a role, and gone":   {found: theirs("service-proxy"), role: "service-proxy"},
		"of what is shared":     {found: theirs(state.Shared), want: "shared"},
	} {
		t.Run(name, func(t *testing.T) {
			st := state.New(state.Config{
				Cluster: "c", Drivers: []string{"a"}, Kinds: plan.NewKinds(Kinds()...), Clock: clock.RealClock{},
			})
			got := ""
			st.Update(func(tx *state.LoopTx) {
				tx.AddDriver("a", c.role, nil)
				if !c.unread {
					tx.BeginEpoch("a", c.open)
				}
				if c.setup != nil {
					c.setup(tx)
				}
				got = takenBy(tx.Tx, c.found, plan.Step{Identity: mine})
			})
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
