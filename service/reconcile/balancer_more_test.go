package reconcile_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/reconcile"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// TestBalancersDrift: what others change of a load balancer is mended, and what they take away comes back.
func TestBalancersDrift(t *testing.T) {
	w := balancers(t, amphora())
	r := w.start(with(script("a", always(shopOf(2).set()))).configured(func(c *reconcile.Config) {
		quick(c)
		c.DriftInterval = 50 * time.Millisecond
	}))
	w.createMap("a", "x")
	r.settled(1)
	pool := w.one("pool", "shop:TCP:80")
	w.by(http.MethodPut, "/lbaas/pools/"+text(pool, "id")+"/members", map[string]any{"members": []any{}}, http.StatusAccepted)
	w.eventually("its members are back", func() (bool, string) { return len(w.members("shop:TCP:80")) == 2, w.dump() })
	r.settled(1)
	lb := w.one("loadbalancer", "shop")
	w.eventually("it can be deleted", func() (bool, string) {
		status, doc := w.cloud.Call(simcloud.UserKuryr, simcloud.ProjectKuryr, http.MethodDelete, "/lbaas/loadbalancers/"+text(lb, "id")+"?cascade=true", nil)
		return status == http.StatusNoContent, fmt.Sprint(status, doc)
	})
	w.eventually("another one", func() (bool, string) {
		found := w.named("loadbalancer", "shop")
		return len(found) == 1 && found[0]["id"] != lb["id"] && len(w.members("shop:TCP:443")) == 2, w.dump()
	})
	r.settled(1)
}

// TestTheSameAddressAgain: an object that is made anew under the same name waits for its predecessor's load balancer to go.
func TestTheSameAddressAgain(t *testing.T) {
	slow := amphora()
	slow.Work.Delete = 300 * time.Millisecond
	w := balancers(t, slow)
	own := func(name string, _ *drivers.Needs) (drivers.Set, error) {
		if name == "place" {
			return setOf(exporting(network("home"), "net"), exporting(subnet("home", "10.7.0.0/16"), "sub")), nil
		}
		s := served{ports: []int64{80}, members: 0, address: "10.7.0.77"}
		s.extra = func(lb *drivers.LoadBalancer) { lb.VIPSubnetID = drivers.FromRole(of("place", "sub")) }
		set := s.set()
		set.Resources = set.Resources[2:]
		return set, nil
	}
	r := w.start(with(script("a", own)).configured(quick))
	w.createMap("a", "place")
	w.createMap("a", "x")
	r.settled(2)
	first := w.one("loadbalancer", "shop")
	w.cloud.ResetLog()
	w.deleteMap("x")
	w.createMap("a", "x")
	w.eventually("its successor", func() (bool, string) {
		found := w.named("loadbalancer", "shop")
		return len(found) == 1 && found[0]["id"] != first["id"], w.dump()
	})
	r.settled(2)
	w.wantWrites("DELETE loadbalancer 204", "POST loadbalancer 201")
}

// TestOrphanedBalancer: what belongs to an object that went while nobody looked is swept, and a cleanup removes what is left of a
// cluster.
func TestOrphanedBalancer(t *testing.T) {
	w := balancers(t, amphora())
	s := with(script("a", always(shopOf(2).set()))).configured(quick)
	r := w.start(s)
	w.createMap("a", "x")
	r.settled(1)
	r.stop()
	w.deleteMap("x")
	r = w.start(s)
	w.none("loadbalancer", "shop")
	w.none("network", "home")
	w.createMap("a", "y")
	r.settled(1)
	r.stop()
	cloud, err := openstack.Connect(t.Context(), w.cloudConfig(), testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer cloud.Close()
	c := &reconcile.Cleanup{Cloud: cloud, Cluster: "cluster-1", Patience: 5 * time.Second, Clock: clock.RealClock{}}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if left, err := c.Run(ctx); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	if n := w.cloud.Count("loadbalancer") + w.cloud.Count("port"); n > 0 {
		t.Errorf("something is left:\n%s", w.dump())
	}
}

// TestGroupsOfTheVIP are set on the VIP's port, and followed.
func TestGroupsOfTheVIP(t *testing.T) {
	w := balancers(t, amphora())
	want := shopOf(1)
	want.extra = func(lb *drivers.LoadBalancer) { lb.VIPSecurityGroups = []drivers.Value{drivers.From("group")} }
	set := want.set()
	set.Resources = append(set.Resources, group("vip"))
	a := script("a", always(set))
	r := w.start(with(a).configured(quick))
	w.createMap("a", "x")
	r.settled(1)
	lb, group := w.one("loadbalancer", "shop"), w.one("security_group", "vip")
	w.eventually("the group on the port", func() (bool, string) {
		i := slices.IndexFunc(w.cloud.Ports(), func(p map[string]any) bool { return p["id"] == lb["vip_port_id"] })
		return i >= 0 && fmt.Sprint(w.cloud.Ports()[i]["security_groups"]) == fmt.Sprint([]any{group["id"]}), w.dump()
	})
	w.deleteMap("x")
	w.none("security_group", "vip")
}

// TestAddressOfACreateUnderWay: the VIP port of a load balancer that nobody can see yet is not taken from it.
func TestAddressOfACreateUnderWay(t *testing.T) {
	w := balancers(t, amphora())
	want := served{ports: []int64{80}, members: 1}
	a := script("a", always(want.set()))
	r := w.start(with(a).configured(quick)) // the time after which it would be old is 2 minutes
	w.createMap("a", "x")
	r.settled(1)
	vip := w.one("loadbalancer", "shop")
	subnet, _ := vip["vip_subnet_id"].(string)
	id := "0f0e0d0c-0b0a-4908-8706-050403020100"
	status, doc := w.cloud.Call(simcloud.UserAdmin, simcloud.ProjectKuryr, http.MethodPost, "/ports", map[string]any{"port": map[string]any{
		"name": "octavia-lb-" + id, "device_owner": "Octavia", "device_id": "lb-" + id, "network_id": vip["vip_network_id"],
		"fixed_ips": []any{map[string]any{"subnet_id": subnet, "ip_address": "10.7.0.77"}},
	}})
	if status != http.StatusCreated {
		t.Fatalf("%d %v", status, doc)
	}
	want.address = "10.7.0.77"
	want.extra = func(lb *drivers.LoadBalancer) { lb.Name = new("other") }
	more := want.set().Resources[2]
	more.Name = "other"
	set := served{ports: []int64{80}, members: 1}.set()
	set.Resources = append(set.Resources, more)
	a.now(always(set))
	w.touchMap("x", 1)
	r.stands("a", "x", reconcile.Waiting, "a port has the address that no load balancer owns")
	if len(w.named("port", "octavia-lb-"+id)) != 1 {
		t.Errorf("it was taken away:\n%s", w.dump())
	}
}
