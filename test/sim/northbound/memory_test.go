// SPDX-License-Identifier: Apache-2.0

package northbound

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/ovn"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/test/sim/openstack"
)

// TestMemory: the database that takes the place of the real one holds what Raven writes, and what Neutron does.
func TestMemory(t *testing.T) {
	s, err := startMemory(t.Context(), Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	cloud := openstack.New(openstack.Options{})
	if _, err := cloud.Start(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	defer cloud.Close()
	neutron, err := Follow(t.Context(), cloud, s.Unix())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := neutron.Close(); err != nil {
			t.Error(err)
		}
	}()
	n, err := ovn.Open(t.Context(), ovn.Config{Cluster: "c1", Endpoints: []string{s.Unix()}},
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if err := n.WaitConnected(t.Context()); err != nil {
		t.Fatal(err)
	}
	network, _ := cloud.Networks()[0]["id"].(string) // the external one
	g, err := n.Create(t.Context(), drivers.KindOVNLoadBalancerGroup,
		plan.Identity{Cluster: "c1", Owner: plan.Owner{Driver: plan.Shared}, Name: "g"},
		map[string]any{"name": "g", "networks": []any{network}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"name": "g", "networks": []any{network}, "routers": []any{}}, g.Attrs); diff != "" {
		t.Error(diff)
	}
	identity := plan.Identity{Cluster: "c1", Owner: plan.Owner{Driver: "x", UID: "u"}, Name: "lb"}
	for range 2 {
		lb, err := n.Create(t.Context(), drivers.KindOVNLoadBalancer, identity, map[string]any{
			"name": "web/shop", "group_id": g.ID, "vips": []any{map[string]any{
				"protocol": "TCP", "address": "10.0.0.1", "port": int64(80),
				"backends": []any{map[string]any{"address": "10.1.0.1", "port": int64(8080)}},
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if list, _ := lb.Attrs["vips"].([]any); len(list) != 1 {
			t.Errorf("VIPs %v, want one", list)
		}
	}
	if err := n.Delete(t.Context(), drivers.KindOVNLoadBalancer, lbID(identity)); err != nil {
		t.Fatal(err)
	}
	if err := n.Delete(t.Context(), drivers.KindOVNLoadBalancerGroup, g.ID); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if s := n.Status(); s.Rows+s.Groups == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("left: %+v", n.Status())
		}
	}
}

func lbID(identity plan.Identity) string { return ovn.ID(drivers.KindOVNLoadBalancer, identity) }
