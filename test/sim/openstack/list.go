// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// query is what a list asks for.
type query struct {
	filters map[string][]string
	fields  []string
	sorts   []sorting
	limit   int
	marker  string
	reverse bool
}

type sorting struct {
	key  string
	desc bool
}

// list is GET of a collection.
func (t *tx) list(r *http.Request, k *kind) (response, error) {
	q, err := parseQuery(k, r.URL.Query(), t.c.opts.PageLimit)
	if err != nil {
		return response{}, err
	}
	found := t.match(k, q)
	sortObjects(found, q)
	if q.limit > 0 {
		if found, err = page(found, q, k); err != nil {
			return response{}, err
		}
	}
	var b bytes.Buffer
	b.WriteString("{" + quote(k.plural) + ":[")
	for i, o := range found {
		if i > 0 {
			b.WriteByte(',')
		}
		if len(q.fields) > 0 {
			enc, err := json.Marshal(t.c.narrow(t.who, o, q.fields))
			if err != nil {
				return response{}, fmt.Errorf("encoding %s: %w", o.id, err)
			}
			b.Write(enc)
			continue
		}
		b.Write(t.c.encode(t.who, o))
	}
	b.WriteByte(']')
	if links := pageLinks(r, found, q); len(links) > 0 {
		enc, err := json.Marshal(links)
		if err != nil {
			return response{}, fmt.Errorf("encoding links: %w", err)
		}
		b.WriteString("," + quote(k.plural+"_links") + ":")
		b.Write(enc)
	}
	b.WriteByte('}')
	return response{status: http.StatusOK, body: b.Bytes(), items: len(found)}, nil
}

func parseQuery(k *kind, in url.Values, pageLimit int) (query, error) {
	q := query{filters: map[string][]string{}}
	var bad []string
	for name, values := range in {
		switch name {
		case "fields":
			q.fields = values
		case "limit":
			n, err := strconv.Atoi(values[0])
			if err != nil || n < 0 {
				return q, badResource("limit", "Limit must be an integer 0 or greater and not '%s'", values[0])
			}
			q.limit = n
		case "marker":
			q.marker = values[0]
		case "page_reverse":
			q.reverse = strings.EqualFold(values[0], "true")
		case "sort_key", "sort_dir", "verbose":
		default:
			f, known := k.fields[name]
			if !known || f.flags&noFilter != 0 {
				bad = append(bad, name)
				continue
			}
			q.filters[name] = values
		}
	}
	if bad != nil {
		slices.Sort(bad)
		return q, badRequest("%s is invalid attribute for filtering", pyList(bad))
	}
	if pageLimit > 0 && (q.limit == 0 || q.limit > pageLimit) {
		q.limit = pageLimit
	}
	return q, q.parseSorts(k, in["sort_key"], in["sort_dir"])
}

func (q *query) parseSorts(k *kind, keys, dirs []string) error {
	if len(keys) != len(dirs) {
		return badRequest("The number of sort_keys and sort_dirs must be same")
	}
	for i, key := range keys {
		if _, ok := k.fields[key]; !ok {
			return badRequest("%s is invalid attribute for sort_keys", pyList([]string{key}))
		}
		if dirs[i] != "asc" && dirs[i] != "desc" {
			return badRequest("%s is invalid value for sort_dirs, valid value is 'asc' and 'desc'", pyList([]string{dirs[i]}))
		}
		q.sorts = append(q.sorts, sorting{key, dirs[i] == "desc"})
	}
	return nil
}

// match returns the resources that pass every filter and that the request may see.
func (t *tx) match(k *kind, q query) []*object {
	var out []*object
	check := func(o *object) {
		if t.c.visible(t.who, o) && passes(o, q.filters) {
			out = append(out, o)
		}
	}
	tab := t.c.tables[k.name]
	if ids, ok := q.filters["id"]; ok {
		for _, id := range ids {
			if o, there := tab.byID[id]; there {
				check(o)
			}
		}
		return dedupe(out)
	}
	if sets := candidates(tab, q.filters); sets != nil {
		for _, set := range sets {
			for o := range set {
				check(o)
			}
		}
		return dedupe(out)
	}
	for _, o := range tab.byID {
		check(o)
	}
	return out
}

func dedupe(in []*object) []*object {
	seen := make(map[*object]bool, len(in))
	return slices.DeleteFunc(in, func(o *object) bool {
		was := seen[o]
		seen[o] = true
		return was
	})
}

// candidates returns the smallest sets, by index, that hold everything that passes; nil if no filter has an index.
func candidates(tab *table, filters map[string][]string) []map[*object]struct{} {
	var best []map[*object]struct{}
	size, found := 0, false
	consider := func(name string, values []string) {
		n := 0
		sets := make([]map[*object]struct{}, 0, len(values))
		for _, v := range values {
			if v == "" {
				return // the empty string is not indexed
			}
			s := tab.index[name][v]
			sets = append(sets, s)
			n += len(s)
		}
		if !found || n < size {
			best, size, found = sets, n, true
		}
	}
	for name, values := range filters {
		switch name {
		case "tags":
			for _, tag := range splitTags(values) {
				consider("tags", []string{tag})
			}
		case "tags-any":
			consider("tags", splitTags(values))
		case "fixed_ips":
			for _, part := range []string{"subnet_id", "ip_address"} {
				if v := fixedIPFilter(values)[part]; v != nil {
					consider("fixed_ips."+part, v)
				}
			}
		case "tenant_id":
			consider("project_id", values)
		default:
			if _, ok := tab.index[name]; ok {
				consider(name, values)
			}
		}
	}
	return best
}

func splitTags(values []string) []string {
	var out []string
	for _, v := range values {
		out = append(out, strings.Split(v, ",")...)
	}
	return out
}

// fixedIPFilter parses the values of the filter fixed_ips, like subnet_id=X: name to values.
func fixedIPFilter(values []string) map[string][]string {
	out := map[string][]string{}
	for _, v := range values {
		name, value, _ := strings.Cut(v, "=")
		out[name] = append(out[name], value)
	}
	return out
}

func passes(o *object, filters map[string][]string) bool {
	for name, values := range filters {
		if !passesOne(o, name, values) {
			return false
		}
	}
	return true
}

func passesOne(o *object, name string, values []string) bool {
	has := func(tag string) bool { return slices.Contains(list(o.doc, "tags"), any(tag)) }
	lacks := func(tag string) bool { return !has(tag) }
	switch name {
	case "tags":
		return !slices.ContainsFunc(splitTags(values), lacks)
	case "tags-any":
		return slices.ContainsFunc(splitTags(values), has)
	case "not-tags":
		return slices.ContainsFunc(splitTags(values), lacks)
	case "not-tags-any":
		return !slices.ContainsFunc(splitTags(values), has)
	case "changed_since":
		return str(o.doc, "updated_at") >= strings.TrimSuffix(values[0], "Z")
	case "fixed_ips":
		for part, want := range fixedIPFilter(values) {
			if !slices.ContainsFunc(list(o.doc, "fixed_ips"), func(f any) bool { return fixedIPPasses(f, part, want) }) {
				return false
			}
		}
		return true
	}
	return slices.ContainsFunc(values, func(v string) bool { return equals(o.doc[name], v) })
}

func fixedIPPasses(f any, part string, want []string) bool {
	m, _ := f.(map[string]any)
	if part == "ip_address_substr" {
		return slices.ContainsFunc(want, func(w string) bool { return strings.Contains(str(m, "ip_address"), w) })
	}
	return slices.Contains(want, str(m, part))
}

// equals compares a value with a filter's text.
func equals(v any, want string) bool {
	switch x := v.(type) {
	case nil:
		return want == ""
	case string:
		return x == want
	case bool:
		b, err := asBool(want)
		return err == nil && b == x
	case []any:
		return slices.ContainsFunc(x, func(y any) bool { return equals(y, want) })
	}
	return fmt.Sprint(v) == want
}

// compare compares two objects by the keys that the query sorts by.
func (q query) compare(a, b *object) int {
	for _, s := range q.sorts {
		n := compareValues(a.doc[s.key], b.doc[s.key])
		if s.desc {
			n = -n
		}
		if n != 0 {
			return n
		}
	}
	return 0
}

func sortObjects(found []*object, q query) {
	slices.SortFunc(found, func(a, b *object) int {
		if n := q.compare(a, b); n != 0 {
			return n
		}
		if q.limit > 0 || len(q.sorts) > 0 {
			return cmp.Compare(a.id, b.id)
		}
		return cmp.Compare(a.seq, b.seq)
	})
}

func compareValues(a, b any) int {
	x, okX := a.(int64)
	y, okY := b.(int64)
	if okX && okY {
		return cmp.Compare(x, y)
	}
	if a == nil || b == nil {
		return cmp.Compare(btoi(a != nil), btoi(b != nil))
	}
	return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b))
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// page cuts one page out of the sorted list.
func page(found []*object, q query, k *kind) ([]*object, error) {
	start := 0
	if q.marker != "" {
		i := slices.IndexFunc(found, func(o *object) bool { return o.id == q.marker })
		if i < 0 {
			return nil, k.missing(q.marker)
		}
		start = i + 1
		if q.reverse {
			return found[max(0, i-q.limit):i], nil
		}
	}
	return found[start:min(start+q.limit, len(found))], nil
}

// pageLinks are as Neutron's: a full page has a next one, be it empty.
func pageLinks(r *http.Request, found []*object, q query) []any {
	if q.limit == 0 {
		return nil
	}
	link := func(rel string, o *object) map[string]any {
		params := r.URL.Query()
		params.Del("marker")
		params.Del("page_reverse")
		if o != nil {
			params.Set("marker", o.id)
		}
		if rel == "previous" {
			params.Set("page_reverse", "True")
		}
		return map[string]any{"rel": rel, "href": "http://" + r.Host + r.URL.Path + "?" + params.Encode()}
	}
	var first, last *object
	if len(found) > 0 {
		first, last = found[0], found[len(found)-1]
	}
	var out []any
	if len(found) >= q.limit || q.reverse {
		out = append(out, link("next", last))
	}
	if len(found) >= q.limit || !q.reverse {
		out = append(out, link("previous", first))
	}
	return out
}
