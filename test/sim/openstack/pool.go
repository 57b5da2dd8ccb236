// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"net/http"
	"slices"
	"strings"
)

func poolProtocolNames() []string {
	return []string{"TCP", "HTTP", "HTTPS", "PROXY", "PROXYV2", "UDP", "SCTP"}
}

func poolFields() []field {
	persistence := lbNested("session_persistence",
		field{"type", required, lbEnum("SOURCE_IP", "HTTP_COOKIE", "APP_COOKIE"), nil},
		field{"cookie_name", 0, lbString(255), nil},
		field{"persistence_timeout", 0, lbInt(-maxInt, maxInt), nil},
		field{"persistence_granularity", 0, lbIP, nil},
	)
	ref := lbString(255)
	return []field{
		{"protocol", post | required, lbEnum(poolProtocolNames()...), nil},
		{"lb_algorithm", rw | required, lbEnum("LEAST_CONNECTIONS", "ROUND_ROBIN", "SOURCE_IP", "SOURCE_IP_PORT"), nil},
		{"session_persistence", rw | noFilter, persistence, nil},
		{"tls_container_ref", rw, ref, nil},
		{"ca_tls_container_ref", rw, ref, nil},
		{"crl_container_ref", rw, ref, nil},
		{"tls_enabled", rw, lbBool, false},
		{"tls_ciphers", rw, lbString(2048), nil},
		{"tls_versions", rw | noFilter, lbList(lbString(32)), nil},
		{"alpn_protocols", rw | noFilter, lbList(lbString(32)), nil},
	}
}

func poolKind() *kind {
	return &kind{
		name: "pool", plural: "pools", path: "pools", index: []string{"loadbalancer_id"},
		fields: lbFields(append(poolFields(),
			field{"loadbalancer_id", post, lbUUID, nil},
			field{"listener_id", post | none | noFilter, lbUUID, nil},
		)...),
		create: createLBPool, update: updateLBPool, remove: removeLBPool,
	}
}

// graphPoolFields are those of a pool in a full create. It may be a mere name there: that of another one.
func graphPoolFields() []field {
	own := poolFields()
	for i := range own {
		if own[i].flags&required != 0 {
			own[i].flags = none
		}
	}
	return append(graphCommon(), append(own,
		field{"members", none, lbList(lbNested("members", append(graphCommon(), memberFields()...)...)), nil},
		field{"healthmonitor", none, lbNested("healthmonitor", append(graphCommon(), monitorFields()...)...), nil},
	)...)
}

func createLBPool(t *tx, in map[string]any) (*object, error) {
	var listener *object
	id := str(in, "loadbalancer_id")
	if l := str(in, "listener_id"); l != "" {
		var err error
		if listener, err = t.balancer("listener", l); err != nil {
			return nil, err
		}
		if id == "" {
			id = str(listener.doc, "loadbalancer_id")
		}
	}
	delete(in, "listener_id")
	if id == "" {
		return nil, validation("Must provide at least one of: loadbalancer_id, listener_id")
	}
	lb, err := t.balancer("loadbalancer", id)
	if err != nil {
		return nil, err
	}
	if listener != nil {
		if err := matchProtocols(str(listener.doc, "protocol"), str(in, "protocol")); err != nil {
			return nil, err
		}
	}
	if err := checkPersistence(str(in, "protocol"), in); err != nil {
		return nil, err
	}
	if !t.c.room(lb.project, "pool", 1) {
		return nil, quotaMet("Pool")
	}
	if listener != nil && str(listener.doc, "default_pool_id") != "" {
		return nil, octavia(http.StatusConflict, "DuplicatePoolEntry", "This listener already has a default pool")
	}
	if err := t.mutable(lb); err != nil {
		return nil, err
	}
	p := t.c.providerOf(lb)
	o, err := t.newPool(p, lb, in)
	if err != nil {
		return nil, err
	}
	var parents []*object
	if listener != nil {
		t.lbSet(listener, map[string]any{"default_pool_id": o.id, "provisioning_status": pendingUpdate})
		parents = append(parents, listener)
	}
	t.carryOut(lb, p.Work.Update, []*object{o}, parents...)
	return o, nil
}

func (t *tx) newPool(p *Provider, lb *object, in map[string]any) (*object, error) {
	in["project_id"], in["loadbalancer_id"] = lb.project, lb.id
	if err := p.checkPool(in); err != nil {
		return nil, err
	}
	return t.lbInsert(t.c.lbKinds["pools"], in), nil
}

// checkPersistence: what a session persistence may say depends on the protocol.
func checkPersistence(protocol string, in map[string]any) *apiError {
	sp, ok := in["session_persistence"].(map[string]any)
	if !ok {
		return nil
	}
	kind, cookie := str(sp, "type"), str(sp, "cookie_name")
	timed := sp["persistence_timeout"] != nil || sp["persistence_granularity"] != nil
	datagram := protocol == "UDP" || protocol == "SCTP"
	switch {
	case datagram && cookie != "":
		return validation("Cookie names are not supported for UDP/SCTP pools.")
	case datagram && kind != "SOURCE_IP":
		return validation("Session persistence of type %s is not supported for UDP/SCTP protocol pools.", kind)
	case !datagram && timed:
		return validation("persistence_timeout and persistence_granularity is only for UDP and SCTP protocol pools.")
	case cookie != "" && kind != "APP_COOKIE":
		return validation(`Field "cookie_name" can only be specified with session persistence of type "APP_COOKIE".`)
	case cookie == "" && kind == "APP_COOKIE":
		return validation(`Field "cookie_name" must be specified when using the "APP_COOKIE" session persistence type.`)
	}
	return nil
}

// lockPoolOf locks the pool of a member or health monitor.
func (t *tx) lockPoolOf(part *object) (lb *object, parents []*object, err error) {
	pool, err := t.balancer("pool", str(part.doc, "pool_id"))
	if err != nil {
		return nil, nil, err
	}
	return t.lockPool(pool, true)
}

// updatePart changes a member or health monitor, unless the check refuses it.
func (t *tx) updatePart(part *object, in map[string]any, check func(*Provider, *object) error) error {
	lb, parents, err := t.lockPoolOf(part)
	if err != nil {
		return err
	}
	p := t.c.providerOf(lb)
	if err := check(p, lb); err != nil {
		return err
	}
	in["provisioning_status"] = pendingUpdate
	t.lbSet(part, in)
	t.carryOut(lb, p.Work.Update, []*object{part}, parents...)
	return nil
}

// removePart deletes a member or health monitor.
func removePart(t *tx, part *object) error {
	lb, parents, err := t.lockPoolOf(part)
	if err != nil {
		return err
	}
	t.setStatus(part, pendingDelete)
	t.carryOut(lb, t.c.providerOf(lb).Work.Update, []*object{part}, parents...)
	return nil
}

// lockPool locks a pool's load balancer, listeners and, if self is set, itself, for a change of or below the pool.
func (t *tx) lockPool(pool *object, self bool) (lb *object, parents []*object, err error) {
	if self && lbStatus(pool) != statusActive {
		return nil, nil, immutable("Pool", pool.id)
	}
	lb = t.loadBalancerOf(pool)
	if err := t.mutable(lb); err != nil {
		return nil, nil, err
	}
	parents = t.c.children("listener", "default_pool_id", pool.id)
	if self {
		parents = append(parents, pool)
	}
	for _, o := range parents {
		t.setStatus(o, pendingUpdate)
	}
	return lb, parents, nil
}

func updateLBPool(t *tx, o *object, in map[string]any) error {
	if err := checkPersistence(str(o.doc, "protocol"), in); err != nil {
		// as Octavia 11 has it in updates
		err.message = strings.Replace(err.message, "UDP and SCTP protocol", "UDP protocol", 1)
		return err
	}
	lb, parents, err := t.lockPool(o, false)
	if err != nil {
		return err
	}
	p := t.c.providerOf(lb)
	if err := p.checkPool(cloneWith(o.doc, in)); err != nil {
		return err
	}
	in["provisioning_status"] = pendingUpdate
	t.lbSet(o, in)
	t.carryOut(lb, p.Work.Update, []*object{o}, parents...)
	return nil
}

func removeLBPool(t *tx, o *object) error {
	lb, parents, err := t.lockPool(o, false)
	if err != nil {
		return err
	}
	t.setStatus(o, pendingDelete)
	t.carryOut(lb, t.c.providerOf(lb).Work.Update, []*object{o}, parents...)
	return nil
}

// children returns the resources of a kind with that value in an index, in the order of their creation.
func (c *Cloud) children(kindName, attr, id string) []*object {
	set := c.by(kindName, attr, id)
	out := make([]*object, 0, len(set))
	for o := range set {
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b *object) int { return int(a.seq - b.seq) })
	return out
}
