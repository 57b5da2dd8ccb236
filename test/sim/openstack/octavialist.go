// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const octaviaPage = 1000 // Octavia's longest page, unless Options say otherwise

// lbView returns a resource of Octavia as it is shown: with its children's ids, or in full.
func (c *Cloud) lbView(o *object, full bool) map[string]any {
	doc := maps.Clone(o.doc)
	doc["tenant_id"] = o.project
	switch o.kind.name {
	case "loadbalancer":
		doc["listeners"] = c.lbViews("listener", "loadbalancer_id", o.id, full)
		doc["pools"] = c.lbViews("pool", "loadbalancer_id", o.id, full)
	case "listener":
		delete(doc, "loadbalancer_id")
		doc["l7policies"] = []any{}
		if doc["insert_headers"] == nil {
			doc["insert_headers"] = map[string]any{}
		}
		if !full {
			doc["loadbalancers"] = idOnly(o.doc["loadbalancer_id"])
		}
	case "pool":
		delete(doc, "loadbalancer_id")
		doc["listeners"] = c.lbViews("listener", "default_pool_id", o.id, false)
		doc["members"] = c.lbViews("member", "pool_id", o.id, full)
		if !full {
			doc["loadbalancers"] = idOnly(o.doc["loadbalancer_id"])
		}
		if full {
			doc["healthmonitor"] = nil
		}
		for _, m := range c.children("healthmonitor", "pool_id", o.id) {
			doc["healthmonitor_id"] = m.id
			if full {
				doc["healthmonitor"] = c.lbView(m, true)
			}
		}
	case "member":
		delete(doc, "pool_id")
	case "healthmonitor":
		delete(doc, "pool_id")
		if !full {
			doc["pools"] = idOnly(o.doc["pool_id"])
		}
	}
	return doc
}

func idOnly(id any) []any { return []any{map[string]any{"id": id}} }

func (c *Cloud) lbViews(kindName, attr, id string, full bool) []any {
	out := []any{}
	for _, o := range c.children(kindName, attr, id) {
		if full {
			out = append(out, c.lbView(o, true))
			continue
		}
		out = append(out, map[string]any{"id": o.id})
	}
	return out
}

func onlyFields(doc map[string]any, fields []string) map[string]any {
	if len(fields) == 0 {
		return doc
	}
	out := make(map[string]any, len(fields))
	for _, f := range fields {
		if v, ok := doc[f]; ok {
			out[f] = v
		}
	}
	return out
}

// statusTree is what GET …/status shows.
func (t *tx) statusTree(lb *object) map[string]any {
	brief := func(o *object) map[string]any {
		return map[string]any{
			"id": o.id, "name": str(o.doc, "name"), "provisioning_status": o.doc["provisioning_status"],
			"operating_status": o.doc["operating_status"],
		}
	}
	listeners := []any{}
	for _, l := range t.c.children("listener", "loadbalancer_id", lb.id) {
		pools := []any{}
		if pool, ok := t.any("pool", str(l.doc, "default_pool_id")); ok {
			p := brief(pool)
			members := []any{}
			for _, m := range t.c.children("member", "pool_id", pool.id) {
				x := brief(m)
				x["address"], x["protocol_port"] = m.doc["address"], m.doc["protocol_port"]
				members = append(members, x)
			}
			p["members"] = members
			for _, m := range t.c.children("healthmonitor", "pool_id", pool.id) {
				x := brief(m)
				x["type"] = m.doc["type"]
				p["health_monitor"] = x
			}
			pools = append(pools, p)
		}
		x := brief(l)
		x["pools"] = pools
		listeners = append(listeners, x)
	}
	tree := brief(lb)
	tree["listeners"] = listeners
	return tree
}

// balancerList is GET of a collection.
func (t *tx) balancerList(r *http.Request, where target) (response, error) {
	k := where.kind
	q, err := t.balancerQuery(k, r.URL.Query())
	if err != nil {
		return response{}, err
	}
	if where.parent != "" {
		q.filters["pool_id"] = []string{where.parent}
	}
	found := t.match(k, q)
	slices.SortFunc(found, func(a, b *object) int { return cmp.Or(q.compare(a, b), cmp.Compare(a.id, b.id)) })
	if found, err = balancerPage(found, q); err != nil {
		return response{}, err
	}
	docs := make([]any, 0, len(found))
	for _, o := range found {
		docs = append(docs, onlyFields(t.c.lbView(o, false), q.fields))
	}
	out := jsonResponse(http.StatusOK, map[string]any{k.plural: docs, k.plural + "_links": balancerLinks(r, found, q)})
	out.items = len(found)
	return out, nil
}

// balancerQuery reads a list's parameters. Octavia fails on a filter that is given twice, and on limit=0.
func (t *tx) balancerQuery(k *kind, in url.Values) (query, error) {
	q := query{filters: map[string][]string{}, limit: octaviaPage}
	if t.c.opts.PageLimit > 0 {
		q.limit = t.c.opts.PageLimit
	}
	for name, values := range in {
		v := values[0]
		switch name {
		case "fields":
			q.fields = values
		case "limit":
			n, err := strconv.Atoi(v)
			if err != nil {
				return q, octavia(http.StatusBadRequest, "InvalidLimit", "Supplied pagination limit '%s' is not valid.", v)
			}
			if n < 1 {
				return q,
					octavia(http.StatusInternalServerError, "TypeError",
						"'>=' not supported between instances of 'int' and 'NoneType'")
			}
			q.limit = min(q.limit, n)
		case "marker":
			q.marker = v
		case "page_reverse":
			q.reverse = strings.EqualFold(v, "true")
		case "sort", "sort_key", "sort_dir":
		case "tags", "tags-any", "not-tags", "not-tags-any":
			q.filters[name] = values
		case "project_id", "tenant_id":
			if !t.who.admin && v != t.who.project {
				return q, policyForbidden()
			}
			q.filters["project_id"] = values
		default:
			f, known := k.fields[name]
			if known && len(values) > 1 {
				return q, octavia(http.StatusInternalServerError, "OperationalError",
					"(pymysql.err.OperationalError) (4078, \"Illegal parameter data types varchar and row for operation '='\")")
			}
			if !known || f.flags&noFilter != 0 {
				return q,
					octavia(http.StatusBadRequest, "InvalidFilterArgument", "One or more arguments are either duplicate or invalid")
			}
			q.filters[name] = values
		}
	}
	return q, q.balancerSorts(k, in)
}

// balancerSorts reads sort=key:dir,key:dir, or sort_key and sort_dir; the time of creation comes last.
func (q *query) balancerSorts(k *kind, in url.Values) error {
	var keys, dirs []string
	if s := in.Get("sort"); s != "" {
		for _, part := range strings.Split(s, ",") {
			key, dir, _ := strings.Cut(part, ":")
			keys, dirs = append(keys, key), append(dirs, cmp.Or(dir, "asc"))
		}
	} else if s := in.Get("sort_key"); s != "" {
		keys = strings.Split(s, ",")
		for i := range keys {
			given := strings.Split(in.Get("sort_dir"), ",")
			dirs = append(dirs, "asc")
			if i < len(given) && given[i] != "" {
				dirs[i] = given[i]
			}
		}
	}
	for i, key := range append(keys, "created_at") {
		if _, ok := k.fields[key]; !ok {
			return octavia(http.StatusBadRequest, "InvalidSortKey", "Supplied sort key '%s' is not valid.", key)
		}
		s := sorting{key: key}
		if i < len(dirs) {
			if d := strings.ToLower(dirs[i]); d != "asc" && d != "desc" {
				return octavia(http.StatusBadRequest, "InvalidSortDirection", "Supplied sort direction '%s' is not valid.", dirs[i])
			}
			s.desc = strings.EqualFold(dirs[i], "desc")
		}
		q.sorts = append(q.sorts, s)
	}
	return nil
}

func balancerPage(found []*object, q query) ([]*object, error) {
	start := 0
	if q.marker != "" {
		i := slices.IndexFunc(found, func(o *object) bool { return o.id == q.marker })
		if i < 0 {
			return nil,
				octavia(http.StatusBadRequest, "InvalidMarker", "Supplied pagination marker '%s' is not valid.", q.marker)
		}
		if q.reverse {
			return found[max(0, i-q.limit):i], nil
		}
		start = i + 1
	}
	return found[start:min(start+q.limit, len(found))], nil
}

// balancerLinks are as Octavia's, which forget the filters.
func balancerLinks(r *http.Request, found []*object, q query) []any {
	out := []any{}
	if len(found) == 0 {
		return out
	}
	at := "http://" + r.Host + r.URL.Path + "?limit=" + strconv.Itoa(q.limit)
	for _, name := range []string{"sort", "sort_key"} {
		if v := r.URL.Query().Get(name); v != "" {
			at += "&" + name + "=" + v
		}
	}
	if q.marker != "" {
		out = append(out, map[string]any{"rel": "previous", "href": at + "&marker=" + found[0].id + "&page_reverse=True"})
	}
	if len(found) >= q.limit {
		out = append(out, map[string]any{"rel": "next", "href": at + "&marker=" + found[len(found)-1].id})
	}
	return out
}
