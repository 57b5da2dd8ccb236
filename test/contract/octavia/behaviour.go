// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/test/contract/rest"
)

// Run runs the whole suite against a provider of a cloud.
func Run(t *testing.T, target Target) {
	tests := []struct {
		name string
		run  func(*api)
	}{
		{"versions and providers", versions},
		{"a bare load balancer", bare},
		{"the full create", fullCreate},
		{"step by step", stepByStep},
		{"batches of members", batches},
		{"lists", lists},
		{"pages", pages},
		{"bad requests", badRequests},
		{"conflicts", conflicts},
		{"bad full creates", badFullCreates},
		{"VIPs", vips},
		{"additional VIPs", additionalVIPs},
		{"what the provider can do", features},
		{"what a member may not", forbidden},
		{"quotas", quotas},
	}
	shared := newAPI(t, target)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.run(shared.in(t)) })
	}
}

func versions(a *api) {
	root := strings.TrimSuffix(a.target.Balancing.Endpoint, "/")
	if r := a.request(a.target.Balancing, http.MethodGet, root+"/", nil); r.Status != http.StatusOK ||
		len(rest.Docs(r.Body["versions"])) == 0 {
		a.t.Errorf("GET / gave %s", r)
	}
	for _, path := range []string{"/v2.0/lbaas", "/v2/lbaas"} {
		if r := a.request(a.target.Balancing, http.MethodGet, root+path+"/loadbalancers?name="+a.prefix,
			nil); r.Status != http.StatusOK {
			a.t.Errorf("GET %s/loadbalancers gave %s", path, r)
		}
	}
	var names []string
	for _, p := range a.list("/providers") {
		names = append(names, rest.Text(p, "name"))
	}
	if !slices.Contains(names, a.target.Provider.Name) {
		a.t.Errorf("providers are %v", names)
	}
}

func bare(a *api) {
	lb := a.create(attrs{
		"vip_address": "10.70.0.50", "description": "raven:x=y z", "tags": []string{a.prefix + ":b", a.prefix + ":a=1"},
	})
	id := rest.Text(lb, "id")
	if s := rest.Text(lb, "provisioning_status"); s != "PENDING_CREATE" && (a.target.Provider.Locks || s != "ACTIVE") {
		a.t.Errorf("a new load balancer is %s", s)
	}
	if a.target.Provider.Locks {
		a.refused(http.StatusConflict, "Invalid state PENDING_CREATE of loadbalancer resource "+id, http.MethodPut,
			"/loadbalancers/"+id,
			attrs{"loadbalancer": attrs{"name": "x"}})
		a.refused(http.StatusConflict, "Invalid state PENDING_CREATE of loadbalancer resource "+id, http.MethodDelete,
			"/loadbalancers/"+id, nil)
		a.refused(http.StatusConflict, "Load Balancer "+id+" is immutable and cannot be updated.", http.MethodPost,
			"/listeners",
			attrs{"listener": attrs{"loadbalancer_id": id, "protocol": "TCP", "protocol_port": 80}})
	}
	if s := a.waitFor(id, "ACTIVE"); s != "ACTIVE" {
		a.t.Fatalf("the load balancer became %s", s)
	}
	got, _ := a.must(http.StatusOK, http.MethodGet, "/loadbalancers/"+id, nil).Body["loadbalancer"].(attrs)
	for key, want := range map[string]any{
		"name": a.prefix, "description": "raven:x=y z", "vip_address": "10.70.0.50", "vip_subnet_id": a.subnet,
		"vip_network_id": a.net,
		"admin_state_up": true, "provider": a.target.Provider.Name, "project_id": got["tenant_id"],
	} {
		if got[key] != want {
			a.t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
	tags, _ := got["tags"].([]any)
	slices.SortFunc(tags, func(x, y any) int { return strings.Compare(fmt.Sprint(x), fmt.Sprint(y)) })
	if diff := cmp.Diff([]any{a.prefix + ":a=1", a.prefix + ":b"}, tags); diff != "" {
		a.t.Errorf("tags: %s", diff)
	}
	port := a.port(rest.Text(lb, "vip_port_id"))
	wantName, wantOwner := "ovn-lb-vip-"+id, ""
	if a.target.Provider.Name == "amphora" {
		wantName, wantOwner = "octavia-lb-"+id, "Octavia"
	}
	if rest.Text(port, "name") != wantName || rest.Text(port, "device_owner") != wantOwner ||
		rest.Text(rest.Docs(port["fixed_ips"])[0], "ip_address") != "10.70.0.50" {
		a.t.Errorf("the VIP port is %v, want name %s and device owner %q", port, wantName, wantOwner)
	}
	a.must(http.StatusOK, http.MethodPut, "/loadbalancers/"+id,
		attrs{"loadbalancer": attrs{"description": "", "tags": []string{"c"}}})
	a.waitFor(id, "ACTIVE")
	got, _ = a.must(http.StatusOK, http.MethodGet, "/loadbalancers/"+id, nil).Body["loadbalancer"].(attrs)
	if got["description"] != "" || !cmp.Equal(got["tags"], []any{"c"}) {
		a.t.Errorf("after an update description is %v, tags %v", got["description"], got["tags"])
	}
	a.must(http.StatusNoContent, http.MethodDelete, "/loadbalancers/"+id, nil)
	if s := a.waitFor(id, "gone"); s != "gone" {
		a.t.Errorf("a deleted load balancer became %s", s)
	}
	a.refused(http.StatusNotFound, "Load Balancer "+id+" not found.", http.MethodDelete, "/loadbalancers/"+id, nil)
	if p := a.port(rest.Text(lb, "vip_port_id")); p != nil {
		a.t.Errorf("the VIP port is still there: %v", p)
	}
}

// members are bodies of n members from 10.70.0.<from> on.
func (a *api) members(from, n int) []attrs {
	out := make([]attrs, 0, n)
	for i := range n {
		out = append(out,
			attrs{"address": fmt.Sprintf("10.70.0.%d", from+i), "protocol_port": 8080, "subnet_id": a.subnet, "name": a.prefix})
	}
	return out
}

// monitored is the body of a member that a health monitor can reach with any provider: a port of the subnet.
func (a *api) monitored(address int) attrs {
	m := a.members(address, 1)[0]
	a.neutron("ports",
		attrs{"network_id": a.net, "fixed_ips": []attrs{{"subnet_id": a.subnet, "ip_address": m["address"]}}})
	return m
}

func (a *api) pool(name, protocol string, members []attrs) attrs {
	return attrs{"name": name, "protocol": protocol, "lb_algorithm": a.target.Provider.Algorithm, "members": members}
}

func fullCreate(a *api) {
	monitored := a.pool("p0", "TCP", a.members(100, 2))
	monitored["healthmonitor"] = attrs{"type": "TCP", "delay": 5, "timeout": 3, "max_retries": 2}
	sticky := a.pool("p1", "UDP", a.members(100, 2))
	sticky["session_persistence"] = attrs{"type": "SOURCE_IP", "persistence_timeout": 60}
	lb := a.balancer(attrs{"vip_address": "10.70.0.51", "listeners": []attrs{
		{
			"name": "l0", "protocol": "TCP", "protocol_port": 80, "default_pool": monitored, "timeout_client_data": 1000,
			"connection_limit": 7,
		},
		{"name": "l1", "protocol": "UDP", "protocol_port": 80, "default_pool": sticky, "tags": []string{a.prefix}},
	}, "pools": []attrs{a.pool("loose", "TCP", a.members(100, 1))}})
	id := rest.Text(lb, "id")
	shown := map[string]int{}
	for _, p := range rest.Docs(lb["pools"]) {
		shown[rest.Text(p, "name")] = len(rest.Docs(p["members"]))
	}
	if diff := cmp.Diff(map[string]int{"p0": 2, "p1": 2, "loose": 1}, shown); diff != "" ||
		len(rest.Docs(lb["listeners"])) != 2 {
		a.t.Errorf("the answer to a full create is %v; pools and their members: %s", lb, diff)
	}
	// (Members of a pool whose health monitor is never made need not be ports.)
	want := map[string]int{"loadbalancer ACTIVE": 1, "listener ACTIVE": 2, "pool ACTIVE": 2, "member ACTIVE": 4}
	if diff := cmp.Diff(want, a.whole(id)); diff != "" {
		a.t.Errorf("after a full create (-want +got): %s", diff)
	}
	loose := a.list("/pools?name=loose&loadbalancer_id=" + id)[0]
	if a.target.Provider.LoosePools {
		loose["provisioning_status"] = a.settled("/pools/"+rest.Text(loose, "id"), "pool")
	}
	if s := rest.Text(loose, "provisioning_status"); (s == "ACTIVE") != a.target.Provider.LoosePools {
		a.t.Errorf("a pool that no listener has became %s", s)
	} else if s != "ACTIVE" {
		a.t.Logf("known: %s leaves a pool of a full create that no listener has %s", a.target.Provider.Name, s)
	}
	for _, l := range a.list("/listeners?loadbalancer_id=" + id) {
		pool, _ := a.must(http.StatusOK, http.MethodGet, "/pools/"+rest.Text(l, "default_pool_id"), nil).Body["pool"].(attrs)
		if rest.Text(rest.Docs(pool["listeners"])[0], "id") != rest.Text(l, "id") ||
			rest.Text(rest.Docs(pool["loadbalancers"])[0], "id") != id || pool["protocol"] != l["protocol"] {
			a.t.Errorf("listener %v has pool %v", l, pool)
		}
		persistence, _ := pool["session_persistence"].(attrs)
		if l["protocol"] == "UDP" &&
			(rest.Text(persistence, "type") != "SOURCE_IP" || rest.Text(persistence, "persistence_timeout") != "60") {
			a.t.Errorf("the session persistence is %v", persistence)
		}
		if l["protocol"] == "TCP" &&
			(rest.Text(l, "timeout_client_data") != "1000" || rest.Text(l, "timeout_member_data") != "50000" ||
				rest.Text(l, "connection_limit") != "7") {
			a.t.Errorf("the listener is %v", l)
		}
		monitor := rest.Text(pool, "healthmonitor_id")
		if (l["protocol"] == "TCP") != (monitor != "") {
			a.t.Errorf("pool %s has the health monitor %q", rest.Text(pool, "name"), monitor)
		}
		if monitor != "" && a.target.Provider.FullMonitors {
			if s := a.settled("/healthmonitors/"+monitor, "healthmonitor"); s != "ACTIVE" {
				a.t.Errorf("the health monitor became %s", s)
			}
		} else if doc, _ := a.do(http.MethodGet, "/healthmonitors/"+monitor,
			nil).Body["healthmonitor"].(attrs); monitor != "" {
			if s := rest.Text(doc, "provisioning_status"); s != "PENDING_CREATE" {
				a.t.Errorf("known difference is no more: %s finished the health monitor of a full create, which is %s",
					a.target.Provider.Name, s)
			}
			a.t.Logf("known: %s leaves the health monitor of a full create PENDING_CREATE", a.target.Provider.Name)
		}
	}
	a.refused(http.StatusBadRequest, "Cannot delete Load Balancer "+id+" - it has children", http.MethodDelete,
		"/loadbalancers/"+id, nil)
	a.remove(id)
	a.refused(http.StatusNotFound, "not found.", http.MethodGet, "/pools/"+rest.Text(rest.Docs(lb["pools"])[0], "id"), nil)
}

func stepByStep(a *api) {
	id := rest.Text(a.balancer(attrs{}), "id")
	l := a.child("/listeners", "listener",
		attrs{"loadbalancer_id": id, "name": a.prefix, "protocol": "TCP", "protocol_port": 80})
	listener := rest.Text(l, "id")
	if s := rest.Text(l, "provisioning_status"); s != "PENDING_CREATE" && s != "ACTIVE" {
		a.t.Errorf("a new listener is %s", s)
	}
	p := a.child("/pools", "pool",
		attrs{"listener_id": listener, "protocol": "TCP", "lb_algorithm": a.target.Provider.Algorithm, "name": a.prefix})
	pool := rest.Text(p, "id")
	a.waitFor(id, "ACTIVE")
	got, _ := a.must(http.StatusOK, http.MethodGet, "/listeners/"+listener, nil).Body["listener"].(attrs)
	if rest.Text(got, "default_pool_id") != pool || rest.Text(rest.Docs(got["loadbalancers"])[0], "id") != id {
		a.t.Errorf("the listener is %v, want default pool %s", got, pool)
	}
	m := a.child("/pools/"+pool+"/members", "member", a.monitored(110))
	a.waitFor(id, "ACTIVE")
	if rest.Text(m, "weight") != "1" || m["backup"] != false || rest.Text(m, "address") != "10.70.0.110" {
		a.t.Errorf("a member is %v", m)
	}
	h := a.child("/healthmonitors", "healthmonitor",
		attrs{"pool_id": pool, "type": "TCP", "delay": 5, "timeout": 3, "max_retries": 2})
	a.waitFor(id, "ACTIVE")
	if rest.Text(h, "max_retries_down") != "3" {
		a.t.Errorf("a health monitor is %v", h)
	}
	if a.target.Provider.Unlocks {
		if s := a.settled("/listeners/"+listener, "listener"); s != "ACTIVE" {
			a.t.Errorf("after a health monitor came the listener became %s", s)
		}
	} else if s := a.states(id); s["listener PENDING_UPDATE"] != 1 {
		a.t.Errorf("known difference is no more: %s unlocked the listener of a health monitor: %v", a.target.Provider.Name, s)
	} else {
		a.t.Logf("known: %s leaves the listener of a changed health monitor PENDING_UPDATE, until something else changes",
			a.target.Provider.Name)
	}
	update := func(path, key string, in attrs) {
		a.t.Helper()
		a.waitFor(id, "ACTIVE")
		a.must(http.StatusOK, http.MethodPut, path, attrs{key: in})
		if s := a.settled(path, key); s != "ACTIVE" {
			a.t.Errorf("after an update of the %s it became %s", key, s)
		}
		doc, _ := a.must(http.StatusOK, http.MethodGet, path, nil).Body[key].(attrs)
		for k, v := range in {
			if fmt.Sprint(doc[k]) != fmt.Sprint(v) {
				a.t.Errorf("after an update %s of the %s is %v, want %v", k, key, doc[k], v)
			}
		}
	}
	update("/listeners/"+listener, "listener", attrs{"timeout_member_data": 60000, "name": "n"})
	update("/pools/"+pool, "pool", attrs{"description": "d"})
	update("/pools/"+pool+"/members/"+rest.Text(m, "id"), "member", attrs{"weight": 5})
	update("/healthmonitors/"+rest.Text(h, "id"), "healthmonitor", attrs{"delay": 7})
	for _, path := range []string{
		"/healthmonitors/" + rest.Text(h, "id"), "/pools/" + pool + "/members/" + rest.Text(m, "id"), "/pools/" + pool,
		"/listeners/" + listener,
	} {
		a.waitFor(id, "ACTIVE")
		a.must(http.StatusNoContent, http.MethodDelete, path, nil)
		if s := a.poll(path, keyOf(path), func(s string) bool { return s == "ERROR" }); s != "gone" {
			a.t.Errorf("%s became %s", path, s)
		}
		if strings.HasPrefix(path, "/pools/"+pool) && !strings.Contains(path, "members") {
			a.waitFor(id, "ACTIVE")
			got, _ := a.must(http.StatusOK, http.MethodGet, "/listeners/"+listener, nil).Body["listener"].(attrs)
			if got["default_pool_id"] != nil {
				a.t.Errorf("after its pool is gone a listener has %v", got["default_pool_id"])
			}
		}
	}
	a.waitFor(id, "ACTIVE")
	a.must(http.StatusNoContent, http.MethodDelete, "/loadbalancers/"+id, nil)
}

// keyOf returns the key of a document from the path of the resource.
func keyOf(path string) string {
	parts := strings.Split(path, "/")
	return strings.TrimSuffix(parts[len(parts)-2], "s")
}

func batches(a *api) {
	lb := a.balancer(attrs{
		"listeners": []attrs{{"protocol": "TCP", "protocol_port": 80, "default_pool": a.pool("p", "TCP", a.members(100, 2))}},
	})
	id, pool := rest.Text(lb, "id"), rest.Text(rest.Docs(lb["pools"])[0], "id")
	a.whole(id)
	at := "/pools/" + pool + "/members"
	put := func(query string, members []attrs, want ...string) {
		a.t.Helper()
		a.must(http.StatusAccepted, http.MethodPut, at+query, attrs{"members": members})
		var got []string
		a.whole(id)
		for _, m := range a.list(at) {
			got = append(got, rest.Text(m, "address")+" "+rest.Text(m, "weight")+" "+rest.Text(m, "provisioning_status"))
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			a.t.Errorf("after PUT members%s (-want +got): %s", query, diff)
		}
	}
	before := rest.Text(a.list(at + "?address=10.70.0.101")[0], "id")
	heavy := a.members(101, 2)
	heavy[0]["weight"] = 9
	put("", heavy, "10.70.0.101 9 ACTIVE", "10.70.0.102 1 ACTIVE")
	if after := rest.Text(a.list(at + "?address=10.70.0.101")[0], "id"); after != before {
		a.t.Errorf("a member that stayed got a new id")
	}
	put("?additive_only=true", a.members(103, 1), "10.70.0.101 9 ACTIVE", "10.70.0.102 1 ACTIVE", "10.70.0.103 1 ACTIVE")
	put("", a.members(101, 1), "10.70.0.101 1 ACTIVE") // what is not said is the default again
	put("", []attrs{})
	a.must(http.StatusAccepted, http.MethodPut, at, attrs{"members": []attrs{}}) // nothing to do: not even a lock
	if s := a.states(id); s["loadbalancer ACTIVE"] != 1 {
		a.t.Errorf("after a batch that changes nothing: %v", s)
	}
	a.refused(http.StatusConflict, "Another member on this pool is already using ip 10.70.0.104 on protocol_port 8080",
		http.MethodPut, at,
		attrs{"members": append(a.members(104, 1), a.members(104, 1)...)})
	if left := a.list(at); len(left) != 0 {
		a.t.Errorf("a refused batch left %v", left)
	}
	// in the VIP's subnet it need not be named
	unnamed := attrs{"members": []attrs{{"address": "10.70.0.120", "protocol_port": 1}}}
	a.must(http.StatusAccepted, http.MethodPut, at, unnamed)
	a.whole(id)
}
