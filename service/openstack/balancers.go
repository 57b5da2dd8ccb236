package openstack

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// balancers is the load balancing service of the cloud, Octavia: it has a limiter and a gate of its own, so that what it bears does
// not hold up the networking service.
type balancers struct {
	*Cloud
	neutron *Cloud

	mu      sync.Mutex
	members map[string]poolMembers // of every pool, as they were last listed
	adds    map[string]bool        // by address of the service: it can change some members of a pool
	left    map[string]time.Time   // VIP ports that seem to be left behind, and since when
}

// poolMembers are the members of a pool, and the state of the pool that they were listed in.
type poolMembers struct {
	state  string
	stable bool // the pool had that state when it was listed before, too
	docs   []any
}

// The collections of Octavia beside the load balancers.
const (
	listenerKind drivers.Kind = "listener"
	poolKind     drivers.Kind = "pool"
	monitorKind  drivers.Kind = "healthmonitor"
	memberKind   drivers.Kind = "member"
)

func balancerKinds() map[drivers.Kind]kind {
	table := map[drivers.Kind]kind{}
	for _, k := range []kind{
		{name: drivers.KindLoadBalancer, path: "lbaas/loadbalancers", one: "loadbalancer", many: "loadbalancers", tagged: true, small: true},
		{name: listenerKind, path: "lbaas/listeners", one: "listener", many: "listeners", small: true},
		{name: poolKind, path: "lbaas/pools", one: "pool", many: "pools", small: true},
		{name: monitorKind, path: "lbaas/healthmonitors", one: "healthmonitor", many: "healthmonitors", small: true},
		{name: memberKind, path: "lbaas/pools", one: "member", many: "members", small: true},
	} {
		table[k.name] = k
	}
	return table
}

// all lists the load balancers of a cluster, with all their parts: five lists, and one of every pool's members that may have
// changed since it was listed last.
func (b *balancers) all(ctx context.Context, keep func(plan.Observed) bool) ([]plan.Observed, error) {
	query := url.Values{}
	if b.projectID != "" {
		query.Set("project_id", b.projectID)
	}
	found, err := b.pages(ctx, b.kinds[drivers.KindLoadBalancer], query, keep)
	if err != nil || len(found) == 0 {
		return found, err
	}
	var p parts
	group, below := errgroup.WithContext(ctx)
	for name, into := range map[drivers.Kind]*[]map[string]any{
		listenerKind: &p.listeners, poolKind: &p.pools, monitorKind: &p.monitors,
	} {
		group.Go(func() error {
			list, err := b.pages(below, b.kinds[name], query, everything)
			*into = documents(list)
			return err
		})
	}
	group.Go(func() error {
		ports := url.Values{"device_owner": {"Octavia"}, "fields": {"id", "security_groups"}}
		if b.projectID != "" {
			ports.Set("project_id", b.projectID)
		}
		list, err := b.neutron.pages(below, b.neutron.kinds[drivers.KindPort], ports, everything)
		p.ports = documents(list)
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	known, err := b.fill(ctx, found, p)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.members = known // of pools that are gone nothing is kept
	b.mu.Unlock()
	return found, nil
}

func documents(list []plan.Observed) []map[string]any {
	docs := make([]map[string]any, 0, len(list))
	for _, o := range list {
		docs = append(docs, o.Attrs)
	}
	return docs
}

// parts are documents of whatever load balancer.
type parts struct{ listeners, pools, monitors, ports []map[string]any }

// fill puts parts into their load balancers, lists the members of their pools, and returns these by pool.
func (b *balancers) fill(ctx context.Context, found []plan.Observed, p parts) (map[string]poolMembers, error) {
	byID := make(map[string]map[string]any, len(found))
	for _, o := range found {
		o.Attrs["listeners"], o.Attrs["pools"] = []any{}, []any{}
		byID[o.ID] = o.Attrs
	}
	monitors := map[string]map[string]any{}
	for _, monitor := range p.monitors {
		monitors[textOf(monitor, "id")] = monitor
	}
	names, mine := map[string]string{}, p.pools[:0:0]
	for _, pool := range p.pools {
		names[textOf(pool, "id")] = textOf(pool, "name")
		if lb := byID[parent(pool)]; lb != nil {
			delete(pool, "healthmonitor")
			if monitor := monitors[textOf(pool, "healthmonitor_id")]; monitor != nil {
				pool["healthmonitor"] = monitor
			}
			lb["pools"] = append(listAt(lb, "pools"), pool)
			mine = append(mine, pool)
		}
	}
	for _, listener := range p.listeners {
		if lb := byID[parent(listener)]; lb != nil {
			listener["default_pool"] = names[textOf(listener, "default_pool_id")]
			lb["listeners"] = append(listAt(lb, "listeners"), listener)
		}
	}
	groups := map[string]any{}
	for _, port := range p.ports {
		groups[textOf(port, "id")] = port["security_groups"]
	}
	for _, o := range found {
		if list, ok := groups[textOf(o.Attrs, "vip_port_id")]; ok {
			o.Attrs["vip_sg_ids"] = list
		}
	}
	return b.fillMembers(ctx, mine)
}

// parent is the id of the load balancer that a document of Octavia names.
func parent(doc map[string]any) string {
	for _, element := range listAt(doc, "loadbalancers") {
		if m, ok := element.(map[string]any); ok {
			return textOf(m, "id")
		}
	}
	return ""
}

func listAt(doc map[string]any, name string) []any {
	list, _ := doc[name].([]any)
	return list
}

func textOf(doc map[string]any, name string) string {
	text, _ := doc[name].(string)
	return text
}

// fillMembers lists the members of pools. A list of pools has their members' ids only; it tells when a pool was changed last,
// to the second: what is listed anew is only trusted the second time.
func (b *balancers) fillMembers(ctx context.Context, pools []map[string]any) (map[string]poolMembers, error) {
	known := make(map[string]poolMembers, len(pools))
	var lock sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(b.config.MaxConcurrency)
	for _, pool := range pools {
		id, state := textOf(pool, "id"), stateOf(pool)
		b.mu.Lock()
		last := b.members[id]
		b.mu.Unlock()
		note := func(m poolMembers) {
			lock.Lock()
			defer lock.Unlock()
			known[id], pool["members"] = m, m.docs
		}
		switch {
		case len(listAt(pool, "members")) == 0:
			note(poolMembers{state: state, docs: []any{}})
			continue
		case last.stable && last.state == state:
			note(last)
			continue
		}
		group.Go(func() error {
			docs, err := b.listMembers(ctx, id)
			if err == nil {
				note(poolMembers{state: state, stable: last.state == state, docs: docs})
			}
			return err
		})
	}
	return known, group.Wait()
}

func stateOf(pool map[string]any) string {
	var ids []string
	for _, element := range listAt(pool, "members") {
		if m, ok := element.(map[string]any); ok {
			ids = append(ids, textOf(m, "id"))
		}
	}
	return textOf(pool, "updated_at") + " " + textOf(pool, "provisioning_status") + " " + strings.Join(ids, " ")
}

func (b *balancers) listMembers(ctx context.Context, pool string) ([]any, error) {
	k := b.kinds[memberKind]
	k.path += "/" + url.PathEscape(pool) + "/members"
	list, err := b.pages(ctx, k, url.Values{}, everything)
	if Classify(err) == ClassNotFound {
		return []any{}, nil // it went in between
	}
	docs := make([]any, 0, len(list))
	for _, o := range list {
		docs = append(docs, o.Attrs)
	}
	return docs, err
}

// get returns one load balancer with all its parts.
func (b *balancers) get(ctx context.Context, id string) (plan.Observed, error) {
	k := b.kinds[drivers.KindLoadBalancer]
	r := call{op: "reading", method: http.MethodGet, kind: k, path: k.path + "/" + url.PathEscape(id), what: id}
	doc, err := b.do(ctx, r)
	if err != nil {
		return plan.Observed{}, err
	}
	lb, err := k.answer(r, doc)
	if err != nil {
		return plan.Observed{}, err
	}
	var p parts
	for name, into := range map[drivers.Kind]*[]map[string]any{listenerKind: &p.listeners, poolKind: &p.pools} {
		for _, element := range listAt(lb.Attrs, b.kinds[name].many) {
			m, _ := element.(map[string]any)
			part, err := b.part(ctx, name, textOf(m, "id"))
			if err != nil {
				return plan.Observed{}, err
			}
			if part != nil {
				*into = append(*into, part)
			}
		}
	}
	for _, pool := range p.pools {
		b.mu.Lock()
		delete(b.members, textOf(pool, "id"))
		b.mu.Unlock()
		if id := textOf(pool, "healthmonitor_id"); id != "" {
			monitor, err := b.part(ctx, monitorKind, id)
			if err != nil {
				return plan.Observed{}, err
			}
			p.monitors = append(p.monitors, monitor)
		}
	}
	if port := textOf(lb.Attrs, "vip_port_id"); port != "" {
		if o, err := b.neutron.Get(ctx, drivers.KindPort, port); err == nil {
			p.ports = append(p.ports, o.Attrs)
		}
	}
	known, err := b.fill(ctx, []plan.Observed{lb}, p)
	if err != nil {
		return plan.Observed{}, err
	}
	b.mu.Lock()
	maps.Copy(b.members, known) // what is known of others' pools stays
	b.mu.Unlock()
	return lb, nil
}

// part reads one listener, pool or monitor; nil for one that is not there.
func (b *balancers) part(ctx context.Context, name drivers.Kind, id string) (map[string]any, error) {
	k := b.kinds[name]
	r := call{op: "reading", method: http.MethodGet, kind: k, path: k.path + "/" + url.PathEscape(id), what: id}
	doc, err := b.do(ctx, r)
	if Classify(err) == ClassNotFound {
		return nil, nil //nolint:nilnil // nothing is there
	}
	if err != nil {
		return nil, err
	}
	inner, err := k.single(doc)
	if err != nil {
		return nil, newError(r, err, true)
	}
	return inner, nil
}
