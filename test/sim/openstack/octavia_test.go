// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testclock "k8s.io/utils/clock/testing"

	"github.com/kuryr/raven/test/sim/openstack"
)

// caller calls a cloud as its plain member.
type caller struct {
	t *testing.T
	c *openstack.Cloud
}

func (h caller) do(status int, method, path string, body any) attrs {
	h.t.Helper()
	got, doc := h.c.Call(openstack.UserKuryr, openstack.ProjectKuryr, method, path, body)
	if got != status {
		h.t.Fatalf("%s %s: %d %v, want %d", method, path, got, doc, status)
	}
	return doc
}

func (h caller) subnet() string {
	h.t.Helper()
	n := h.do(201, "POST", "/networks", attrs{"network": attrs{"name": "services"}})["network"].(attrs)["id"]
	s := h.do(201, "POST", "/subnets", attrs{"subnet": attrs{"network_id": n, "ip_version": 4, "cidr": "10.20.0.0/24"}})
	return s["subnet"].(attrs)["id"].(string)
}

// full is the body of a full create: one listener on port 80 with so many members.
func full(subnet, provider, algorithm string, members int) attrs {
	many := make([]attrs, 0, members)
	for i := range members {
		many = append(many, attrs{"address": fmt.Sprintf("10.20.0.%d", 100+i), "protocol_port": 8080, "subnet_id": subnet})
	}
	return attrs{"loadbalancer": attrs{
		"name": "web", "vip_subnet_id": subnet, "provider": provider, "tags": []string{"x"}, "vip_address": "10.20.0.10",
		"listeners": []attrs{{"name": "l", "protocol": "TCP", "protocol_port": 80, "default_pool": attrs{
			"name": "p", "protocol": "TCP", "lb_algorithm": algorithm, "members": many,
		}}},
	}}
}

func (h caller) states(lb string) map[string]int {
	h.t.Helper()
	out := map[string]int{}
	status := h.do(200, "GET", "/lbaas/loadbalancers/"+lb+"/status", nil)["statuses"].(attrs)["loadbalancer"].(attrs)
	out["lb "+status["provisioning_status"].(string)]++
	for _, l := range status["listeners"].([]any) {
		out["listener "+l.(attrs)["provisioning_status"].(string)]++
		for _, p := range l.(attrs)["pools"].([]any) {
			out["pool "+p.(attrs)["provisioning_status"].(string)]++
			for _, m := range p.(attrs)["members"].([]any) {
				out["member "+m.(attrs)["provisioning_status"].(string)]++
			}
		}
	}
	return out
}

const second = time.Second

// TestProvidersWorkInTheirOwnWay: the same requests to either provider, and what can be seen second by second.
func TestProvidersWorkInTheirOwnWay(t *testing.T) {
	clock := testclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	work := openstack.Work{
		Create: 10 * second, Delete: 5 * second, Update: second, Listener: second, Pool: second, Member: second,
	}
	c := openstack.New(openstack.Options{
		Clock: clock, Providers: []openstack.Provider{openstack.Amphora(work), openstack.OVN(work)},
	})
	h := caller{t, c}
	s := h.subnet()
	create := func(provider, algorithm, vip string) (lb, pool string) {
		body := full(s, provider, algorithm, 2)
		body["loadbalancer"].(attrs)["vip_address"] = vip
		doc := h.do(201, "POST", "/lbaas/loadbalancers", body)["loadbalancer"].(attrs)
		return doc["id"].(string), doc["pools"].([]any)[0].(attrs)["id"].(string)
	}
	amphora, pool := create("amphora", "ROUND_ROBIN", "10.20.0.10")
	ovn, _ := create("ovn", "SOURCE_IP_PORT", "10.20.0.11")
	pending := map[string]int{
		"lb PENDING_CREATE": 1, "listener PENDING_CREATE": 1, "pool PENDING_CREATE": 1, "member PENDING_CREATE": 2,
	}
	expect := func(lb string, want map[string]int) {
		t.Helper()
		if diff := cmp.Diff(want, h.states(lb)); diff != "" {
			t.Errorf("states (-want +got): %s", diff)
		}
	}
	expect(amphora, pending)
	expect(ovn, pending)
	h.do(409, "PUT", "/lbaas/loadbalancers/"+ovn, attrs{"loadbalancer": attrs{"name": "x"}})
	clock.Step(11 * second)
	expect(amphora, pending)
	expect(ovn, map[string]int{"lb ACTIVE": 1, "listener ACTIVE": 1, "pool PENDING_CREATE": 1, "member PENDING_CREATE": 2})
	clock.Step(3 * second)
	ready := map[string]int{"lb ACTIVE": 1, "listener ACTIVE": 1, "pool ACTIVE": 1, "member ACTIVE": 2}
	expect(amphora, ready)
	expect(ovn, ready)

	at := "/lbaas/pools/" + pool + "/members"
	h.do(202, "PUT", at,
		attrs{
			"members": []attrs{
				{"address": "10.20.0.100", "protocol_port": 8080}, {"address": "10.20.0.200", "protocol_port": 8080},
			},
		})
	expect(amphora, map[string]int{
		"lb PENDING_UPDATE": 1, "listener PENDING_UPDATE": 1, "pool PENDING_UPDATE": 1, "member PENDING_UPDATE": 1,
		"member PENDING_CREATE": 1,
		"member PENDING_DELETE": 1,
	})
	h.do(409, "PUT", at, attrs{"members": []attrs{}})
	clock.Step(4 * second)
	expect(amphora, ready)
	h.do(400, "DELETE", "/lbaas/loadbalancers/"+amphora, nil)
	h.do(204, "DELETE", "/lbaas/loadbalancers/"+amphora+"?cascade=true", nil)
	h.do(409, "DELETE", "/lbaas/loadbalancers/"+amphora+"?cascade=true", nil)
	h.do(204, "DELETE", "/lbaas/loadbalancers/"+ovn+"?cascade=true", nil)
	clock.Step(5 * second)
	h.do(404, "GET", "/lbaas/loadbalancers/"+amphora, nil)
	if d := c.Dump(openstack.DumpOptions{}); strings.Contains(d, "lb") || strings.Contains(d, "member") {
		t.Errorf("left behind:\n%s", d)
	}
	for _, kind := range []string{"loadbalancer", "listener", "pool", "member", "port", "security_group"} {
		if kind == "security_group" && c.Count(kind) == 2 { // the default ones of two projects
			continue
		}
		if n := c.Count(kind); n != 0 {
			t.Errorf("%d of kind %s are left", n, kind)
		}
	}
}

// TestStuckChildren: a release that accepts the full create and never finishes its children.
func TestStuckChildren(t *testing.T) {
	p := openstack.Amphora(openstack.Work{})
	p.StuckChildren = true
	h := caller{t, openstack.New(openstack.Options{Providers: []openstack.Provider{p}})}
	doc := h.do(201, "POST", "/lbaas/loadbalancers", full(h.subnet(), "amphora", "ROUND_ROBIN", 1))["loadbalancer"].(attrs)
	want := map[string]int{
		"lb ACTIVE": 1, "listener PENDING_CREATE": 1, "pool PENDING_CREATE": 1, "member PENDING_CREATE": 1,
	}
	if diff := cmp.Diff(want, h.states(doc["id"].(string))); diff != "" {
		t.Errorf("states (-want +got): %s", diff)
	}
	pool := doc["pools"].([]any)[0].(attrs)["id"].(string)
	h.do(409, "PUT", "/lbaas/pools/"+pool+"/members", attrs{"members": []attrs{}})
	h.do(204, "DELETE", "/lbaas/loadbalancers/"+doc["id"].(string)+"?cascade=true", nil)
	h.do(404, "GET", "/lbaas/loadbalancers/"+doc["id"].(string), nil)
}

// TestOldProtocols: what an older Octavia does not know it refuses wherever it is, by 400, and makes nothing.
func TestOldProtocols(t *testing.T) {
	h := caller{t, openstack.New(openstack.Options{NoProtocols: []string{"SCTP", "PROXYV2"}})}
	s := h.subnet()
	for value, want := range map[string]string{
		"SCTP": "Invalid input for field/attribute protocol. Value: 'SCTP'. Value should be one of: HTTP, HTTPS, " +
			"PROMETHEUS, TCP, TERMINATED_HTTPS, UDP",
		"PROXYV2": "Invalid input for field/attribute protocol. Value: 'PROXYV2'. Value should be one of: HTTP, HTTPS, " +
			"PROXY, TCP, UDP",
	} {
		body := full(s, "amphora", "ROUND_ROBIN", 1)
		listener := body["loadbalancer"].(attrs)["listeners"].([]attrs)[0]
		if listener["protocol"] = value; value == "PROXYV2" {
			listener["protocol"], listener["default_pool"].(attrs)["protocol"] = "TCP", value
		}
		if got := h.do(400, "POST", "/lbaas/loadbalancers", body)["faultstring"]; got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
	body := full(s, "amphora", "ROUND_ROBIN", 1)
	delete(body["loadbalancer"].(attrs), "listeners")
	delete(body["loadbalancer"].(attrs), "pools")
	id := h.do(201, "POST", "/lbaas/loadbalancers", body)["loadbalancer"].(attrs)["id"]
	listener := attrs{"name": "x", "protocol": "SCTP", "protocol_port": 9, "loadbalancer_id": id}
	h.do(400, "POST", "/lbaas/listeners", attrs{"listener": listener})
	listener["protocol"] = "TCP"
	h.do(201, "POST", "/lbaas/listeners", attrs{"listener": listener})
	if n := h.c.Count("loadbalancer"); n != 1 {
		t.Errorf("%d load balancers", n)
	}
}

// TestProviderFaults: what goes wrong after the request went well.
func TestProviderFaults(t *testing.T) {
	w := dial(t, openstack.Options{})
	h := caller{t, w.c}
	s := h.subnet()
	body := func(vip string) attrs {
		b := full(s, "amphora", "ROUND_ROBIN", 1)
		b["loadbalancer"].(attrs)["vip_address"] = vip
		return b
	}
	post := func(vip string) string {
		t.Helper()
		status, _, doc, err := w.send(t.Context(), http.MethodPost, w.c.LoadBalancerURL()+"/v2.0/lbaas/loadbalancers",
			body(vip))
		if err != nil || status != 201 {
			t.Fatalf("%d %v %v", status, doc, err)
		}
		return doc["loadbalancer"].(attrs)["id"].(string)
	}
	w.rule(openstack.Rule{Kind: "loadbalancer", Method: "POST", Action: openstack.ActionProviderError, Times: 1})
	failed := post("10.20.0.10")
	w.rule(openstack.Rule{Kind: "loadbalancer", Method: "POST", Action: openstack.ActionProviderStall, Times: 1})
	stalled := post("10.20.0.11")
	w.rule(openstack.Rule{Kind: "loadbalancer", Method: "GET", Action: openstack.ActionStatus, Status: 503, Times: 1})
	status, _, doc, err := w.send(t.Context(), http.MethodGet, w.c.LoadBalancerURL()+"/v2.0/lbaas/loadbalancers", nil)
	if err != nil || status != 503 || doc["faultstring"] == nil {
		t.Errorf("a fault of Octavia is %d %v, %v", status, doc, err)
	}
	fine := post("10.20.0.12")
	for id, want := range map[string]string{failed: "ERROR", stalled: "PENDING_CREATE", fine: "ACTIVE"} {
		if got := h.do(200, "GET", "/lbaas/loadbalancers/"+id,
			nil)["loadbalancer"].(attrs)["provisioning_status"]; got != want {
			t.Errorf("provisioning status is %v, want %s", got, want)
		}
	}
	h.do(409, "PUT", "/lbaas/loadbalancers/"+failed, attrs{"loadbalancer": attrs{"name": "x"}})
	h.do(403, "PUT", "/lbaas/loadbalancers/"+failed+"/failover", nil)
	if got, doc := w.c.Call(openstack.UserAdmin, openstack.ProjectAdmin, "PUT",
		"/lbaas/loadbalancers/"+failed+"/failover", nil); got != 202 {
		t.Errorf("an administrator's failover: %d %v", got, doc)
	}
	h.do(200, "PUT", "/lbaas/loadbalancers/"+failed, attrs{"loadbalancer": attrs{"name": "x"}})
	if err := w.c.SetError(fine); err != nil {
		t.Fatal(err)
	}
	if err := w.c.SetProvisioningStatus(stalled, "ACTIVE"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{failed, stalled, fine} {
		h.do(204, "DELETE", "/lbaas/loadbalancers/"+id+"?cascade=true", nil)
	}
	if n := w.c.Count("loadbalancer"); n != 0 {
		t.Errorf("%d load balancers are left", n)
	}
}
