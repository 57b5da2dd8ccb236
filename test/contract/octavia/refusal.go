// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/kuryr/raven/test/contract/rest"
)

func lists(a *api) {
	name := a.prefix + "-lists"
	lb := a.balancer(attrs{
		"name": name, "description": a.prefix + " d", "tags": []string{a.prefix + ":t", a.prefix + ":k=v"},
		"vip_address": "10.70.0.60",
		"listeners": []attrs{
			{"name": name, "protocol": "TCP", "protocol_port": 80, "default_pool": a.pool("p", "TCP", a.members(100, 1))},
		},
	})
	id, pool := rest.Text(lb, "id"), rest.Text(rest.Docs(lb["pools"])[0], "id")
	a.whole(id)
	for query, want := range map[string]int{
		"name=" + name: 1, "name=" + name + "x": 0, "id=" + id: 1, "vip_address=10.70.0.60&name=" + name: 1,
		"vip_subnet_id=" + a.subnet + "&name=" + name: 1,
		"vip_port_id=" + rest.Text(lb, "vip_port_id"): 1, "provider=" + a.target.Provider.Name + "&name=" + name: 1,
		"provisioning_status=ACTIVE&name=" + name: 1,
		"provisioning_status=ERROR&name=" + name:  0, "project_id=" + rest.Text(lb, "project_id") + "&name=" + name: 1,
		"admin_state_up=true&name=" + name: 1,
		"tags=" + a.prefix + ":t":          1, "tags=" + a.prefix + ":t," + a.prefix + ":k%3Dv": 1,
		"tags=" + a.prefix + ":t," + a.prefix + ":zz":     0,
		"tags-any=" + a.prefix + ":t," + a.prefix + ":zz": 1, "not-tags=" + a.prefix + ":t&name=" + name: 0,
		"not-tags-any=" + a.prefix + ":zz&name=" + name: 1,
		"description=" + a.prefix + "%20d":              1,
	} {
		if got := a.list("/loadbalancers?" + query); len(got) != want {
			a.t.Errorf("loadbalancers?%s gave %d, want %d", query, len(got), want)
		}
	}
	for path, want := range map[string]int{
		"/listeners?loadbalancer_id=" + id: 1, "/listeners?loadbalancer_id=" + id + "&protocol_port=80": 1,
		"/listeners?default_pool_id=" + pool:                 1,
		"/listeners?loadbalancer_id=" + id + "&protocol=UDP": 0, "/pools?loadbalancer_id=" + id: 1,
		"/pools?loadbalancer_id=" + id + "&name=q":       0,
		"/pools/" + pool + "/members?protocol_port=8080": 1, "/pools/" + pool + "/members?address=10.70.0.9": 0,
		"/healthmonitors?pool_id=" + pool: 0,
	} {
		if got := a.list(path); len(got) != want {
			a.t.Errorf("%s gave %d, want %d", path, len(got), want)
		}
	}
	for _, x := range a.list("/loadbalancers?fields=id&fields=provisioning_status&name=" + name) {
		if len(x) != 2 || rest.Text(x, "id") != id || rest.Text(x, "provisioning_status") != "ACTIVE" {
			a.t.Errorf("with two fields a load balancer is %v", x)
		}
	}
	invalid := "One or more arguments are either duplicate or invalid"
	a.refused(http.StatusBadRequest, invalid, http.MethodGet, "/loadbalancers?bogus=1", nil)
	a.refused(http.StatusBadRequest, invalid, http.MethodGet, "/pools?listener_id="+id, nil)
	// Neither a filter twice nor a page of nothing may be asked for: Octavia 11 fails on both.
	for _, query := range []string{"id=" + id + "&id=" + id, "limit=0"} {
		if r := a.do(http.MethodGet, "/loadbalancers?"+query, nil); r.Status != http.StatusInternalServerError {
			a.t.Logf("loadbalancers?%s: %s", query, r)
		}
	}
	statusTree(a, id)
}

func statusTree(a *api, id string) {
	for _, path := range []string{"/status", "/statuses"} {
		tree, _ := a.must(http.StatusOK, http.MethodGet, "/loadbalancers/"+id+path, nil).Body["statuses"].(attrs)
		lb, _ := tree["loadbalancer"].(attrs)
		listener := rest.Docs(lb["listeners"])[0]
		pool := rest.Docs(listener["pools"])[0]
		member := rest.Docs(pool["members"])[0]
		for _, x := range []attrs{lb, listener, pool, member} {
			for _, key := range []string{"id", "name", "provisioning_status", "operating_status"} {
				if rest.Text(x, key) == "" {
					a.t.Errorf("%s: no %s in %v", path, key, x)
				}
			}
		}
		if rest.Text(member, "address") != "10.70.0.100" || rest.Text(member, "protocol_port") != "8080" {
			a.t.Errorf("%s: the member is %v", path, member)
		}
	}
	r := a.must(http.StatusOK, http.MethodGet, "/loadbalancers/"+id+"/stats", nil)
	if _, ok := r.Body["stats"].(attrs)["bytes_in"]; !ok {
		a.t.Errorf("stats are %s", r)
	}
}

func pages(a *api) {
	lb := a.balancer(attrs{
		"listeners": []attrs{{"protocol": "TCP", "protocol_port": 80, "default_pool": a.pool("p", "TCP", a.members(100, 5))}},
	})
	a.whole(rest.Text(lb, "id"))
	seen := map[string]bool{}
	at := a.target.Balancing.Endpoint + "v2.0/lbaas/pools/" + rest.Text(rest.Docs(lb["pools"])[0], "id") + "/members"
	next := at + "?limit=2"
	for n := 0; next != "" && n < 10; n++ {
		r := a.request(a.target.Balancing, http.MethodGet, next, nil)
		got := rest.Docs(r.Body["members"])
		if r.Status != http.StatusOK || len(got) > 2 {
			a.t.Fatalf("a page of 2 is %s", r)
		}
		for _, m := range got {
			if seen[rest.Text(m, "id")] {
				a.t.Errorf("member %s came twice", rest.Text(m, "id"))
			}
			seen[rest.Text(m, "id")] = true
		}
		next = ""
		for _, l := range rest.Docs(r.Body["members_links"]) {
			if l["rel"] == "next" {
				next = rest.Text(l, "href")
			}
		}
	}
	if len(seen) != 5 {
		a.t.Errorf("the pages had %d members, want 5", len(seen))
	}
	a.refused(http.StatusBadRequest, "Supplied pagination marker", http.MethodGet,
		"/loadbalancers?marker="+uuid.NewString()+"&limit=1", nil)
	a.refused(http.StatusBadRequest, "Supplied sort key 'bogus' is not valid.", http.MethodGet,
		"/loadbalancers?sort=bogus", nil)
}

func badRequests(a *api) {
	post := func(status int, want string, in attrs) {
		a.t.Helper()
		in["provider"] = a.target.Provider.Name
		a.refused(status, want, http.MethodPost, "/loadbalancers", attrs{"loadbalancer": in})
	}
	none := uuid.NewString()
	post(http.StatusBadRequest, "VIP must contain one of", attrs{"name": "x"})
	post(http.StatusBadRequest, "Subnet "+none+" not found.", attrs{"vip_subnet_id": none})
	post(http.StatusBadRequest, "Network "+none+" not found.", attrs{"vip_network_id": none})
	post(http.StatusBadRequest, "Port "+none+" not found.", attrs{"vip_port_id": none})
	post(http.StatusBadRequest, "vip_subnet_id", attrs{"vip_subnet_id": "none"})
	post(http.StatusBadRequest, "vip_address", attrs{"vip_subnet_id": a.subnet, "vip_address": "10.70.0"})
	post(http.StatusBadRequest, "Unknown attribute", attrs{"vip_subnet_id": a.subnet, "bogus": 1})
	post(http.StatusBadRequest, "name", attrs{"vip_subnet_id": a.subnet, "name": strings.Repeat("x", 256)})
	post(http.StatusBadRequest, "flavor_id", attrs{"vip_subnet_id": a.subnet, "flavor_id": none})
	post(http.StatusBadRequest, "Invalid availability zone.",
		attrs{"vip_subnet_id": a.subnet, "availability_zone": a.prefix})
	a.refused(http.StatusBadRequest, "is not enabled.", http.MethodPost, "/loadbalancers",
		attrs{"loadbalancer": attrs{"vip_subnet_id": a.subnet, "provider": "unicorn"}})
	for path, name := range map[string]string{
		"/loadbalancers/": "Load Balancer", "/listeners/": "Listener", "/pools/": "Pool",
		"/healthmonitors/": "Health Monitor",
	} {
		a.refused(http.StatusNotFound, name+" "+none+" not found.", http.MethodGet, path+none, nil)
		a.refused(http.StatusNotFound, name+" "+none+" not found.", http.MethodDelete, path+none, nil)
	}
	a.refused(http.StatusNotFound, "", http.MethodGet, "/flavors/"+none, nil)
	a.refused(http.StatusNotFound, "", http.MethodGet, "/availabilityzones/"+a.prefix, nil)
	a.refused(http.StatusNotFound, "Pool "+none+" not found.", http.MethodGet, "/pools/"+none+"/members", nil)
	a.refused(http.StatusNotFound, "Pool "+none+" not found.", http.MethodPut, "/pools/"+none+"/members",
		attrs{"members": []attrs{}})
	a.refused(http.StatusNotFound, "Load Balancer "+none+" not found.", http.MethodPost, "/listeners",
		attrs{"listener": attrs{"loadbalancer_id": none, "protocol": "TCP", "protocol_port": 80}})
	a.refused(http.StatusBadRequest, "Must provide at least one of: loadbalancer_id, listener_id", http.MethodPost,
		"/pools",
		attrs{"pool": attrs{"protocol": "TCP", "lb_algorithm": a.target.Provider.Algorithm}})
	req := a.do(http.MethodGet, "/loadbalancers/"+none+"/unicorn", nil)
	if req.Status != http.StatusNotFound {
		a.t.Errorf("an unknown path gave %s", req)
	}
}

func conflicts(a *api) {
	lb := a.balancer(attrs{
		"listeners": []attrs{{"protocol": "TCP", "protocol_port": 80, "default_pool": a.pool("p", "TCP", a.members(100, 1))}},
	})
	id, pool, listener := rest.Text(lb, "id"), rest.Text(rest.Docs(lb["pools"])[0],
		"id"), rest.Text(rest.Docs(lb["listeners"])[0], "id")
	a.whole(id)
	a.refused(http.StatusConflict, "is already using protocol TCP and protocol_port 80", http.MethodPost, "/listeners",
		attrs{"listener": attrs{"loadbalancer_id": id, "protocol": "TCP", "protocol_port": 80}})
	a.refused(http.StatusConflict, "Another member on this pool is already using ip 10.70.0.100 on protocol_port 8080",
		http.MethodPost,
		"/pools/"+pool+"/members", attrs{"member": a.members(100, 1)[0]})
	a.refused(http.StatusConflict, "This listener already has a default pool", http.MethodPost, "/pools",
		attrs{"pool": attrs{"listener_id": listener, "protocol": "TCP", "lb_algorithm": a.target.Provider.Algorithm}})
	a.refused(http.StatusBadRequest, "The pool protocol 'UDP' is invalid while the listener protocol is 'TCP'.",
		http.MethodPost, "/pools",
		attrs{"pool": attrs{"listener_id": listener, "protocol": "UDP", "lb_algorithm": a.target.Provider.Algorithm}})
	member := func(status int, want string, in attrs) {
		a.t.Helper()
		a.refused(status, want, http.MethodPost, "/pools/"+pool+"/members", attrs{"member": in})
	}
	member(http.StatusBadRequest, "Subnet",
		attrs{"address": "10.70.0.105", "protocol_port": 80, "subnet_id": uuid.NewString()})
	member(http.StatusBadRequest, "weight", attrs{"address": "10.70.0.105", "protocol_port": 80, "weight": 257})
	member(http.StatusBadRequest, "protocol_port", attrs{"address": "10.70.0.105", "protocol_port": 0})
	member(http.StatusBadRequest, "address", attrs{"address": "10.70.0", "protocol_port": 80})
	member(http.StatusBadRequest, "Mandatory field missing", attrs{"address": "10.70.0.105"})
	a.refused(http.StatusBadRequest, "Unknown attribute", http.MethodPut, "/listeners/"+listener,
		attrs{"listener": attrs{"protocol_port": 81}})
	a.refused(http.StatusBadRequest, "persistence_timeout and persistence_granularity is only for UDP", http.MethodPut,
		"/pools/"+pool,
		attrs{"pool": attrs{"session_persistence": attrs{"type": "SOURCE_IP", "persistence_timeout": 5}}})
	if s := a.states(id); s["loadbalancer ACTIVE"] != 1 {
		a.t.Errorf("after refused requests: %v", s)
	}
	a.neutron("ports",
		attrs{"network_id": a.net, "fixed_ips": []attrs{{"subnet_id": a.subnet, "ip_address": "10.70.0.100"}}})
	monitor := attrs{"pool_id": pool, "type": "TCP", "delay": 5, "timeout": 3, "max_retries": 2}
	a.child("/healthmonitors", "healthmonitor", monitor)
	a.waitFor(id, "ACTIVE")
	a.refused(http.StatusConflict, "This pool already has a health monitor", http.MethodPost, "/healthmonitors",
		attrs{"healthmonitor": monitor})
}

// leaks is how many refused creates of badFullCreates leave their VIP port behind, which Octavia 11 does with either
// provider.
const leaks = 6

func badFullCreates(a *api) {
	listener := func(pool attrs) []attrs {
		return []attrs{{"protocol": "TCP", "protocol_port": 80, "default_pool": pool}}
	}
	unnamed := a.pool("p", "TCP", nil)
	delete(unnamed, "name")
	delete(unnamed, "members")
	bare := attrs{"name": "p", "protocol": "TCP", "members": a.members(100, 1)}
	for want, in := range map[string]attrs{
		"Pools must be named when creating a fully populated loadbalancer.": {"listeners": listener(unnamed)},
		"Pool names must be unique when creating a fully populated loadbalancer.": {
			"pools":     []attrs{a.pool("p", "TCP", a.members(100, 1))},
			"listeners": listener(a.pool("p", "TCP", a.members(100, 1))),
		},
		"Pool 'q' was referenced but no full definition was found.": {
			"listeners": listener(attrs{"name": "q"}),
		},
		"Pool definition for 'p' missing required attribute: lb_algorithm": {"listeners": listener(bare)},
		"The pool protocol 'UDP' is invalid while the listener protocol is 'TCP'.": {
			"listeners": listener(a.pool("p", "UDP", a.members(100, 1))),
		},
		"Another member on this pool is already using ip 10.70.0.100 on protocol_port": {
			"listeners": listener(a.pool("p", "TCP", append(a.members(100, 1), a.members(100, 1)...))),
		},
	} {
		in["vip_subnet_id"], in["provider"], in["name"] = a.subnet, a.target.Provider.Name, a.prefix+"-bad"
		status := http.StatusBadRequest
		if strings.HasPrefix(want, "Another member") {
			status = http.StatusConflict
		}
		a.refused(status, want, http.MethodPost, "/loadbalancers", attrs{"loadbalancer": in})
	}
	if left := a.list("/loadbalancers?name=" + a.prefix + "-bad"); len(left) != 0 {
		a.t.Errorf("refused creates left %d load balancers", len(left))
	}
	if left := a.leftPorts(); left != leaks {
		a.t.Errorf("refused full creates left %d VIP ports, known are %d", left, leaks)
	}
	a.t.Logf("known: each of these refused creates leaves its VIP port, with its address, %d in all", leaks)
}

func forbidden(a *api) {
	id := rest.Text(a.balancer(attrs{}), "id")
	a.refused(http.StatusForbidden, "Policy does not allow this request to be performed.", http.MethodPut,
		"/loadbalancers/"+id+"/failover", nil)
	a.refused(http.StatusForbidden, "Policy does not allow this request to be performed.", http.MethodGet,
		"/loadbalancers?project_id="+strings.Repeat("0", 32), nil)
	a.refused(http.StatusForbidden, "Policy does not allow this request to be performed.", http.MethodPut,
		"/quotas/"+a.project(),
		attrs{"quota": attrs{"load_balancer": 1}})
	a.refused(http.StatusForbidden, "", http.MethodGet, "/flavorprofiles/"+uuid.NewString(), nil)
	a.refused(http.StatusForbidden, "", http.MethodGet, "/availabilityzoneprofiles/"+uuid.NewString(), nil)
}

func (a *api) project() string {
	a.t.Helper()
	r := a.request(a.target.Network, http.MethodGet, a.target.Network.Endpoint+"v2.0/networks/"+a.net, nil)
	doc, _ := r.Body["network"].(attrs)
	return rest.Text(doc, "project_id")
}

// quotas sets a quota of one load balancer more than there are, if an administrator is known.
func quotas(a *api) {
	project := a.project()
	q, _ := a.must(http.StatusOK, http.MethodGet, "/quotas/"+project, nil).Body["quota"].(attrs)
	for _, key := range []string{"load_balancer", "listener", "pool", "health_monitor", "member"} {
		if rest.Text(q, key) == "" {
			a.t.Errorf("quotas have no %s: %v", key, q)
		}
	}
	if a.target.Admin == nil {
		a.t.Log("no administrator is known: quotas are read, not met")
		return
	}
	at := a.target.Admin.Endpoint + "v2.0/lbaas/quotas/" + project
	a.t.Cleanup(func() { a.request(a.target.Admin, http.MethodDelete, at, nil) })
	set := func(key string, n int) {
		a.t.Helper()
		if r := a.request(a.target.Admin, http.MethodPut, at,
			attrs{"quota": attrs{key: n}}); r.Status != http.StatusAccepted {
			a.t.Fatalf("setting a quota: %s", r)
		}
	}
	set("load_balancer", 0)
	body := attrs{"loadbalancer": attrs{"name": a.prefix, "vip_subnet_id": a.subnet, "provider": a.target.Provider.Name}}
	a.refused(http.StatusForbidden, "Quota has been met for resources: Load Balancer", http.MethodPost, "/loadbalancers",
		body)
	set("load_balancer", -1)
	set("member", 1)
	body["loadbalancer"].(attrs)["pools"] = []attrs{a.pool("p", "TCP", a.members(100, 2))}
	a.refused(http.StatusForbidden, fmt.Sprintf("Quota has been met for resources: %s", "Member"), http.MethodPost,
		"/loadbalancers", body)
}
