// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/kuryr/raven/test/contract/rest"
)

func conflicts(a *api) {
	n, s := a.network("10.81.0.0/24")
	p := a.port(n,
		attrs{"fixed_ips": []attrs{{"subnet_id": s, "ip_address": "10.81.0.9"}}, "mac_address": "0a:00:00:00:00:01"})
	post := func(status int, kind string, in attrs) {
		a.t.Helper()
		in["network_id"] = n
		a.refused(status, kind, http.MethodPost, "/ports", attrs{"port": in})
	}
	post(http.StatusConflict, "IpAddressAlreadyAllocated",
		attrs{"fixed_ips": []attrs{{"subnet_id": s, "ip_address": "10.81.0.9"}}})
	post(http.StatusConflict, "MacAddressInUse", attrs{"mac_address": p["mac_address"]})
	post(http.StatusBadRequest, "InvalidIpForSubnet",
		attrs{"fixed_ips": []attrs{{"subnet_id": s, "ip_address": "10.82.0.9"}}})
	post(http.StatusBadRequest, "InvalidIpForNetwork", attrs{"fixed_ips": []attrs{{"ip_address": "10.82.0.9"}}})
	a.refused(http.StatusBadRequest, "InvalidInput", http.MethodPost, "/subnets",
		attrs{"subnet": attrs{"network_id": n, "ip_version": 4, "cidr": "10.81.0.128/25"}})
	// the same address and MAC on another network are fine
	n2, s2 := a.network("10.81.0.0/24")
	a.port(n2,
		attrs{"fixed_ips": []attrs{{"subnet_id": s2, "ip_address": "10.81.0.9"}}, "mac_address": "0a:00:00:00:00:01"})
}

func inUse(a *api) {
	n, s := a.network("10.83.0.0/24")
	sg := rest.Text(a.create("security-groups", attrs{"name": a.prefix}), "id")
	p := a.port(n, attrs{"security_groups": []string{sg}})
	a.refused(http.StatusConflict, "SubnetInUse", http.MethodDelete, "/subnets/"+s, nil)
	a.refused(http.StatusConflict, "NetworkInUse", http.MethodDelete, "/networks/"+n, nil)
	a.refused(http.StatusConflict, "SecurityGroupInUse", http.MethodDelete, "/security-groups/"+sg, nil)
	a.must(http.MethodDelete, "/ports/"+rest.Text(p, "id"), nil)
	a.must(http.MethodDelete, "/networks/"+n, nil) // takes its subnet along
	a.refused(http.StatusNotFound, "SubnetNotFound", http.MethodGet, "/subnets/"+s, nil)
}

func revisions(a *api) {
	n, _ := a.network("10.84.0.0/24")
	p := a.port(n, nil)
	at := "/ports/" + rest.Text(p, "id")
	revision := func() int64 { return number(a.must(http.MethodGet, at, nil).Body["port"].(attrs), "revision_number") }
	first := revision()
	name := func(s string) attrs { return attrs{"port": attrs{"name": s}} }
	match := func(n int64) string { return fmt.Sprintf("If-Match: revision_number=%d", n) }
	a.refused(http.StatusPreconditionFailed, "RevisionNumberConstraintFailed", http.MethodPut, at, name(a.prefix+"-x"),
		match(first-1))
	a.must(http.MethodPut, at, name(a.prefix+"-y"), match(first))
	second := revision()
	if second <= first {
		a.t.Errorf("an update brought the revision from %d to %d", first, second)
	}
	a.must(http.MethodPut, at+"/tags/t", nil)
	if third := revision(); third <= second {
		a.t.Errorf("a tag brought the revision from %d to %d", second, third)
	}
	a.refused(http.StatusPreconditionFailed, "RevisionNumberConstraintFailed", http.MethodDelete, at, nil, match(second))
}

// gatewayRevision: the change of a gateway that names the router's revision is refused, however often that is read
// again, and goes without.
func gatewayRevision(a *api) {
	external := a.list("networks", "router:external=true")
	if len(external) == 0 {
		a.t.Skip("there is no external network: no router can have a gateway")
	}
	_, s := a.network("10.89.0.0/24")
	at := "/routers/" + rest.Text(a.create("routers", attrs{"name": a.prefix}), "id")
	a.must(http.MethodPut, at+"/add_router_interface", attrs{"subnet_id": s})
	a.t.Cleanup(func() {
		a.do(http.MethodPut, at, attrs{"router": attrs{"external_gateway_info": nil}})
		a.do(http.MethodPut, at+"/remove_router_interface", attrs{"subnet_id": s})
	})
	read := func() attrs {
		doc, _ := a.must(http.MethodGet, at, nil).Body["router"].(attrs)
		return doc
	}
	gateway := attrs{"router": attrs{"external_gateway_info": attrs{"network_id": external[0]["id"]}}}
	for range 2 {
		now := number(read(), "revision_number")
		a.refused(http.StatusPreconditionFailed, "RevisionNumberConstraintFailed", http.MethodPut, at, gateway,
			fmt.Sprintf("If-Match: revision_number=%d", now))
	}
	a.must(http.MethodPut, at, gateway)
	if info, _ := read()["external_gateway_info"].(attrs); info["network_id"] != external[0]["id"] {
		a.t.Errorf("the gateway is %v", info)
	}
}

func forbidden(a *api) {
	n, _ := a.network("10.85.0.0/24")
	p := a.port(n, nil)
	a.refused(http.StatusForbidden, "PolicyNotAuthorized", http.MethodPut, "/ports/"+rest.Text(p, "id"),
		attrs{"port": attrs{"binding:host_id": "h"}})
	a.refused(http.StatusForbidden, "PolicyNotAuthorized", http.MethodPost, "/ports",
		attrs{"port": attrs{"network_id": n, "binding:host_id": "h"}})
	a.refused(http.StatusForbidden, "PolicyNotAuthorized", http.MethodPost, "/networks",
		attrs{"network": attrs{"name": a.prefix, "shared": true}})
	a.port(n, attrs{"mac_address": "0a:00:00:00:00:02"}) // on its own network a member chooses
}

func errorBodies(a *api) {
	none := uuid.NewString()
	for path, kind := range map[string]string{
		"networks": "NetworkNotFound", "subnets": "SubnetNotFound", "ports": "PortNotFound", "routers": "RouterNotFound",
		"subnetpools": "SubnetPoolNotFound", "floatingips": "FloatingIPNotFound", "security-groups": "SecurityGroupNotFound",
		"security-group-rules": "SecurityGroupRuleNotFound",
	} {
		a.refused(http.StatusNotFound, kind, http.MethodGet, "/"+path+"/"+none, nil)
		a.refused(http.StatusNotFound, kind, http.MethodDelete, "/"+path+"/"+none, nil)
	}
	a.refused(http.StatusNotFound, "NetworkNotFound", http.MethodPost, "/ports", attrs{"port": attrs{"network_id": none}})
	r := a.refused(http.StatusBadRequest, "HTTPBadRequest", http.MethodPost, "/ports",
		attrs{"port": attrs{"network_id": none, "bogus": 1}})
	if !strings.Contains(r.Text, "Unrecognized attribute(s) 'bogus'") {
		a.t.Errorf("an unknown attribute gave %s", r)
	}
	r = a.refused(http.StatusBadRequest, "HTTPBadRequest", http.MethodPost, "/ports", attrs{"port": attrs{"name": "x"}})
	if !strings.Contains(r.Text, "network_id") {
		a.t.Errorf("a missing attribute gave %s", r)
	}
	a.refused(http.StatusBadRequest, "InvalidInput", http.MethodPost, "/ports",
		attrs{"port": attrs{"network_id": none, "admin_state_up": "perhaps"}})
	a.refused(http.StatusBadRequest, "HTTPBadRequest", http.MethodPost, "/ports",
		attrs{"port": attrs{"network_id": "none"}})
	if r := a.do(http.MethodGet, "/ports", nil, "X-Auth-Token: none"); r.Status != http.StatusUnauthorized {
		a.t.Errorf("without a token: %s, want 401", r)
	}
}

func routerInterfaces(a *api) {
	n, s := a.network("10.86.0.0/24")
	router := rest.Text(a.create("routers", attrs{"name": a.prefix}), "id")
	at := "/routers/" + router
	detach := func(body attrs) { a.do(http.MethodPut, at+"/remove_router_interface", body) }
	a.t.Cleanup(func() { detach(attrs{"subnet_id": s}) })
	r := a.must(http.MethodPut, at+"/add_router_interface", attrs{"subnet_id": s})
	made := rest.Text(r.Body, "port_id")
	got, _ := a.must(http.MethodGet, "/ports/"+made, nil).Body["port"].(attrs)
	if !strings.HasPrefix(rest.Text(got, "device_owner"), "network:router_interface") ||
		rest.Text(got, "device_id") != router || fixedIPs(got)[0] != "10.86.0.1" {
		a.t.Errorf("a router interface's port is %v", got)
	}
	a.refused(http.StatusBadRequest, "BadRequest", http.MethodPut, at+"/add_router_interface", attrs{"subnet_id": s})
	a.refused(http.StatusConflict, "RouterInUse", http.MethodDelete, at, nil)
	a.refused(http.StatusConflict, "ServicePortInUse", http.MethodDelete, "/ports/"+made, nil)
	a.refused(http.StatusConflict, "SubnetInUse", http.MethodDelete, "/subnets/"+s, nil)
	a.must(http.MethodPut, at+"/remove_router_interface", attrs{"subnet_id": s})
	a.refused(http.StatusNotFound, "PortNotFound", http.MethodGet, "/ports/"+made, nil)
	a.refused(http.StatusNotFound, "RouterInterfaceNotFoundForSubnet", http.MethodPut, at+"/remove_router_interface",
		attrs{"subnet_id": s})

	// by a port that carries our marks: they survive, and detaching deletes the port
	p := a.port(n, attrs{"fixed_ips": []attrs{{"subnet_id": s, "ip_address": "10.86.0.1"}}, "tags": []string{a.prefix}})
	id := rest.Text(p, "id")
	a.t.Cleanup(func() { detach(attrs{"port_id": id}) })
	a.must(http.MethodPut, at+"/add_router_interface", attrs{"port_id": id})
	if marked := a.list("ports", "tags="+a.prefix); len(marked) != 1 || rest.Text(marked[0], "device_id") != router ||
		rest.Text(marked[0], "name") != a.prefix {
		a.t.Errorf("the marked port of a router interface is %v", marked)
	}
	a.refused(http.StatusConflict, "PortInUse", http.MethodPut, at+"/add_router_interface", attrs{"port_id": id})
	a.must(http.MethodPut, at+"/remove_router_interface", attrs{"port_id": id})
	a.refused(http.StatusNotFound, "PortNotFound", http.MethodGet, "/ports/"+id, nil)
	a.refused(http.StatusNotFound, "RouterInterfaceNotFound", http.MethodPut, at+"/remove_router_interface",
		attrs{"port_id": id})
}

func securityGroups(a *api) {
	g := a.create("security-groups", attrs{"name": a.prefix})
	rules := rest.Docs(g["security_group_rules"])
	if len(rules) != 2 || rules[0]["direction"] != "egress" || rules[1]["direction"] != "egress" {
		a.t.Errorf("a new group has the rules %v, want egress for both versions", rules)
	}
	rule := attrs{"security_group_id": g["id"], "direction": "ingress", "ethertype": "IPv4", "remote_group_id": g["id"]}
	a.create("security-group-rules", rule)
	a.refused(http.StatusConflict, "SecurityGroupRuleExists", http.MethodPost, "/security-group-rules",
		attrs{"security_group_rule": rule})
	a.refused(http.StatusBadRequest, "SecurityGroupRuleParameterConflict", http.MethodPost, "/security-group-rules",
		attrs{
			"security_group_rule": attrs{
				"security_group_id": g["id"], "direction": "ingress", "ethertype": "IPv6", "remote_ip_prefix": "10.0.0.0/8",
			},
		})
	a.refused(http.StatusConflict, "SecurityGroupDefaultAlreadyExists", http.MethodPost, "/security-groups",
		attrs{"security_group": attrs{"name": "default"}})
	again, _ := a.must(http.MethodGet, "/security-groups/"+rest.Text(g, "id"), nil).Body["security_group"].(attrs)
	if len(rest.Docs(again["security_group_rules"])) != 3 ||
		number(again, "revision_number") <= number(g, "revision_number") {
		a.t.Errorf("after a rule was added the group is %v", again)
	}
}

func subnetPools(a *api) {
	pool := rest.Text(a.create("subnetpools",
		attrs{"name": a.prefix, "prefixes": []string{"10.88.0.0/23"}, "default_prefixlen": 24}), "id")
	var ranges []string
	for range 2 {
		n := rest.Text(a.create("networks", attrs{"name": a.prefix}), "id")
		s := a.create("subnets", attrs{"network_id": n, "ip_version": 4, "subnetpool_id": pool})
		ranges = append(ranges, rest.Text(s, "cidr"))
	}
	if ranges[0] == ranges[1] || !strings.HasSuffix(ranges[0], "/24") {
		a.t.Errorf("the pool gave %v", ranges)
	}
	n := rest.Text(a.create("networks", attrs{"name": a.prefix}), "id")
	r := a.do(http.MethodPost, "/subnets", attrs{"subnet": attrs{"network_id": n, "ip_version": 4, "subnetpool_id": pool}})
	if errorTypeOf(r) != "SubnetAllocationError" {
		a.t.Errorf("an exhausted pool gave %s, want SubnetAllocationError", r)
	}
	a.refused(http.StatusBadRequest, "MinPrefixSubnetAllocationError", http.MethodPost, "/subnets",
		attrs{"subnet": attrs{"network_id": n, "ip_version": 4, "subnetpool_id": pool, "prefixlen": 7}})
	a.refused(http.StatusBadRequest, "SubnetPoolDeleteError", http.MethodDelete, "/subnetpools/"+pool, nil)
}
