// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/test/sim/openstack"
)

func TestQuota(t *testing.T) {
	h, ids := fixture(t)
	project := h.c.ProjectID(openstack.ProjectKuryr)
	h.admin(200, "PUT", "/quotas/"+project, attrs{"quota": attrs{"port": 4}}) // p and the router interface are there
	many := []attrs{}
	for range 3 {
		many = append(many, attrs{"network_id": ids.Replace("$n")})
	}
	doc := h.do(409, "POST", "/ports", attrs{"ports": many})
	want := attrs{"type": "OverQuota", "message": "Quota exceeded for resources: ['port'].", "detail": ""}
	if diff := cmp.Diff(want, doc["NeutronError"]); diff != "" {
		t.Error(diff)
	}
	h.do(201, "POST", "/ports", attrs{"ports": many[:2]})
	h.do(409, "POST", "/ports", attrs{"port": many[0]})
	q, _ := h.do(200, "GET", "/quotas/"+project, nil)["quota"].(attrs)
	if q["port"] != int64(4) || q["network"] != int64(-1) {
		t.Errorf("quota is %v", q)
	}
	d, _ := h.do(200, "GET", "/quotas/"+project+"/details.json", nil)["quota"].(attrs)
	if diff := cmp.Diff(attrs{"limit": int64(4), "used": int64(4), "reserved": int64(0)}, d["port"]); diff != "" {
		t.Error(diff)
	}
}

func TestProjectsAreApart(t *testing.T) {
	h, ids := fixture(t)
	other := func(status int, method, path string, body any) attrs {
		t.Helper()
		return h.as(openstack.UserOther, openstack.ProjectOther, status, method, path, body)
	}
	if got := other(200, "GET", "/networks", nil)["networks"].([]any); len(got) != 1 ||
		got[0].(attrs)["name"] != "public" {
		t.Errorf("another project sees %v, want the external network only", got)
	}
	other(404, "GET", ids.Replace("/ports/$p"), nil)
	other(404, "DELETE", ids.Replace("/ports/$p"), nil)
	other(404, "PUT", ids.Replace("/ports/$p/tags/x"), nil)
	other(404, "POST", "/ports", attrs{"port": attrs{"network_id": ids.Replace("$n")}})
	other(403, "DELETE", ids.Replace("/networks/$ext"), nil)
	if n := len(h.admin(200, "GET", "/ports", nil)["ports"].([]any)); n != 4 { // p, interface, gateway, floating IP
		t.Errorf("the administrator sees %d ports, want 4", n)
	}
}

func TestHostBinding(t *testing.T) {
	h, ids := fixture(t)
	at := ids.Replace("/ports/$p")
	h.as(openstack.UserKuryrAdmin, openstack.ProjectKuryr, 200, "PUT", at,
		attrs{"port": attrs{"binding:host_id": "node-1"}})
	p, _ := h.admin(200, "GET", at, nil)["port"].(attrs)
	if p["status"] != "ACTIVE" || p["binding:host_id"] != "node-1" || p["binding:vif_type"] != "ovs" {
		t.Errorf("a bound port is %v", p)
	}
	p, _ = h.do(200, "GET", at, nil)["port"].(attrs)
	if _, shown := p["binding:host_id"]; shown || p["binding:vnic_type"] != "normal" {
		t.Errorf("a member sees %v", p)
	}
	h.admin(200, "PUT", at, attrs{"port": attrs{"binding:host_id": ""}})
	if p, _ = h.do(200, "GET", at, nil)["port"].(attrs); p["status"] != "DOWN" {
		t.Errorf("an unbound port is %v", p["status"])
	}
}

func TestAddressesMoveAndComeBack(t *testing.T) {
	h, ids := fixture(t)
	at := ids.Replace("/ports/$p")
	move := func(ips ...attrs) []any {
		t.Helper()
		p, _ := h.do(200, "PUT", at, attrs{"port": attrs{"fixed_ips": ips}})["port"].(attrs)
		return p["fixed_ips"].([]any)
	}
	s := ids.Replace("$s")
	if got := move(attrs{"subnet_id": s}); got[0].(attrs)["ip_address"] != "10.0.0.9" {
		t.Errorf("asked for its subnet only, a port moved to %v", got)
	}
	if got := move(attrs{"ip_address": "10.0.0.10"}, attrs{"subnet_id": s}); len(got) != 2 {
		t.Errorf("a port with two addresses has %v", got)
	}
	move(attrs{"ip_address": "10.0.0.11"})
	// given back
	h.make("ports", attrs{"network_id": ids.Replace("$n"), "fixed_ips": []attrs{{"ip_address": "10.0.0.9"}}})
	h.make("ports", attrs{"network_id": ids.Replace("$n"), "fixed_ips": []attrs{{"ip_address": "10.0.0.10"}}}) // likewise
	if f := h.c.FloatingIPs()[0]; f["port_id"] != ids.Replace("$p") {
		t.Errorf("floating IP is %v", f)
	}
	h.do(204, "DELETE", at, nil)
	if f := h.c.FloatingIPs()[0]; f["port_id"] != nil || f["status"] != "DOWN" {
		t.Errorf("without its port the floating IP is %v", f)
	}
}

func TestDualStack(t *testing.T) {
	h, ids := fixture(t)
	n := ids.Replace("$n")
	h.make("subnets", attrs{"network_id": n, "ip_version": 6, "cidr": "fd00:1::/64"})
	slaac := h.make("subnets",
		attrs{"network_id": n, "ip_version": 6, "cidr": "fd00:2::/64", "ipv6_address_mode": "slaac", "ipv6_ra_mode": "slaac"})
	p := h.make("ports", attrs{"network_id": n, "mac_address": "0a:00:00:00:00:05"})
	var got []string
	for _, x := range h.c.Ports() {
		if x["id"] == p {
			for _, f := range x["fixed_ips"].([]any) {
				got = append(got, f.(attrs)["ip_address"].(string))
			}
		}
	}
	if diff := cmp.Diff([]string{"10.0.0.2", "fd00:1::2", "fd00:2::800:ff:fe00:5"}, got); diff != "" {
		t.Error(diff)
	}
	h.do(204, "DELETE", "/subnets/"+slaac, nil) // addresses that follow from the MAC hold nothing
}

func TestFullSubnetAndReuse(t *testing.T) {
	h := hand{t, openstack.New(openstack.Options{})}
	n := h.make("networks", attrs{})
	h.make("subnets", attrs{"network_id": n, "ip_version": 4, "cidr": "10.0.0.0/29"})
	var last string
	for range 5 {
		last = h.make("ports", attrs{"network_id": n})
	}
	h.do(409, "POST", "/ports", attrs{"port": attrs{"network_id": n}})
	h.do(204, "DELETE", "/ports/"+last, nil)
	// a bulk that runs out gives everything back
	h.do(409, "POST", "/ports", attrs{"ports": []attrs{{"network_id": n}, {"network_id": n}}})
	h.make("ports", attrs{"network_id": n})
}

func TestExtraRoutes(t *testing.T) {
	h, ids := fixture(t)
	route := attrs{"router": attrs{"routes": []attrs{{"destination": "10.9.0.0/16", "nexthop": "10.0.0.9"}}}}
	for range 2 { // twice is once
		r, _ := h.do(200, "PUT", ids.Replace("/routers/$r/add_extraroutes"), route)["router"].(attrs)
		if len(r["routes"].([]any)) != 1 {
			t.Errorf("routes are %v", r["routes"])
		}
	}
	h.do(204, "DELETE", ids.Replace("/floatingips/$fip"), nil)
	h.do(409, "PUT", ids.Replace("/routers/$r/remove_router_interface"), attrs{"subnet_id": ids.Replace("$s")})
	h.do(200, "PUT", ids.Replace("/routers/$r/remove_extraroutes"), route)
	h.do(200, "PUT", ids.Replace("/routers/$r/remove_router_interface"), attrs{"subnet_id": ids.Replace("$s")})
	h.do(204, "DELETE", ids.Replace("/routers/$r"), nil)
	h.do(204, "DELETE", ids.Replace("/ports/$p"), nil)
	h.do(204, "DELETE", ids.Replace("/networks/$n"), nil)
	for _, p := range h.c.Ports() {
		t.Errorf("left behind: %v", p)
	}
}

func TestPoolGivesDisjointRanges(t *testing.T) {
	h := hand{t, openstack.New(openstack.Options{})}
	pool := h.make("subnetpools", attrs{"prefixes": []string{"10.0.0.0/9", "10.128.0.0/9"}, "default_prefixlen": 24})
	if got := h.c.SubnetPools()[0]["prefixes"].([]any); len(got) != 1 || got[0] != "10.0.0.0/8" {
		t.Errorf("prefixes are %v, want them merged", got)
	}
	seen := map[any]bool{}
	for i := range 300 {
		n := h.make("networks", attrs{"name": fmt.Sprint(i)})
		h.make("subnets", attrs{"network_id": n, "ip_version": 4, "subnetpool_id": pool, "prefixlen": 24 - i%2})
	}
	for _, s := range h.c.Subnets() {
		seen[s["cidr"]] = true
	}
	if len(seen) != 301 { // and the external one
		t.Errorf("%d distinct ranges, want 301", len(seen))
	}
}

// TestDump: two runs that differ in order, ids and chosen addresses only, give the same dump.
func TestDump(t *testing.T) {
	run := func(seed uint64, names ...string) string {
		h := hand{t, openstack.New(openstack.Options{Seed: seed})}
		pool := h.make("subnetpools", attrs{"name": "pool", "prefixes": []string{"10.0.0.0/8"}, "default_prefixlen": 24})
		g := h.make("security-groups", attrs{"name": "g"})
		for _, name := range names {
			n := h.make("networks", attrs{"name": name, "description": "raven:name=" + name})
			s := h.make("subnets", attrs{"network_id": n, "ip_version": 4, "subnetpool_id": pool, "name": name})
			h.make("ports", attrs{"network_id": n, "name": name + "-p", "security_groups": []string{g}, "tags": []string{"t"}})
			r := h.make("routers", attrs{"name": name})
			h.do(200, "PUT", "/routers/"+r+"/add_router_interface", attrs{"subnet_id": s})
		}
		return h.c.Dump(openstack.DumpOptions{})
	}
	a, b := run(1, "x", "y"), run(2, "y", "x")
	if diff := cmp.Diff(a, b); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(a, run(1, "x")); diff == "" {
		t.Error("a dump does not tell one network from two")
	}
	for _, want := range []string{
		`subnet "x" cidr=auto/24 ip_version=4 network_id=x project_id=kuryr subnetpool_id=pool`,
		`port "x-p" fixed_ips=[{ip_address=auto subnet_id=x}] network_id=x port_security_enabled=true project_id=kuryr security_groups=[g] status=DOWN`,
		`port "port network:router_interface on y"`,
	} {
		if !strings.Contains(a, want) {
			t.Errorf("the dump lacks %s:\n%s", want, a)
		}
	}
}
