// SPDX-License-Identifier: Apache-2.0

package openstack

import "maps"

// graph makes what a full create brings along: pools first, with their health monitors and members, then listeners.
func (t *tx) graph(p *Provider, lb *object, listeners, pools []any) ([]*object, error) {
	specs, err := graphPools(listeners, pools)
	if err != nil {
		return nil, err
	}
	if len(specs) > 0 && !t.c.room(lb.project, "pool", len(specs)) {
		return nil, quotaMet("Pool")
	}
	var made, below []*object
	ids := map[string]string{}
	for _, spec := range specs {
		pool, more, err := t.graphPool(p, lb, spec)
		if err != nil {
			return nil, err
		}
		ids[str(spec, "name")] = pool.id
		below = append(append(below, pool), more...)
	}
	if len(listeners) > 0 && !t.c.room(lb.project, "listener", len(listeners)) {
		return nil, quotaMet("Listener")
	}
	for _, x := range listeners {
		in := maps.Clone(x.(map[string]any))
		if ref, ok := in["default_pool"].(map[string]any); ok {
			in["default_pool_id"] = ids[str(ref, "name")]
		}
		delete(in, "default_pool")
		delete(in, "l7policies")
		if err := t.defaultPool(lb, str(in, "protocol"), str(in, "default_pool_id")); err != nil {
			return nil, err
		}
		o, err := t.newListener(p, lb, in)
		if err != nil {
			return nil, err
		}
		made = append(made, o)
	}
	return append(made, below...), nil
}

// graphPools collects the pools of a full create: they need names, and each is spelled out once.
func graphPools(listeners, pools []any) ([]map[string]any, error) {
	var specs []map[string]any
	var refs []string
	for _, x := range pools {
		spec, _ := x.(map[string]any)
		specs = append(specs, spec)
	}
	for _, x := range listeners {
		l, _ := x.(map[string]any)
		spec, ok := l["default_pool"].(map[string]any)
		if !ok {
			continue
		}
		if str(spec, "name") == "" {
			return nil, validation("Pools must be named when creating a fully populated loadbalancer.")
		}
		if spec["protocol"] == nil && spec["lb_algorithm"] == nil && spec["members"] == nil && spec["healthmonitor"] == nil {
			refs = append(refs, str(spec, "name"))
			continue
		}
		specs = append(specs, spec)
	}
	names := map[string]bool{}
	for _, spec := range specs {
		if names[str(spec, "name")] {
			return nil, validation("Pool names must be unique when creating a fully populated loadbalancer.")
		}
		names[str(spec, "name")] = true
	}
	for _, ref := range refs {
		if !names[ref] {
			return nil, validation("Pool '%s' was referenced but no full definition was found.", ref)
		}
	}
	for _, spec := range specs {
		for _, attr := range []string{"protocol", "lb_algorithm"} {
			if spec[attr] == nil {
				return nil, validation("Pool definition for '%s' missing required attribute: %s", str(spec, "name"), attr)
			}
		}
	}
	return specs, nil
}

func (t *tx) graphPool(p *Provider, lb *object, spec map[string]any) (pool *object, below []*object, err error) {
	in := maps.Clone(spec)
	members := list(in, "members")
	monitor, monitored := in["healthmonitor"].(map[string]any)
	delete(in, "members")
	delete(in, "healthmonitor")
	if err := checkPersistence(str(in, "protocol"), in); err != nil {
		return nil, nil, err
	}
	if pool, err = t.newPool(p, lb, in); err != nil {
		return nil, nil, err
	}
	if monitored {
		if !t.c.room(lb.project, "health_monitor", 1) {
			return nil, nil, quotaMet("Health Monitor")
		}
		doc := maps.Clone(monitor)
		delete(doc, "description")
		if err := checkMonitorFields(pool, doc); err != nil {
			return nil, nil, err
		}
		check := p
		if p.lacks(LackFullMonitors) {
			check = &Provider{} // it never sees it
		}
		o, err := t.newMonitor(check, pool, doc)
		if err != nil {
			return nil, nil, err
		}
		below = append(below, o)
	}
	if len(members) > 0 && !t.c.room(lb.project, "member", len(members)) {
		return nil, nil, quotaMet("Member")
	}
	for _, x := range members {
		doc := maps.Clone(x.(map[string]any))
		delete(doc, "description")
		o, err := t.newMember(p, lb, pool, doc)
		if err != nil {
			return nil, nil, err
		}
		below = append(below, o)
	}
	return pool, below, nil
}
