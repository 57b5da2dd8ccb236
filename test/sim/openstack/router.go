// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"net/http"
	"net/netip"
	"reflect"
	"slices"
)

func routerMissing(id string) *apiError {
	return notFound("RouterNotFound", "Router %s could not be found", id)
}

const maxRoutes = 30

func routerKind() *kind {
	gateway := orNil(dictOf(map[string]convert{
		"network_id": orNil(asUUID), "enable_snat": asBool, "external_fixed_ips": asFixedIPs, "qos_policy_id": orNil(asUUID),
	}))
	return &kind{
		name: "router", plural: "routers", path: "routers", missing: routerMissing,
		fields: fieldsOf(
			field{"admin_state_up", rw, asBool, true},
			field{"external_gateway_info", rw | none | noFilter, gateway, nil},
			field{"routes", put | none | noFilter, asRoutes, nil},
			field{"ha", rw | none | secret | adminPost | adminPut, asBool, nil},
			field{"distributed", rw | none | secret | adminPost | adminPut, asBool, nil},
			field{"flavor_id", post, orNil(asUUID), nil},
			field{"availability_zone_hints", post, listOf(asString(255), true), []any{}},
			field{"status", none, nil, nil}, field{"availability_zones", none | noFilter, nil, nil},
		),
		create: createRouter, update: updateRouter, remove: removeRouter,
	}
}

func createRouter(t *tx, in map[string]any) (*object, error) {
	gw, _ := in["external_gateway_info"].(map[string]any)
	if err := t.gatewayPolicy("create_router", gw); err != nil {
		return nil, err
	}
	in["status"], in["routes"], in["availability_zones"] = "ACTIVE", []any{}, []any{}
	in["ha"], in["distributed"] = false, false
	in["external_gateway_info"] = nil
	o := t.insert(t.c.kinds["routers"], in)
	if err := t.setGateway(o, gw); err != nil {
		return nil, err
	}
	return o, nil
}

// gatewayPolicy: only administrators say how a gateway translates or which address it has.
func (t *tx) gatewayPolicy(action string, gw map[string]any) error {
	if t.who.admin {
		return nil
	}
	for _, name := range []string{"enable_snat", "external_fixed_ips"} {
		if _, given := gw[name]; given {
			return forbidden("((rule:" + action + " and (rule:" + action + ":external_gateway_info and (rule:" + action +
				":external_gateway_info:network_id and rule:" + action + ":external_gateway_info:" + name + "))))")
		}
	}
	return nil
}

// gatewayPort returns a router's port on the external network.
func (t *tx) gatewayPort(router string) *object {
	for p := range t.c.by("port", "device_id", router) {
		if str(p.doc, "device_owner") == "network:router_gateway" {
			return p
		}
	}
	return nil
}

// interfaces returns a router's inner ports, in the order of their creation.
func (t *tx) interfaces(router string) []*object {
	var out []*object
	for p := range t.c.by("port", "device_id", router) {
		if isRouterPort(p) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *object) int { return int(a.seq - b.seq) })
	return out
}

// setGateway makes the router's external gateway so. Nil or no network: none.
func (t *tx) setGateway(o *object, gw map[string]any) error {
	old := t.gatewayPort(o.id)
	network := str(gw, "network_id")
	if old != nil && str(old.doc, "network_id") != network {
		for _, fip := range t.c.tables["floatingip"].byID {
			if fip.doc["router_id"] == o.id {
				return conflict("RouterExternalGatewayInUseByFloatingIp",
					"Gateway cannot be updated for router %s, since a gateway to external network %s is required by one or more "+
						"floating IPs.", o.id, str(old.doc, "network_id"))
			}
		}
		t.erasePort(old)
		old = nil
	}
	if network == "" {
		if o.doc["external_gateway_info"] != nil {
			t.change(o, map[string]any{"external_gateway_info": nil})
		}
		return nil
	}
	if old == nil {
		net, ok := t.get("network", network)
		if !ok {
			return networkMissing(network)
		}
		if !truth(net.doc, "router:external") {
			return badResource("router", "Network %s is not an external network", network)
		}
		doc := map[string]any{
			"name": "", "description": "", "project_id": "", "network_id": network, "device_id": o.id, "admin_state_up": true,
			"device_owner": "network:router_gateway", "binding:vnic_type": "normal", "port_security_enabled": false,
		}
		if ips := list(gw, "external_fixed_ips"); len(ips) > 0 {
			doc["fixed_ips"] = ips
		}
		var err error
		if old, err = t.makePort(net, doc); err != nil {
			return err
		}
	}
	snat := true
	if was, ok := o.doc["external_gateway_info"].(map[string]any); ok {
		snat = truth(was, "enable_snat")
	}
	if want, given := gw["enable_snat"].(bool); given {
		snat = want
	}
	t.update(o, map[string]any{"external_gateway_info": map[string]any{
		"network_id": network, "enable_snat": snat, "external_fixed_ips": old.doc["fixed_ips"],
	}})
	return nil
}

func updateRouter(t *tx, o *object, in map[string]any) error {
	if v, given := in["external_gateway_info"]; given {
		gw, _ := v.(map[string]any)
		if err := t.gatewayPolicy("update_router", gw); err != nil {
			return err
		}
		if err := t.setGateway(o, gw); err != nil {
			return err
		}
		delete(in, "external_gateway_info")
	}
	if routes, given := in["routes"].([]any); given {
		if err := t.checkRoutes(o, routes); err != nil {
			return err
		}
	}
	t.update(o, in)
	return nil
}

// bumpedBefore refuses the change of a router's gateway that names a revision: where the router has interfaces
// Neutron raises the revision before it compares, whatever it is, and that stays.
func (t *tx) bumpedBefore(o *object) error {
	if len(t.interfaces(o.id)) == 0 {
		return nil
	}
	was := integer(o.doc, "revision_number")
	t.undo = append([]func(){func() { (&tx{c: t.c, who: t.who, now: t.now}).bump(o) }}, t.undo...)
	return revisionChanged(was, was+1)
}

// checkRoutes: the next hop must be on a network of the router's, and not be the router itself.
func (t *tx) checkRoutes(o *object, routes []any) error {
	if len(routes) > maxRoutes {
		return neutron(http.StatusBadRequest, "RoutesExhausted",
			"Unable to complete operation for %s. The number of routes exceeds the maximum %d.", o.id, maxRoutes)
	}
	ports := t.interfaces(o.id)
	if gw := t.gatewayPort(o.id); gw != nil {
		ports = append(ports, gw)
	}
	for _, r := range routes {
		m, _ := r.(map[string]any)
		hop := netip.MustParseAddr(str(m, "nexthop")) // checked by the schema
		connected := false
		for _, p := range ports {
			if hasAddress(p, hop.String()) {
				return neutron(http.StatusBadRequest, "InvalidRoutes",
					"Invalid format for routes: %v, the nexthop is used by router", routes)
			}
			for _, f := range list(p.doc, "fixed_ips") {
				fixed, _ := f.(map[string]any)
				s, ok := t.any("subnet", str(fixed, "subnet_id"))
				connected = connected || ok && s.ipam.prefix.Contains(hop)
			}
		}
		if !connected {
			return neutron(http.StatusBadRequest, "InvalidRoutes",
				"Invalid format for routes: %v, the nexthop is not connected with router", routes)
		}
	}
	return nil
}

func removeRouter(t *tx, o *object) error {
	if len(t.interfaces(o.id)) > 0 {
		return conflict("RouterInUse", "Router %s still has ports", o.id)
	}
	if err := t.setGateway(o, nil); err != nil {
		return err
	}
	t.erase(o)
	return nil
}

// changeRoutes is PUT add_extraroutes and remove_extraroutes.
func (t *tx) changeRoutes(o *object, in map[string]any, add bool) (response, error) {
	body, _ := in["router"].(map[string]any)
	v, err := asRoutes(body["routes"])
	if err != nil {
		return response{}, badRequest("Invalid input for routes. Reason: %v", err)
	}
	routes := slices.Clone(list(o.doc, "routes"))
	for _, r := range v.([]any) {
		i := slices.IndexFunc(routes, func(x any) bool { return reflect.DeepEqual(x, r) })
		switch {
		case add && i < 0:
			routes = append(routes, r)
		case !add && i >= 0:
			routes = slices.Delete(routes, i, i+1)
		}
	}
	if add {
		if err := t.checkRoutes(o, routes); err != nil {
			return response{}, err
		}
	}
	t.update(o, map[string]any{"routes": routes})
	return response{status: http.StatusOK, body: join(`{"router":`, string(t.c.encode(t.who, o)), "}"), items: 1}, nil
}
