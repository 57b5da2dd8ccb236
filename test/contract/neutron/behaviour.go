// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/test/contract/rest"
)

// Run runs the whole suite against a cloud.
func Run(t *testing.T, target Target) {
	tests := []struct {
		name string
		run  func(*api)
	}{
		{"creation", creation},
		{"addresses", addresses},
		{"bulk is atomic", bulk},
		{"tags", tags},
		{"marks", marks},
		{"filters", filters},
		{"pagination", pagination},
		{"conflicts", conflicts},
		{"in use", inUse},
		{"revisions", revisions},
		{"the revision of a router whose gateway changes", gatewayRevision},
		{"what a member may not", forbidden},
		{"error bodies", errorBodies},
		{"router interfaces", routerInterfaces},
		{"security groups", securityGroups},
		{"security groups without default rules", bareGroups},
		{"security groups that rules of others name", remoteGroups},
		{"the quota of security group rules", ruleQuota},
		{"subnet pools", subnetPools},
		{"floating IPs", floatingIPs},
		{"addresses of floating IPs", floatingAddresses},
		{"ranges of floating IPs", floatingRanges},
		{"ports of floating IPs", floatingPorts},
		{"a floating IP and a port with two addresses", floatingFixed},
		{"states of floating IPs", floatingStates},
		{"floating IPs hold their router", floatingHolds},
		{"quotas", quotas},
		{"the quota of floating IPs", floatingQuota},
		{"tokens", tokens},
		{"catalog", catalog},
		{"known differences", knownDifferences},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.run(newAPI(t, target)) })
	}
}

func creation(a *api) {
	n := a.create("networks", attrs{"name": a.prefix, "description": "d"})
	if n["status"] != "ACTIVE" || n["admin_state_up"] != true || n["shared"] != false || n["description"] != "d" {
		a.t.Errorf("network is %v", n)
	}
	for _, key := range []string{"created_at", "updated_at", "project_id", "tenant_id"} {
		if rest.Text(n, key) == "" {
			a.t.Errorf("network has no %s", key)
		}
	}
	s := a.create("subnets", attrs{"network_id": n["id"], "ip_version": 4, "cidr": "10.91.0.0/24"})
	if s["gateway_ip"] != "10.91.0.1" || s["enable_dhcp"] != true {
		a.t.Errorf("subnet is %v", s)
	}
	pools := rest.Docs(s["allocation_pools"])
	if len(pools) != 1 || pools[0]["start"] != "10.91.0.2" || pools[0]["end"] != "10.91.0.254" {
		a.t.Errorf("allocation pools are %v", pools)
	}
	p := a.port(rest.Text(n, "id"), attrs{"device_owner": "compute:kuryr", "description": "x"})
	if p["status"] != "DOWN" || rest.Text(p, "mac_address") == "" || len(fixedIPs(p)) != 1 ||
		p["device_owner"] != "compute:kuryr" {
		a.t.Errorf("port is %v", p)
	}
	if groups, _ := p["security_groups"].([]any); len(groups) != 1 {
		a.t.Errorf("port has security groups %v, want the project's default one", p["security_groups"])
	}
	if _, shown := p["binding:host_id"]; shown {
		a.t.Error("a member sees binding:host_id")
	}
	a.must(http.MethodDelete, "/ports/"+rest.Text(p, "id"), nil)
	a.refused(http.StatusNotFound, "PortNotFound", http.MethodGet, "/ports/"+rest.Text(p, "id"), nil)
}

func addresses(a *api) {
	n, s := a.network("10.92.0.0/29") // .2 to .6 are free
	bare := rest.Text(a.create("networks", attrs{"name": a.prefix}), "id")
	if ips := fixedIPs(a.port(bare, nil)); len(ips) != 0 {
		a.t.Errorf("on a network without subnets a port got %v", ips)
	}
	asked := a.port(n, attrs{"fixed_ips": []attrs{{"subnet_id": s, "ip_address": "10.92.0.1"}}})
	if diff := cmp.Diff([]string{"10.92.0.1"}, fixedIPs(asked)); diff != "" {
		a.t.Errorf("the gateway's address can be asked for: %s", diff)
	}
	seen := map[string]bool{}
	for range 5 {
		for _, ip := range fixedIPs(a.port(n, nil)) {
			seen[ip] = true
		}
	}
	if len(seen) != 5 {
		a.t.Errorf("five ports got the addresses %v", seen)
	}
	a.refused(http.StatusConflict, "IpAddressGenerationFailure", http.MethodPost, "/ports",
		attrs{"port": attrs{"network_id": n}})
	more := rest.Text(a.create("subnets",
		attrs{"network_id": n, "ip_version": 4, "cidr": "10.92.1.0/29", "enable_dhcp": false}), "id")
	p := a.port(n, nil)
	if ips := fixedIPs(p); len(ips) != 1 || !strings.HasPrefix(ips[0], "10.92.1.") {
		a.t.Errorf("with a second subnet %s a port got %v", more, ips)
	}
	a.create("subnets", attrs{"network_id": n, "ip_version": 6, "cidr": "fd91::/64"})
	if ips := fixedIPs(a.port(n, nil)); len(ips) != 2 {
		a.t.Errorf("with a subnet of each version a port got %v", ips)
	}
}

func bulk(a *api) {
	n, s := a.network("10.93.0.0/24")
	a.port(n, attrs{"fixed_ips": []attrs{{"subnet_id": s, "ip_address": "10.93.0.50"}}})
	name := a.prefix + "-bulk"
	many := []attrs{
		{"network_id": n, "name": name}, {"network_id": n, "name": name, "fixed_ips": []attrs{{"ip_address": "10.93.0.50"}}},
	}
	a.refused(http.StatusConflict, "IpAddressAlreadyAllocated", http.MethodPost, "/ports", attrs{"ports": many})
	if left := a.list("ports", "name="+name); len(left) != 0 {
		a.t.Errorf("a failed bulk left %d ports", len(left))
	}
	delete(many[1], "fixed_ips")
	r := a.must(http.MethodPost, "/ports", attrs{"ports": many})
	for _, p := range rest.Docs(r.Body["ports"]) {
		a.deleteLater("ports", rest.Text(p, "id"))
	}
	if left := a.list("ports", "name="+name); len(left) != 2 || r.Status != http.StatusCreated {
		a.t.Errorf("a bulk of two gave %d and left %d ports", r.Status, len(left))
	}
	r = a.must(http.MethodPost, "/networks", attrs{"networks": []attrs{{"name": name}, {"name": name}}})
	nets := rest.Docs(r.Body["networks"])
	subnets := make([]attrs, 0, len(nets))
	for i, x := range nets {
		a.deleteLater("networks", rest.Text(x, "id"))
		subnets = append(subnets, attrs{"network_id": x["id"], "ip_version": 4, "cidr": fmt.Sprintf("10.94.%d.0/24", i)})
	}
	if r = a.must(http.MethodPost, "/subnets", attrs{"subnets": subnets}); len(rest.Docs(r.Body["subnets"])) != 2 {
		a.t.Errorf("a bulk of two subnets gave %s", r)
	}
	sg := rest.Text(a.create("security-groups", attrs{"name": a.prefix}), "id")
	rule := func(port int) attrs {
		return attrs{
			"security_group_id": sg, "direction": "ingress", "ethertype": "IPv4", "protocol": "tcp", "port_range_min": port,
			"port_range_max": port,
		}
	}
	a.must(http.MethodPost, "/security-group-rules", attrs{"security_group_rules": []attrs{rule(80), rule(81)}})
	a.refused(http.StatusConflict, "SecurityGroupRuleExists", http.MethodPost, "/security-group-rules",
		attrs{"security_group_rules": []attrs{rule(82), rule(80)}})
	other := rule(83)
	other["security_group_id"] = rest.Text(a.create("security-groups", attrs{"name": a.prefix}), "id")
	a.refused(http.StatusBadRequest, "SecurityGroupNotSingleGroupRules", http.MethodPost, "/security-group-rules",
		attrs{"security_group_rules": []attrs{rule(82), other}})
	if rules := a.list("security-group-rules", "direction=ingress&security_group_id="+sg); len(rules) != 2 {
		a.t.Errorf("after a failed bulk the group has %d ingress rules, want 2", len(rules))
	}
}

func tags(a *api) {
	a.refused(http.StatusBadRequest, "HTTPBadRequest", http.MethodPost, "/networks",
		attrs{"network": attrs{"name": a.prefix, "tags": []string{"x"}}})
	n, _ := a.network("10.95.0.0/24")
	own := func(s string) string { return a.prefix + ":" + s }
	p := a.port(n, attrs{"tags": []string{own("a"), own("k=v")}})
	if diff := cmp.Diff([]any{own("a"), own("k=v")}, sorted(p["tags"])); diff != "" {
		a.t.Errorf("tags given with a port's create: %s", diff)
	}
	at := "/networks/" + n + "/tags"
	one := func(s string) string { return at + "/" + url.PathEscape(own(s)) }
	if r := a.must(http.MethodPut, at, attrs{"tags": []string{own("b"), own("c")}}); len(sorted(r.Body["tags"])) != 2 {
		a.t.Errorf("PUT of tags gave %s", r)
	}
	if r := a.must(http.MethodPut, one("d e"), nil); r.Status != http.StatusCreated {
		a.t.Errorf("PUT of a tag gave %s, want 201", r)
	}
	a.must(http.MethodPut, one("d e"), nil) // twice is no error
	if r := a.must(http.MethodGet, at, nil); !cmp.Equal([]any{own("b"), own("c"), own("d e")}, sorted(r.Body["tags"])) {
		a.t.Errorf("tags are %s", r)
	}
	a.must(http.MethodGet, one("b"), nil)
	a.must(http.MethodDelete, one("b"), nil)
	a.refused(http.StatusNotFound, "TagNotFound", http.MethodDelete, one("b"), nil)
	for query, want := range map[string]int{
		"tags=" + own("c"): 1, "tags=" + own("c") + "," + url.QueryEscape(own("d e")): 1,
		"tags=" + own("c") + "," + own("zz"):     0,
		"tags-any=" + own("c") + "," + own("zz"): 1, "not-tags=" + own("c") + "&id=" + n: 0,
	} {
		if got := a.list("networks", query); len(got) != want {
			a.t.Errorf("networks?%s gave %d, want %d", query, len(got), want)
		}
	}
	a.must(http.MethodDelete, at, nil)
	if r := a.must(http.MethodGet, at, nil); len(sorted(r.Body["tags"])) != 0 {
		a.t.Errorf("after DELETE of all tags there are %s", r)
	}
	// How long a tag may be depends on the release: 60 characters do always, 256 never.
	if r := a.do(http.MethodPut, at+"/"+strings.Repeat("x", 256), nil); r.Status != http.StatusBadRequest {
		a.t.Errorf("a tag of 256 characters gave %s, want 400", r)
	}
	a.must(http.MethodPut, at+"/"+strings.Repeat("x", 60), nil)
}

// marks are what resources are known by again: the description of every kind, found by it, and tags with what Raven's
// hold.
func marks(a *api) {
	text1 := "raven:cluster=" + a.prefix + " raven:name=rif@x"
	tag := a.prefix + ":name=rif@x"
	find := func(collection string, doc attrs) {
		a.t.Helper()
		found := a.list(collection, "description="+url.QueryEscape(text1))
		if doc["description"] != text1 || !slices.ContainsFunc(found, func(x attrs) bool { return x["id"] == doc["id"] }) {
			a.t.Errorf("%s: the description is %q, and by it are found %v", collection, doc["description"], found)
		}
	}
	n := a.create("networks", attrs{"name": a.prefix, "description": text1})
	find("networks", n)
	find("subnets",
		a.create("subnets", attrs{"network_id": n["id"], "ip_version": 4, "cidr": "10.98.0.0/24", "description": text1}))
	find("routers", a.create("routers", attrs{"name": a.prefix, "description": text1}))
	find("subnetpools",
		a.create("subnetpools", attrs{"name": a.prefix, "prefixes": []string{"10.99.0.0/16"}, "description": text1}))
	g := a.create("security-groups", attrs{"name": a.prefix, "description": text1})
	find("security-groups", g)
	find("security-group-rules", a.create("security-group-rules", attrs{
		"security_group_id": g["id"], "direction": "ingress", "ethertype": "IPv4", "description": text1,
	}))
	port := attrs{"network_id": n["id"], "description": text1, "tags": []string{tag}}
	for _, p := range rest.Docs(a.must(http.MethodPost, "/ports", attrs{"ports": []attrs{port, port}}).Body["ports"]) {
		a.deleteLater("ports", rest.Text(p, "id"))
		find("ports", p)
		if diff := cmp.Diff([]any{tag}, p["tags"]); diff != "" {
			a.t.Errorf("tags given with a bulk create: %s", diff)
		}
	}
	if found := a.list("ports", "tags="+url.QueryEscape(tag)); len(found) != 2 {
		a.t.Errorf("by their tag %d ports are found, want 2", len(found))
	}
	at := "/networks/" + rest.Text(n, "id") + "/tags/" + url.PathEscape(tag)
	a.must(http.MethodPut, at, nil)
	if found := a.list("networks", "tags="+url.QueryEscape(tag)); len(found) != 1 {
		a.t.Errorf("by its tag %d networks are found, want 1", len(found))
	}
	a.must(http.MethodDelete, at, nil)
}

func sorted(v any) []any {
	l, _ := v.([]any)
	slices.SortFunc(l, func(x, y any) int { return strings.Compare(fmt.Sprint(x), fmt.Sprint(y)) })
	return l
}

func filters(a *api) {
	n, s := a.network("10.96.0.0/24")
	p := a.port(n, attrs{"description": "one", "device_owner": "compute:kuryr", "device_id": "dev"})
	q := a.port(n, attrs{"name": a.prefix + "-q"})
	mac, ip := rest.Text(p, "mac_address"), fixedIPs(p)[0]
	groups, _ := p["security_groups"].([]any)
	for query, want := range map[string]int{
		"": 2, "name=" + a.prefix: 1, "name=" + a.prefix + "&name=" + a.prefix + "-q": 2, "description=one": 1,
		"device_owner=compute:kuryr": 1,
		"device_id=dev":              1, "mac_address=" + mac: 1, "fixed_ips=ip_address%3D" + ip: 1,
		"fixed_ips=subnet_id%3D" + s:                             2,
		"id=" + rest.Text(p, "id") + "&id=" + rest.Text(q, "id"): 2, "status=DOWN": 2, "admin_state_up=false": 0,
		"project_id=" + rest.Text(p, "project_id"): 2,
		"security_groups=" + fmt.Sprint(groups[0]): 2, "name=nobody": 0,
	} {
		if got := a.list("ports", "network_id="+n+"&"+query); len(got) != want {
			a.t.Errorf("ports?%s gave %d, want %d", query, len(got), want)
		}
	}
	a.refused(http.StatusBadRequest, "HTTPBadRequest", http.MethodGet, "/ports?bogus=1", nil)
	for _, x := range a.list("ports", "fields=id&fields=name&name="+a.prefix+"&network_id="+n) {
		if len(x) != 2 || rest.Text(x, "id") == "" {
			a.t.Errorf("with fields=id&fields=name a port is %v", x)
		}
	}
	if got := a.list("networks", "router:external=true&name="+a.prefix); len(got) != 0 {
		a.t.Errorf("a network of a member is external: %v", got)
	}
}

func pagination(a *api) {
	n, _ := a.network("10.97.0.0/24")
	many := make([]attrs, 0, 5)
	for i := range 5 {
		many = append(many, attrs{"network_id": n, "name": fmt.Sprintf("%s-%d", a.prefix, i), "device_id": a.prefix})
	}
	for _, p := range rest.Docs(a.must(http.MethodPost, "/ports", attrs{"ports": many}).Body["ports"]) {
		a.deleteLater("ports", rest.Text(p, "id"))
	}
	seen := map[string]bool{}
	next := a.target.Network.Endpoint + "v2.0/ports?limit=2&device_id=" + a.prefix + "&network_id=" + n
	for pages := 0; next != "" && pages < 10; pages++ {
		r := a.request(http.MethodGet, next, nil)
		got := rest.Docs(r.Body["ports"])
		if len(got) > 2 {
			a.t.Errorf("a page of 2 has %d", len(got))
		}
		for _, p := range got {
			if seen[rest.Text(p, "id")] {
				a.t.Errorf("port %s came twice", rest.Text(p, "id"))
			}
			seen[rest.Text(p, "id")] = true
		}
		next = ""
		for _, l := range rest.Docs(r.Body["ports_links"]) {
			if l["rel"] == "next" {
				next = rest.Text(l, "href")
			}
		}
	}
	if len(seen) != 5 {
		a.t.Errorf("the pages had %d ports, want 5", len(seen))
	}
	sortedDown := a.list("ports", "sort_key=name&sort_dir=desc&network_id="+n)
	if len(sortedDown) != 5 || rest.Text(sortedDown[0], "name") != a.prefix+"-4" {
		a.t.Errorf("sorted by name downwards: %v first", sortedDown[0]["name"])
	}
}
