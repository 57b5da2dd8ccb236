// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"net/http"
	"slices"
	"strings"
)

// vipPort is what a load balancer made for its VIP.
type vipPort struct {
	port  string   // Octavia's own VIP port, "" if it is the client's
	extra []string // ports of the amphorae
	group string   // the VIP's security group
}

func loadBalancerKind() *kind {
	return &kind{
		name: "loadbalancer", plural: "loadbalancers", path: "loadbalancers", quota: "load_balancer",
		index: []string{"vip_port_id", "vip_address", "vip_subnet_id", "provisioning_status"},
		fields: lbFields(
			field{"vip_address", post, lbIP, nil},
			field{"vip_port_id", post, lbUUID, nil},
			field{"vip_subnet_id", post, lbUUID, nil},
			field{"vip_network_id", post, lbUUID, nil},
			field{"vip_qos_policy_id", rw, lbUUID, nil},
			field{"additional_vips", post | noFilter, lbList(lbNested(
				"additional_vips", field{"subnet_id", required, lbUUID, nil}, field{"ip_address", none, lbIP, nil})), []any{}},
			field{"listeners", post | noFilter, lbList(lbNested("listeners", graphListenerFields()...)), []any{}},
			field{"pools", post | noFilter, lbList(lbNested("pools", graphPoolFields()...)), []any{}},
			field{"provider", post, lbString(64), nil},
			field{"flavor_id", post, lbUUID, nil},
			field{"availability_zone", post, lbString(255), nil},
		),
		create: createLoadBalancer, update: updateLoadBalancer,
	}
}

func createLoadBalancer(t *tx, in map[string]any) (*object, error) {
	if str(in, "project_id") == "" {
		in["project_id"] = t.who.project
	}
	if !t.who.admin && in["project_id"] != t.who.project {
		return nil, policyForbidden()
	}
	if err := t.vipRequest(in); err != nil {
		return nil, err
	}
	p, err := t.pickProvider(in)
	if err != nil {
		return nil, err
	}
	if !t.c.room(str(in, "project_id"), "load_balancer", 1) {
		return nil, quotaMet("Load Balancer")
	}
	listeners, pools := list(in, "listeners"), list(in, "pools")
	delete(in, "listeners")
	delete(in, "pools")
	in["provider"] = p.Name
	lb := t.lbInsert(t.c.lbKinds["loadbalancers"], in)
	if err := t.makeVIP(p, lb); err != nil {
		return nil, err
	}
	if p.lacks(LackZones) && str(in, "availability_zone") != "" {
		t.leakVIP(lb)
		return nil, p.unsupported("availability zones")
	}
	children, err := t.graph(p, lb, listeners, pools)
	if err != nil {
		t.leakVIP(lb)
		return nil, err
	}
	t.workOnCreate(p, lb, children)
	return lb, nil
}

// workOnCreate submits what a create comes to: the load balancer first, or all at once.
func (t *tx) workOnCreate(p *Provider, lb *object, children []*object) {
	ready := func(t *tx) {
		if err := t.plug(p, lb); err != nil {
			t.fail(lb)
			return
		}
		t.finish(lb, pendingCreate)
	}
	if p.StepByStep {
		pieces := []piece{{p.Work.Create, ready}}
		for _, o := range children {
			if o.kind.name == "healthmonitor" && p.lacks(LackFullMonitors) {
				continue
			}
			pieces = append(pieces, piece{p.cost(o), func(t *tx) {
				t.finish(o, pendingCreate)
				if pool, ok := t.any("pool", str(o.doc, "pool_id")); ok && lbStatus(pool) == statusActive && p.Reports {
					t.lbSet(pool, map[string]any{"operating_status": t.operating(pool)})
				}
			}})
		}
		t.submit(p, lb, pieces...)
		return
	}
	children = slices.DeleteFunc(children, func(o *object) bool {
		return p.StuckChildren || p.lacks(LackLoosePools) && t.loose(o)
	})
	total := p.Work.Create
	for _, o := range children {
		total += p.cost(o)
	}
	t.submit(p, lb, piece{total, func(t *tx) {
		for _, o := range children {
			t.finish(o, pendingCreate)
		}
		ready(t)
	}})
}

// loose says whether something is, or belongs to, a pool without a listener.
func (t *tx) loose(o *object) bool {
	pool := o.id
	switch o.kind.name {
	case "listener":
		return false
	case "member", "healthmonitor":
		pool = str(o.doc, "pool_id")
	}
	return len(t.c.by("listener", "default_pool_id", pool)) == 0
}

// pickProvider chooses by name, by flavor or by default.
func (t *tx) pickProvider(in map[string]any) (*Provider, error) {
	name := str(in, "provider")
	if az := str(in, "availability_zone"); az != "" {
		z, ok := t.c.zoneByName(az)
		switch {
		case !ok:
			return nil, validation("Invalid availability zone.")
		case name == "":
			name = z.provider
		case name != z.provider:
			return nil, octavia(http.StatusBadRequest, "ProviderAvailabilityZoneMismatchError",
				"Availability zone '%s' is not compatible with provider '%s'", az, name)
		}
	}
	if id := str(in, "flavor_id"); id != "" {
		f, ok := t.c.flavorByID(id)
		switch {
		case !ok:
			return nil, validation("Invalid flavor_id.")
		case name == "":
			name = f.provider
		case name != f.provider:
			return nil,
				octavia(http.StatusBadRequest, "ProviderFlavorMismatchError", "Flavor '%s' is not compatible with provider '%s'",
					id, name)
		}
		if p, ok := t.c.provider(name); ok && p.lacks(LackFlavors) {
			return nil, octavia(http.StatusNotImplemented, "ProviderNotImplementedError",
				"Provider '%s' does not support a requested action: This provider does not support validating flavors.", name)
		}
	}
	if name == "" {
		name = t.c.opts.Providers[0].Name
	}
	p, ok := t.c.provider(name)
	if !ok {
		return nil, octavia(http.StatusBadRequest, "ProviderNotEnabled", "Provider '%s' is not enabled.", name)
	}
	return p, nil
}

// mutable locks a load balancer that is ACTIVE.
func (t *tx) mutable(lb *object) error {
	if lbStatus(lb) != statusActive {
		return immutable("Load Balancer", lb.id)
	}
	t.setStatus(lb, pendingUpdate)
	return nil
}

func pendingState(lb *object) *apiError {
	return octavia(http.StatusConflict, "LBPendingStateError", "Invalid state %s of loadbalancer resource %s",
		lbStatus(lb), lb.id)
}

func updateLoadBalancer(t *tx, lb *object, in map[string]any) error {
	if lbStatus(lb) != statusActive {
		return pendingState(lb)
	}
	in["provisioning_status"] = pendingUpdate
	t.lbSet(lb, in)
	t.carryOut(lb, t.c.providerOf(lb).Work.Update, nil)
	return nil
}

// removeLoadBalancer is DELETE: with everything below it only if cascade is set.
func (t *tx) removeLoadBalancer(lb *object, cascade bool) error {
	if len(t.tree(lb)) > 1 && !cascade {
		return validation("Cannot delete Load Balancer %s - it has children", lb.id)
	}
	if s := lbStatus(lb); s != statusActive && s != statusError {
		return pendingState(lb)
	}
	t.setStatus(lb, pendingDelete)
	p := t.c.providerOf(lb)
	t.submit(p, lb, piece{p.Work.Delete, func(t *tx) {
		if lbStatus(lb) == pendingDelete {
			t.eraseBalancer(lb)
		}
	}})
	return nil
}

// eraseBalancer removes something of Octavia, with what belongs to it.
func (t *tx) eraseBalancer(o *object) {
	switch o.kind.name {
	case "loadbalancer":
		for _, x := range t.tree(o) {
			if x != o {
				t.erase(x)
			}
		}
		t.unplug(o)
	case "pool":
		for _, l := range t.c.children("listener", "default_pool_id", o.id) {
			t.lbSet(l, map[string]any{"default_pool_id": nil})
		}
		for _, kind := range []string{"member", "healthmonitor"} {
			for _, x := range t.c.children(kind, "pool_id", o.id) {
				t.erase(x)
			}
		}
	}
	t.erase(o)
}

// failover is PUT …/failover, an administrator's.
func (t *tx) failover(lb *object) (response, error) {
	if !t.who.admin {
		return response{}, policyForbidden()
	}
	if s := lbStatus(lb); s != statusActive && s != statusError {
		return response{}, pendingState(lb)
	}
	p := t.c.providerOf(lb)
	if p.lacks(LackFailover) {
		return response{}, p.unsupported(p.title() + " provider does not support loadbalancer failover")
	}
	t.setStatus(lb, pendingUpdate)
	t.submit(p, lb, piece{p.Work.Create, func(t *tx) {
		for _, o := range t.tree(lb) {
			if lbStatus(o) == statusError || o == lb || strings.HasPrefix(lbStatus(o), "PENDING_") {
				t.lbSet(o, map[string]any{"provisioning_status": statusActive, "operating_status": offline})
			}
		}
	}})
	return response{status: http.StatusAccepted}, nil
}
