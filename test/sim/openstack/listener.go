// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"net/http"
	"net/netip"
	"slices"
)

const (
	maxPort    = 65535
	maxTimeout = 24 * 24 * 60 * 60 * 1000 // milliseconds
)

func listenerProtocols() []string {
	return []string{"TCP", "HTTPS", "HTTP", "TERMINATED_HTTPS", "UDP", "SCTP", "PROMETHEUS"}
}

func listenerFields() []field {
	timeout := lbInt(0, maxTimeout)
	ref := lbString(255)
	return []field{
		{"protocol", post | required, lbEnum(listenerProtocols()...), nil},
		{"protocol_port", post | required, lbInt(1, maxPort), nil},
		{"connection_limit", rw, lbInt(-1, maxInt), int64(-1)},
		{"default_pool_id", rw, lbUUID, nil},
		{"default_tls_container_ref", rw, ref, nil},
		{"sni_container_refs", rw | noFilter, lbList(ref), []any{}},
		{"insert_headers", rw | noFilter, lbDict, nil},
		{"timeout_client_data", rw, timeout, int64(50000)},
		{"timeout_member_connect", rw, timeout, int64(5000)},
		{"timeout_member_data", rw, timeout, int64(50000)},
		{"timeout_tcp_inspect", rw, timeout, int64(0)},
		{"client_ca_tls_container_ref", rw, ref, nil},
		{"client_authentication", rw, lbEnum("NONE", "OPTIONAL", "MANDATORY"), "NONE"},
		{"client_crl_container_ref", rw, ref, nil},
		{"allowed_cidrs", rw | noFilter, lbList(lbCIDR), nil},
		{"tls_ciphers", rw, lbString(2048), nil},
		{"tls_versions", rw | noFilter, lbList(lbString(32)), nil},
		{"alpn_protocols", rw | noFilter, lbList(lbString(32)), nil},
	}
}

func listenerKind() *kind {
	return &kind{
		name: "listener", plural: "listeners", path: "listeners", index: []string{"loadbalancer_id", "default_pool_id"},
		fields: lbFields(append(listenerFields(), field{"loadbalancer_id", post | required, lbUUID, nil})...),
		create: createListener, update: updateListener, remove: removeListener,
	}
}

// graphListenerFields are those of a listener in a full create.
func graphListenerFields() []field {
	return append(graphCommon(), append(listenerFields(),
		field{"default_pool", none, lbNested("default_pool", graphPoolFields()...), nil},
		field{"l7policies", none, lbList(lbRaw), nil},
	)...)
}

func graphCommon() []field {
	return []field{
		{"name", 0, lbString(255), ""},
		{"description", 0, lbString(255), ""},
		{"admin_state_up", 0, lbBool, true},
		{"tags", 0, lbTags, []any{}},
	}
}

// poolProtocols are the protocols of the pools that a listener may have.
func poolProtocols(listener string) []string {
	switch listener {
	case "TCP":
		return []string{"HTTP", "HTTPS", "PROXY", "PROXYV2", "TCP"}
	case "HTTP", "TERMINATED_HTTPS":
		return []string{"HTTP", "PROXY", "PROXYV2"}
	case "HTTPS":
		return []string{"HTTPS", "PROXY", "PROXYV2", "TCP"}
	case "UDP", "SCTP":
		return []string{listener}
	}
	return nil
}

// transport is the protocol below a listener's.
func transport(protocol string) string {
	if protocol == "UDP" || protocol == "SCTP" {
		return protocol
	}
	return "TCP"
}

func createListener(t *tx, in map[string]any) (*object, error) {
	lb, err := t.balancer("loadbalancer", str(in, "loadbalancer_id"))
	if err != nil {
		return nil, err
	}
	if !t.c.room(lb.project, "listener", 1) {
		return nil, quotaMet("Listener")
	}
	if err := t.defaultPool(lb, str(in, "protocol"), str(in, "default_pool_id")); err != nil {
		return nil, err
	}
	if err := t.mutable(lb); err != nil {
		return nil, err
	}
	p := t.c.providerOf(lb)
	o, err := t.newListener(p, lb, in)
	if err != nil {
		return nil, err
	}
	t.carryOut(lb, p.Work.Update, []*object{o})
	return o, nil
}

func (t *tx) newListener(p *Provider, lb *object, in map[string]any) (*object, error) {
	in["project_id"], in["loadbalancer_id"] = lb.project, lb.id
	protocol, port := str(in, "protocol"), integer(in, "protocol_port")
	if protocol == "TERMINATED_HTTPS" && str(in, "default_tls_container_ref") == "" &&
		len(list(in, "sni_container_refs")) == 0 {
		return nil,
			validation("An SNI or default certificate container reference must be provided for %s protocol listeners.", protocol)
	}
	for _, l := range t.c.children("listener", "loadbalancer_id", lb.id) {
		if integer(l.doc, "protocol_port") == port && transport(str(l.doc, "protocol")) == transport(protocol) {
			return nil, octavia(http.StatusConflict, "DuplicateListenerEntry",
				"Another Listener on this Load Balancer is already using protocol %s and protocol_port %d",
				str(l.doc, "protocol"), port)
		}
	}
	if err := checkCIDRs(lb, in); err != nil {
		return nil, err
	}
	if err := p.checkListener(in); err != nil {
		return nil, err
	}
	return t.lbInsert(t.c.lbKinds["listeners"], in), nil
}

func checkCIDRs(lb *object, in map[string]any) error {
	vip, err := netip.ParseAddr(str(lb.doc, "vip_address"))
	if err != nil {
		return nil //nolint:nilerr // it was made by the cloud
	}
	for _, x := range list(in, "allowed_cidrs") {
		s, _ := x.(string)
		if c, err := netip.ParsePrefix(s); err == nil && c.Addr().Is4() != vip.Is4() {
			return validation("CIDR %s IP version incompatible with all VIPs IP version.", s)
		}
	}
	return nil
}

// defaultPool checks that a listener may have that pool.
func (t *tx) defaultPool(lb *object, protocol, id string) error {
	if id == "" {
		return nil
	}
	if protocol == "PROMETHEUS" {
		return octavia(http.StatusBadRequest, "ListenerNoChildren",
			"Protocol PROMETHEUS listeners cannot have child objects.")
	}
	pool, ok := t.any("pool", id)
	if !ok || str(pool.doc, "loadbalancer_id") != lb.id {
		return balancerMissing("pool", id)
	}
	return matchProtocols(protocol, str(pool.doc, "protocol"))
}

func matchProtocols(listener, pool string) error {
	if slices.Contains(poolProtocols(listener), pool) {
		return nil
	}
	return validation("The pool protocol '%s' is invalid while the listener protocol is '%s'.", pool, listener)
}

func updateListener(t *tx, o *object, in map[string]any) error {
	lb := t.loadBalancerOf(o)
	p := t.c.providerOf(lb)
	if err := checkCIDRs(lb, in); err != nil {
		return err
	}
	if err := t.defaultPool(lb, str(o.doc, "protocol"), str(in, "default_pool_id")); err != nil {
		return err
	}
	if err := t.mutable(lb); err != nil {
		return err
	}
	if err := p.checkListener(cloneWith(o.doc, in)); err != nil {
		return err
	}
	in["provisioning_status"] = pendingUpdate
	t.lbSet(o, in)
	t.carryOut(lb, p.Work.Update, []*object{o})
	return nil
}

func removeListener(t *tx, o *object) error {
	lb := t.loadBalancerOf(o)
	if err := t.mutable(lb); err != nil {
		return err
	}
	t.setStatus(o, pendingDelete)
	t.carryOut(lb, t.c.providerOf(lb).Work.Update, []*object{o})
	return nil
}
