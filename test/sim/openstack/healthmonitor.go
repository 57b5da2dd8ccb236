// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"net/http"
	"slices"
)

func monitorFields() []field {
	return []field{
		{"type", post | required, lbEnum("HTTP", "HTTPS", "PING", "TCP", "TLS-HELLO", "UDP-CONNECT", "SCTP"), nil},
		{"delay", rw | required, lbInt(0, maxInt), nil},
		{"timeout", rw | required, lbInt(0, maxInt), nil},
		{"max_retries", rw | required, lbInt(1, 10), nil},
		{"max_retries_down", rw, lbInt(1, 10), int64(3)},
		{"http_method", rw, lbEnum("GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "OPTIONS", "CONNECT", "PATCH"), nil},
		{"url_path", rw, lbString(2048), nil},
		{"expected_codes", rw, lbString(64), nil},
		{"http_version", rw, lbFloat, nil},
		{"domain_name", rw, lbString(255), nil},
	}
}

func healthMonitorKind() *kind {
	fields := lbFields(append(monitorFields(), field{"pool_id", post | required, lbUUID, nil})...)
	delete(fields, "description")
	return &kind{
		name: "healthmonitor", plural: "healthmonitors", path: "healthmonitors", quota: "health_monitor",
		index: []string{"pool_id"}, fields: fields,
		create: createMonitor, update: updateMonitor, remove: removePart,
	}
}

// checkMonitorFields: what a health monitor may say depends on its type, and its type on the pool.
func checkMonitorFields(pool *object, in map[string]any) error {
	kind, protocol := str(in, "type"), str(pool.doc, "protocol")
	datagram := protocol == "UDP" || protocol == "SCTP"
	switch {
	case datagram && !slices.Contains([]string{"UDP-CONNECT", "SCTP", "TCP", "HTTP"}, kind):
		return validation("The associated pool protocol is %s, so only a UDP-CONNECT/SCTP/TCP/HTTP health monitor is "+
			"supported.", protocol)
	case !datagram && (kind == "UDP-CONNECT" || kind == "SCTP"):
		return validation("The %s type is only supported for pools of type UDP/SCTP.", kind)
	case kind == "UDP-CONNECT" && integer(in, "delay") < 3:
		return validation("The request delay value %d should be larger than 3 for UDP-CONNECT health monitor type.",
			integer(in, "delay"))
	}
	web := map[string]string{"http_method": "GET", "url_path": "/", "expected_codes": "200"}
	for _, name := range []string{"http_method", "url_path", "expected_codes"} {
		isWeb := kind == "HTTP" || kind == "HTTPS"
		if isWeb && str(in, name) == "" {
			in[name] = web[name]
		} else if !isWeb && str(in, name) != "" {
			return octavia(http.StatusBadRequest, "InvalidOption", "%s is not a valid option for health monitors of type %s",
				name, kind)
		}
	}
	return nil
}

func createMonitor(t *tx, in map[string]any) (*object, error) {
	pool, err := t.balancer("pool", str(in, "pool_id"))
	if err != nil {
		return nil, err
	}
	if err := checkMonitorFields(pool, in); err != nil {
		return nil, err
	}
	if !t.c.room(pool.project, "health_monitor", 1) {
		return nil, quotaMet("Health Monitor")
	}
	lb, parents, err := t.lockPool(pool, true)
	if err != nil {
		return nil, err
	}
	p := t.c.providerOf(lb)
	o, err := t.newMonitor(p, pool, in)
	if err != nil {
		return nil, err
	}
	t.carryOut(lb, p.Work.Update, []*object{o}, parents...)
	return o, nil
}

func (t *tx) newMonitor(p *Provider, pool *object, in map[string]any) (*object, error) {
	if len(t.c.by("healthmonitor", "pool_id", pool.id)) > 0 {
		return nil, octavia(http.StatusConflict, "DuplicateHealthMonitor", "This pool already has a health monitor")
	}
	if err := p.checkMonitor(in); err != nil {
		return nil, err
	}
	in["project_id"], in["pool_id"] = pool.project, pool.id
	return t.lbInsert(t.c.lbKinds["healthmonitors"], in), nil
}

func updateMonitor(t *tx, o *object, in map[string]any) error {
	return t.updatePart(o, in, func(*Provider, *object) error { return nil })
}
