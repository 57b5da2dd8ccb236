// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/kuryr/raven/test/contract/rest"
)

// floatingPorts: where floating IPs may lead, and where not.
func floatingPorts(a *api) {
	w := a.outside("10.71.0.0/24")
	p, q := a.port(w.network, nil), a.port(w.network, nil)
	to := func(port attrs) attrs { return attrs{"port_id": port["id"]} }
	f := a.floating(w.external, to(p))
	a.leads(f, p, fixedIPs(p)[0], w.router)
	g := a.floating(w.external, attrs{"port_id": nil})
	own := "project_id=" + rest.Text(f, "project_id")
	had := len(a.list("floatingips", own))
	refused := func(status int, errorType string, port attrs) {
		a.t.Helper()
		a.refused(status, errorType, http.MethodPut, floatingAt(g), attrs{"floatingip": to(port)})
		a.refused(status, errorType, http.MethodPost, "/floatingips",
			attrs{"floatingip": attrs{"floating_network_id": w.external, "port_id": port["id"]}})
		a.leads(g, nil, "", "")
		if now := a.list("floatingips", own); len(now) != had {
			a.t.Errorf("a create that was refused with %s has brought the floating IPs from %d to %d: %v", errorType, had,
				len(now), now)
		}
	}
	refused(http.StatusConflict, "FloatingIPPortAlreadyAssociated", p)
	refused(http.StatusNotFound, "PortNotFound", attrs{"id": uuid.NewString()})
	// without an address
	refused(http.StatusBadRequest, "BadRequest",
		a.port(rest.Text(a.create("networks", attrs{"name": a.prefix}), "id"), nil))

	// Without a router, and with one that has no gateway there, the external network is out of reach.
	n, s := a.network("10.72.0.0/24")
	far := a.port(n, nil)
	refused(http.StatusNotFound, "ExternalGatewayForFloatingIPNotFound", far)
	router := rest.Text(a.create("routers", attrs{"name": a.prefix}), "id")
	a.attach(router, s)
	refused(http.StatusNotFound, "ExternalGatewayForFloatingIPNotFound", far)
	a.must(http.MethodPut, "/routers/"+router,
		attrs{"router": attrs{"external_gateway_info": attrs{"network_id": w.external}}})
	a.leads(a.refloat(g, to(far)), far, fixedIPs(far)[0], router)

	a.leads(a.refloat(f, to(q)), q, fixedIPs(q)[0], w.router) // from one port to another
	for _, x := range []struct {
		query string
		want  attrs
	}{{"port_id=" + rest.Text(q, "id"), f}, {"router_id=" + w.router, f}, {"router_id=" + router, g}} {
		if got := a.list("floatingips", x.query); len(got) != 1 || got[0]["id"] != x.want["id"] {
			a.t.Errorf("floatingips?%s gave %v, want %s", x.query, got, rest.Text(x.want, "id"))
		}
	}
	// a description alone leaves that as it is
	a.leads(a.refloat(f, attrs{"description": a.prefix}), q, fixedIPs(q)[0], w.router)
	a.leads(a.refloat(f, attrs{"port_id": nil, "fixed_ip_address": nil}), nil, "", "")
	a.leads(a.refloat(f, attrs{"port_id": nil}), nil, "", "") // twice is no error
	a.leads(a.refloat(g, to(p)), p, fixedIPs(p)[0], w.router) // it is free
}

// floatingFixed: of a port with two addresses one has to be named, in each change.
func floatingFixed(a *api) {
	w := a.outside("10.74.0.0/24")
	two := a.port(w.network, attrs{"fixed_ips": []attrs{{"subnet_id": w.subnet}, {"subnet_id": w.subnet}}})
	ips := fixedIPs(two)
	if len(ips) != 2 {
		a.t.Fatalf("the port has the addresses %v, want two", ips)
	}
	to := func(ip string) attrs { return attrs{"port_id": two["id"], "fixed_ip_address": ip} }
	refused := func(f, in attrs, saying string) {
		a.t.Helper()
		r := a.refused(http.StatusBadRequest, "BadRequest", http.MethodPut, floatingAt(f), attrs{"floatingip": in})
		if !strings.Contains(r.Text, saying) {
			a.t.Errorf("%v is refused with %s, want %q in it", in, r, saying)
		}
	}
	f, g := a.floating(w.external, nil), a.floating(w.external, nil)
	refused(f, attrs{"port_id": two["id"]}, "multiple fixed IPv4 addresses")
	refused(f, to("10.74.0.250"), "does not have fixed ip")
	refused(f, attrs{"fixed_ip_address": ips[0]}, "without a port_id")
	a.leads(a.refloat(f, to(ips[1])), two, ips[1], w.router)
	a.leads(a.refloat(g, to(ips[0])), two, ips[0], w.router) // one for each
	a.must(http.MethodDelete, floatingAt(g), nil)
	refused(f, attrs{"fixed_ip_address": ips[0]}, "without a port_id") // though it has one
	refused(f, attrs{"description": "x"}, "multiple fixed IPv4 addresses")
	a.leads(a.refloat(f, to(ips[0])), two, ips[0], w.router)
	again := to(ips[0])
	again["description"] = a.prefix
	if doc := a.refloat(f, again); doc["description"] != a.prefix {
		a.t.Errorf("the description is %v", doc["description"])
	}
}

// floatingStates: a floating IP outlives the port it leads to; its state changes after the answer, and its revision
// with it.
func floatingStates(a *api) {
	w := a.outside("10.75.0.0/24")
	p := a.port(w.network, nil)
	f := a.floating(w.external, attrs{"description": a.prefix})
	state := func(want string) attrs {
		a.t.Helper()
		doc := a.floatingNow(f)
		if doc["status"] != want {
			a.t.Errorf("the floating IP is %v, want it %s", doc, want)
		}
		return doc
	}
	match := func(doc attrs) string {
		return fmt.Sprintf("If-Match: revision_number=%d", number(doc, "revision_number"))
	}
	a.must(http.MethodPut, floatingAt(f)+"/tags/"+a.prefix, nil)
	answer := a.refloat(f, attrs{"port_id": p["id"]}, match(state("DOWN")))
	at, next := floatingAt(f), attrs{"floatingip": attrs{"description": a.prefix + " x"}}
	a.refused(http.StatusPreconditionFailed, "RevisionNumberConstraintFailed", http.MethodPut, at, next, match(answer))
	a.must(http.MethodPut, at, next, match(state("ACTIVE")))
	before := number(state("ACTIVE"), "revision_number")
	a.must(http.MethodDelete, "/ports/"+rest.Text(p, "id"), nil)
	a.leads(f, nil, "", "")
	if after := state("DOWN"); number(after, "revision_number") <= before || after["description"] != a.prefix+" x" ||
		after["floating_ip_address"] != f["floating_ip_address"] {
		a.t.Errorf("after its port was deleted the floating IP is %v; its revision was %d", after, before)
	}
}

// floatingHolds: while a floating IP leads through a router, its interface and its gateway stay.
func floatingHolds(a *api) {
	w := a.outside("10.76.0.0/24")
	p := a.port(w.network, nil)
	f := a.floating(w.external, attrs{"port_id": p["id"]})
	at := "/routers/" + w.router
	inner := a.list("ports", "device_id="+w.router+"&network_id="+w.network)
	if len(inner) != 1 {
		a.t.Fatalf("the router's ports on the network are %v", inner)
	}
	none := attrs{"router": attrs{"external_gateway_info": nil}}
	a.refused(http.StatusConflict, "RouterInterfaceInUseByFloatingIP", http.MethodPut, at+"/remove_router_interface",
		attrs{"subnet_id": w.subnet})
	a.refused(http.StatusConflict, "RouterInterfaceInUseByFloatingIP", http.MethodPut, at+"/remove_router_interface",
		attrs{"port_id": inner[0]["id"]})
	a.refused(http.StatusConflict, "RouterExternalGatewayInUseByFloatingIp", http.MethodPut, at, none)
	a.refused(http.StatusConflict, "RouterInUse", http.MethodDelete, at, nil)
	a.leads(f, p, fixedIPs(p)[0], w.router)
	a.leads(a.refloat(f, attrs{"port_id": nil}), nil, "", "")
	a.must(http.MethodPut, at+"/remove_router_interface", attrs{"port_id": inner[0]["id"]})
	a.must(http.MethodPut, at, none)
	a.must(http.MethodDelete, at, nil)
	a.leads(a.floatingNow(f), nil, "", "")
}
