// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"

	"github.com/google/uuid"

	"github.com/kuryr/raven/test/contract/rest"
)

// external returns the id of a network that floating IPs are of.
func (a *api) external() string {
	a.t.Helper()
	found := a.list("networks", "router:external=true")
	if len(found) == 0 {
		a.t.Skip("there is no external network: no floating IPs")
	}
	return rest.Text(found[0], "id")
}

// way is a network of the project's with a router.
type way struct{ external, network, subnet, router string }

// outside makes a network whose router has its gateway on the external network.
func (a *api) outside(cidr string) way {
	a.t.Helper()
	w := way{external: a.external()}
	w.network, w.subnet = a.network(cidr)
	w.router = rest.Text(a.create("routers",
		attrs{"name": a.prefix, "external_gateway_info": attrs{"network_id": w.external}}), "id")
	a.attach(w.router, w.subnet)
	return w
}

// attach makes a subnet one of a router's until the test ends.
func (a *api) attach(router, subnet string) {
	a.t.Helper()
	a.must(http.MethodPut, "/routers/"+router+"/add_router_interface", attrs{"subnet_id": subnet})
	a.t.Cleanup(func() {
		// which would hold it
		for _, f := range rest.Docs(a.do(http.MethodGet, "/floatingips?router_id="+router, nil).Body["floatingips"]) {
			a.do(http.MethodDelete, floatingAt(f), nil)
		}
		r := a.do(http.MethodPut, "/routers/"+router+"/remove_router_interface", attrs{"subnet_id": subnet})
		if r.Status != http.StatusOK && r.Status != http.StatusNotFound {
			a.t.Errorf("cleaning up: taking subnet %s from router %s: %s", subnet, router, r)
		}
	})
}

// floating makes a floating IP.
func (a *api) floating(external string, more attrs) attrs {
	a.t.Helper()
	in := attrs{"floating_network_id": external}
	maps.Copy(in, more)
	return a.create("floatingips", in)
}

func floatingAt(f attrs) string { return "/floatingips/" + rest.Text(f, "id") }

// floatingNow reads a floating IP.
func (a *api) floatingNow(f attrs) attrs {
	a.t.Helper()
	doc, _ := a.must(http.MethodGet, floatingAt(f), nil).Body["floatingip"].(attrs)
	return doc
}

// refloat changes a floating IP, and returns what the cloud makes of it.
func (a *api) refloat(f, in attrs, headers ...string) attrs {
	a.t.Helper()
	doc, _ := a.must(http.MethodPut, floatingAt(f), attrs{"floatingip": in}, headers...).Body["floatingip"].(attrs)
	return doc
}

// leads checks in the answer of a request, and in what is read after it, where a floating IP leads; without a port,
// nowhere.
func (a *api) leads(answer attrs, port attrs, fixed, router string) {
	a.t.Helper()
	want := attrs{"port_id": nil, "fixed_ip_address": nil, "router_id": nil}
	if port != nil {
		want = attrs{"port_id": port["id"], "fixed_ip_address": fixed, "router_id": router}
	}
	for what, doc := range map[string]attrs{"the answer": answer, "what is read": a.floatingNow(answer)} {
		for name, value := range want {
			if is, there := doc[name]; !there || is != value {
				a.t.Errorf("%s: %s of the floating IP is %v, want %v; it is %v", what, name, is, value, doc)
			}
		}
	}
}

// floatingIPs are made, known again, changed and deleted.
func floatingIPs(a *api) {
	external := a.external()
	mark := "raven:cluster=" + a.prefix + " raven:name=floatingip-4"
	f := a.floating(external, attrs{"description": mark})
	at, address, project := floatingAt(f), rest.Text(f, "floating_ip_address"), rest.Text(f, "project_id")
	if addr, err := netip.ParseAddr(address); err != nil || !addr.Is4() || f["floating_network_id"] != external ||
		f["description"] != mark || project == "" {
		a.t.Errorf("a new floating IP is %v (%v)", f, err)
	}
	a.leads(f, nil, "", "")
	tag := a.prefix + ":name=floatingip-172@24@4@240"
	a.must(http.MethodPut, at+"/tags/"+url.PathEscape(tag), nil)
	a.must(http.MethodPut, at+"/tags/"+url.PathEscape(tag), nil) // twice is no error
	other := a.floating(external, nil)
	both := "id=" + rest.Text(f, "id") + "&id=" + rest.Text(other, "id")
	for query, want := range map[string]int{
		both: 2, both + "&project_id=" + project: 2, both + "&floating_network_id=" + external: 2,
		"floating_ip_address=" + address: 1, "floating_ip_address=" + address + "&project_id=" + project: 1,
		"floating_ip_address=192.0.2.1":       0,
		both + "&port_id=" + uuid.NewString(): 0, both + "&router_id=" + uuid.NewString(): 0,
		"tags=" + url.QueryEscape(tag): 1, both + "&not-tags=" + url.QueryEscape(tag): 1,
	} {
		if got := a.list("floatingips", query); len(got) != want {
			a.t.Errorf("floatingips?%s gave %d, want %d: %v", query, len(got), want, got)
		}
	}
	for _, x := range a.list("floatingips", "id="+rest.Text(f, "id")) {
		if tags := sorted(x["tags"]); x["description"] != mark || len(tags) != 1 || tags[0] != tag ||
			x["floating_ip_address"] != address {
			a.t.Errorf("in a list the floating IP is %v", x)
		}
	}
	a.floatingPages(both)

	now := number(a.floatingNow(f), "revision_number")
	match := func(n int64) string { return fmt.Sprintf("If-Match: revision_number=%d", n) }
	text2 := attrs{"description": "raven:found " + mark}
	a.refused(http.StatusPreconditionFailed, "RevisionNumberConstraintFailed", http.MethodPut, at,
		attrs{"floatingip": text2}, match(now-1))
	if doc := a.refloat(f, text2, match(now)); doc["description"] != text2["description"] ||
		doc["floating_ip_address"] != address || number(doc, "revision_number") <= now {
		a.t.Errorf("with a new description the floating IP is %v, and was of revision %d", doc, now)
	}
	a.must(http.MethodDelete, at+"/tags/"+url.PathEscape(tag), nil)
	if doc := a.floatingNow(f); len(sorted(doc["tags"])) != 0 || doc["description"] != text2["description"] {
		a.t.Errorf("after its tag was removed the floating IP is %v", doc)
	}
	a.must(http.MethodDelete, at, nil)
	a.refused(http.StatusNotFound, "FloatingIPNotFound", http.MethodGet, at, nil)
	a.refused(http.StatusNotFound, "FloatingIPNotFound", http.MethodPut, at, attrs{"floatingip": text2})

	network := rest.Text(a.create("networks", attrs{"name": a.prefix}), "id")
	for _, bad := range []struct {
		status    int
		errorType string
		in        attrs
	}{
		{http.StatusBadRequest, "BadRequest", attrs{"floating_network_id": network}}, // which is not external
		{http.StatusNotFound, "NetworkNotFound", attrs{"floating_network_id": uuid.NewString()}},
		{http.StatusBadRequest, "HTTPBadRequest", attrs{"description": mark}},
	} {
		a.refused(bad.status, bad.errorType, http.MethodPost, "/floatingips", attrs{"floatingip": bad.in})
	}
}

// floatingPages reads two floating IPs page by page, each from where the last one ended.
func (a *api) floatingPages(query string) {
	a.t.Helper()
	seen := map[string]int{}
	for marker, pages := "", 0; pages < 5; pages++ {
		r := a.must(http.MethodGet, "/floatingips?limit=1&"+query+marker, nil)
		got := rest.Docs(r.Body["floatingips"])
		for _, f := range got {
			seen[rest.Text(f, "id")]++
			marker = "&marker=" + rest.Text(f, "id")
		}
		next := slices.ContainsFunc(rest.Docs(r.Body["floatingips_links"]), func(l attrs) bool { return l["rel"] == "next" })
		if len(got) == 0 || !next {
			break
		}
	}
	if len(seen) != 2 {
		a.t.Errorf("the pages of two floating IPs had %v", seen)
	}
	for id, times := range seen {
		if times != 1 {
			a.t.Errorf("floating IP %s came %d times", id, times)
		}
	}
}

// floatingAddresses are asked for: by a member never, by an administrator for the member's project, which then has
// the floating IP as its own.
func floatingAddresses(a *api) {
	external := a.external()
	first := a.floating(external, nil)
	address, project := rest.Text(first, "floating_ip_address"), rest.Text(first, "project_id")
	a.must(http.MethodDelete, floatingAt(first), nil) // so that it is free
	ask := attrs{"floating_network_id": external, "floating_ip_address": address}
	body := attrs{"floatingip": ask}
	a.refused(http.StatusForbidden, "PolicyNotAuthorized", http.MethodPost, "/floatingips", body)
	if a.target.Admin == nil {
		a.t.Log("no administrator is known (RAVEN_CONTRACT_ADMIN_CLOUD): no test can ask for an address")
		return
	}
	admin := "X-Auth-Token: " + a.target.Admin.Token()
	ask["project_id"] = project
	made := func() attrs {
		a.t.Helper()
		doc, _ := a.must(http.MethodPost, "/floatingips", body, admin).Body["floatingip"].(attrs)
		a.deleteLater("floatingips", rest.Text(doc, "id"))
		if doc["floating_ip_address"] != address || doc["project_id"] != project {
			a.t.Errorf("asked for %v, the floating IP is %v", ask, doc)
		}
		return doc
	}
	f := made()
	a.refused(http.StatusConflict, "IpAddressAlreadyAllocated", http.MethodPost, "/floatingips", body, admin)
	found := a.list("floatingips", "floating_ip_address="+address+"&project_id="+project)
	if len(found) != 1 || found[0]["id"] != f["id"] {
		a.t.Fatalf("by its address the project finds %v, want %s", found, rest.Text(f, "id"))
	}
	a.refloat(f, attrs{"description": a.prefix}) // which takes it
	a.must(http.MethodPut, floatingAt(f)+"/tags/"+a.prefix, nil)
	a.must(http.MethodDelete, floatingAt(f), nil)
	made() // the address is free again
}

// floatingRanges: an address that is asked for is one of the network's, and of the subnet's where one is named. A
// member may name a subnet.
func floatingRanges(a *api) {
	external := a.external()
	if a.target.Admin == nil {
		a.t.Log("no administrator is known (RAVEN_CONTRACT_ADMIN_CLOUD): no test sees the subnets of the external network")
		return
	}
	admin := "X-Auth-Token: " + a.target.Admin.Token()
	address := rest.Text(a.floating(external, nil), "floating_ip_address")
	subnets := rest.Docs(a.must(http.MethodGet, "/subnets?ip_version=4&network_id="+external, nil, admin).Body["subnets"])
	within := func(address string) (attrs, bool) {
		addr, err := netip.ParseAddr(address)
		i := slices.IndexFunc(subnets, func(s attrs) bool {
			cidr, cerr := netip.ParsePrefix(rest.Text(s, "cidr"))
			return err == nil && cerr == nil && cidr.Contains(addr)
		})
		if i < 0 {
			return nil, false
		}
		return subnets[i], true
	}
	far := slices.DeleteFunc([]string{"203.0.113.77", "198.51.100.77", "192.0.2.77"}, func(s string) bool {
		_, in := within(s)
		return in
	})[0]
	subnet, known := within(address)
	if !known {
		a.t.Fatalf("%s is in none of the external network's subnets %v", address, subnets)
	}
	ask := attrs{"floating_network_id": external, "floating_ip_address": far}
	body := attrs{"floatingip": ask}
	a.refused(http.StatusBadRequest, "InvalidIpForNetwork", http.MethodPost, "/floatingips", body, admin)
	ask["subnet_id"] = subnet["id"]
	a.refused(http.StatusBadRequest, "InvalidIpForSubnet", http.MethodPost, "/floatingips", body, admin)

	in := a.floating(external, attrs{"subnet_id": subnet["id"]})
	if s, known := within(rest.Text(in, "floating_ip_address")); !known || s["id"] != subnet["id"] {
		a.t.Errorf("asked for subnet %v, the floating IP is %v", subnet, in)
	}
	_, own := a.network("10.73.0.0/24")
	delete(ask, "floating_ip_address")
	ask["subnet_id"] = own
	a.refused(http.StatusBadRequest, "InvalidInput", http.MethodPost, "/floatingips", body)
	ask["subnet_id"] = uuid.NewString()
	a.refused(http.StatusNotFound, "SubnetNotFound", http.MethodPost, "/floatingips", body)
}

// floatingQuota: floating IPs have a limit of their own; what is over it leaves nothing.
func floatingQuota(a *api) {
	external := a.external()
	f := a.floating(external, nil)
	project := rest.Text(f, "project_id")
	if a.target.Admin == nil {
		a.t.Log("no administrator is known (RAVEN_CONTRACT_ADMIN_CLOUD): quotas are not met")
		return
	}
	limit, used := a.limited(project, "floatingip")
	if used < 1 {
		a.t.Fatalf("%d floating IPs are used of the quota, want one at least", used)
	}
	body := attrs{"floatingip": attrs{"floating_network_id": external}}
	limit(used)
	r := a.refused(http.StatusConflict, "OverQuota", http.MethodPost, "/floatingips", body)
	if e, _ := r.Body["NeutronError"].(attrs); e["message"] != "Quota exceeded for resources: ['floatingip']." {
		a.t.Errorf("over quota gave %s", r)
	}
	if now := a.list("floatingips", "project_id="+project); int64(len(now)) != used {
		a.t.Errorf("what was over quota has brought the floating IPs from %d to %d", used, len(now))
	}
	limit(used + 1)
	a.floating(external, nil)
	a.refused(http.StatusConflict, "OverQuota", http.MethodPost, "/floatingips", body)
}
