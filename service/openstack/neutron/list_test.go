// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/internal/stacktest"
	"github.com/kuryr/raven/service/plan"
)

// shelf is a Neutron that lists: filters by equality and tags, sorts by id, pages, and can be told to misbehave.
type shelf struct {
	docs     map[string][]map[string]any // by collection
	page     int
	before   func(w http.ResponseWriter, r *http.Request, n int) bool // true: it has answered
	mu       sync.Mutex
	requests []string
}

func (s *shelf) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path+"?"+r.URL.RawQuery)
	n := len(s.requests)
	s.mu.Unlock()
	if s.before != nil && s.before(w, r, n) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	many := strings.TrimPrefix(r.URL.Path, "/net/v2.0/")
	key := strings.ReplaceAll(many, "-", "_")
	var found []map[string]any
	for _, doc := range s.docs[many] {
		if matches(doc, r.URL.Query()) {
			found = append(found, doc)
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i]["id"].(string) < found[j]["id"].(string) })
	if marker := r.URL.Query().Get("marker"); marker != "" {
		at := slices.IndexFunc(found, func(d map[string]any) bool { return d["id"] == marker })
		if at < 0 {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, stacktest.NeutronBody("PortNotFound", "Port "+marker+" could not be found."))
			return
		}
		found = found[at+1:]
	}
	answer := map[string]any{}
	if s.page > 0 && len(found) > s.page {
		found = found[:s.page]
		answer[key+"_links"] = []any{map[string]any{"rel": "next", "href": "http://behind.the.proxy/elsewhere"}}
	}
	if found == nil {
		found = []map[string]any{}
	}
	answer[key] = found
	_ = json.NewEncoder(w).Encode(answer)
}

func matches(doc map[string]any, query map[string][]string) bool {
	tags, _ := doc["tags"].([]string)
	for key, values := range query {
		switch key {
		case "limit", "marker", "fields":
		case "tags":
			for _, tag := range strings.Split(values[0], ",") {
				if !slices.Contains(tags, tag) {
					return false
				}
			}
		case "not-tags":
			if slices.Contains(tags, values[0]) {
				return false
			}
		default:
			if text, _ := doc[key].(string); !slices.Contains(values, text) {
				return false
			}
		}
	}
	return true
}

func ids(observed []plan.Observed) []string {
	var list []string
	for _, o := range observed {
		list = append(list, string(o.Kind)+" "+o.ID)
	}
	slices.Sort(list)
	return list
}

func portDoc(id, project string, identity *plan.Identity, tagged, described bool) map[string]any {
	doc := map[string]any{
		"id": id, "project_id": project, "tags": []string{"operator"}, "description": "words of an operator",
		"revision_number": 3,
	}
	if identity != nil && tagged {
		doc["tags"] = append(identity.Tags(), "operator")
	}
	if identity != nil && described {
		doc["description"] = "see " + identity.Description() + " ok"
	}
	return doc
}

func someShelf() *shelf {
	own, other := stacktest.IdentityOf(1), stacktest.IdentityOf(1)
	other.Cluster = "c2"
	rif := own
	rif.Name = "rif.router"
	attached := portDoc("d-attached", "p1", &rif, true, true)
	attached["device_owner"], attached["device_id"] = "network:router_interface", "r1"
	attached["fixed_ips"] = []any{map[string]any{"subnet_id": "s1", "ip_address": "10.0.0.1"}}
	return &shelf{docs: map[string][]map[string]any{
		"ports": {
			portDoc("a-both", "p1", &own, true, true), portDoc("b-tags", "p1", &own, true, false),
			portDoc("c-text", "p1", &own, false, true), attached, portDoc("e-made", "p1", &rif, true, true),
			portDoc("f-foreign", "p1", nil, false, false), portDoc("g-other-cluster", "p1", &other, true, true),
			portDoc("h-other-project", "p2", &own, true, true), portDoc("i-other-text", "p1", &other, false, true),
		},
		"networks": {
			portDoc("n1", "p1", &own, false, true), portDoc("n2", "p1", nil, false, false),
			portDoc("n3", "p1", &other, false, true),
		},
		"security-group-rules": {
			{
				"id": "r1", "project_id": "p1", "description": own.Description(),
			}, {
				"id": "r2", "project_id": "p1",
				"description": "",
			},
		},
	}}
}

func TestListFindsByEitherProof(t *testing.T) {
	for _, page := range []int{0, 1, 2} {
		t.Run(fmt.Sprintf("pages of %d", page), func(t *testing.T) {
			s := someShelf()
			s.page = page
			c := connect(t, stacktest.NewStub(t, false, s.serve).Options())
			all, err := c.Observe(t.Context(), "c1")
			if err != nil {
				t.Fatal(err)
			}
			want := []string{
				"network n1", "port a-both", "port b-tags", "port c-text", "router_interface d-attached",
				"router_interface e-made", "security_group_rule r1",
			}
			if diff := cmp.Diff(want, ids(all)); diff != "" {
				t.Error(diff)
			}
			for _, o := range all {
				switch o.ID {
				case "d-attached":
					want := map[string]any{"router_id": "r1", "subnet_id": "s1", "ip_address": "10.0.0.1"}
					for key, value := range want {
						if o.Attrs[key] != value {
							t.Errorf("%s is %v, want %v", key, o.Attrs[key], value)
						}
					}
				case "e-made":
					if _, set := o.Attrs["router_id"]; set {
						t.Error("an interface that is not attached has a router")
					}
				case "a-both":
					if o.Revision != 3 || o.Attrs["revision_number"] != int64(3) {
						t.Errorf("revision %d, %T", o.Revision, o.Attrs["revision_number"])
					}
				case "r1":
					if len(o.Tags) != 4 {
						t.Errorf("a rule, which has no tags, misses some: %v", o.Tags)
					}
				}
			}
			ports, err := c.List(t.Context(), drivers.KindPort, "c1")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"port a-both", "port b-tags", "port c-text"}, ids(ports)); diff != "" {
				t.Error(diff)
			}
			identity := stacktest.IdentityOf(1)
			identity.Policy = drivers.Retain
			found, err := c.ListIdentity(t.Context(), drivers.KindPort, identity)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"port a-both", "port b-tags"}, ids(found)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestListRequests(t *testing.T) {
	s := someShelf()
	s.docs["ports"] = s.docs["ports"][:2]
	c := connect(t, stacktest.NewStub(t, false, s.serve).Options())
	if _, err := c.Observe(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	if len(s.requests) != 9 { // two for ports, one for each of the other seven kinds
		t.Errorf("%d requests:\n%s", len(s.requests), strings.Join(s.requests, "\n"))
	}
}

// TestPartialListIsAnError breaks the second page in every way that a network can.
func TestPartialListIsAnError(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(w http.ResponseWriter)
	}{
		{"500", func(w http.ResponseWriter) { w.WriteHeader(500) }},
		{"cut before the answer", func(http.ResponseWriter) { panic(http.ErrAbortHandler) }},
		{"cut in the answer", func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"ports": [{"id": "z"}`)
			panic(http.ErrAbortHandler)
		}},
		{"half a document", func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"ports": [{"id": "z"}`) }},
		{"no list", func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{}`) }},
		{"a page of something else", func(w http.ResponseWriter) { _, _ = io.WriteString(w, `<html>maintenance</html>`) }},
		{"the same page again", func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `{"ports": [{"id": "b-tags"}], "ports_links": [{"rel": "next"}]}`)
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := someShelf()
			s.page = 2
			s.before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
				if !r.URL.Query().Has("marker") || !r.URL.Query().Has("tags") {
					return false
				}
				test.spoil(w)
				return true
			}
			c := connect(t, stacktest.NewStub(t, false, s.serve).Options())
			found, err := c.List(t.Context(), drivers.KindPort, "c1")
			if err == nil || found != nil {
				t.Fatalf("got %v, %v", ids(found), err)
			}
			if got := openstack.Classify(err); got != openstack.ClassRetry {
				t.Errorf("%v is %v", err, got)
			}
			if all, err := c.Observe(t.Context(), "c1"); err == nil {
				t.Errorf("observed %v", ids(all))
			}
			if found, err := c.ListIdentity(
				t.Context(), drivers.KindRouterInterface, plan.Identity{Cluster: "c1"},
			); err != nil || found != nil {
				t.Errorf("a search of one page: %v, %v", found, err)
			}
		})
	}
}

// TestMarkerDeleted deletes the port at which a page ended: the list begins again.
func TestMarkerDeleted(t *testing.T) {
	s := someShelf()
	s.page = 2
	deleted := false
	s.before = func(_ http.ResponseWriter, r *http.Request, _ int) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if marker := r.URL.Query().Get("marker"); marker == "b-tags" && !deleted {
			deleted = true
			s.docs["ports"] = slices.DeleteFunc(s.docs["ports"], func(d map[string]any) bool { return d["id"] == marker })
		}
		return false
	}
	c := connect(t, stacktest.NewStub(t, false, s.serve).Options())
	found, err := c.List(t.Context(), drivers.KindPort, "c1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"port a-both", "port c-text"}, ids(found)); diff != "" || !deleted {
		t.Errorf("deleted: %t %s", deleted, diff)
	}
}

// TestManySearchesShareAList is what happens after a bulk create was cut.
func TestManySearchesShareAList(t *testing.T) {
	s := &shelf{docs: map[string][]map[string]any{}}
	for i := range 50 {
		identity := stacktest.IdentityOf(i)
		s.docs["ports"] = append(s.docs["ports"], portDoc(fmt.Sprintf("port-%02d", i), "p1", &identity, true, true))
	}
	c := connect(t, stacktest.NewStub(t, false, s.serve).Options())
	var wait sync.WaitGroup
	for i := range 100 {
		wait.Go(func() {
			found, err := c.ListIdentity(t.Context(), drivers.KindPort, stacktest.IdentityOf(i))
			if err != nil || len(found) > 1 || (len(found) == 1) != (i < 50) {
				t.Errorf("%d: %v, %v", i, ids(found), err)
			}
		})
	}
	wait.Wait()
	if len(s.requests) > 20 {
		t.Errorf("%d requests for 100 searches", len(s.requests))
	}
}

func TestLookup(t *testing.T) {
	s := &shelf{docs: map[string][]map[string]any{"networks": {
		{
			"id": "n1", "name": "public",
		}, {"id": "n2", "name": "twice"}, {"id": "n3", "name": "twice"}, {
			"id":   "n4",
			"name": "n1",
		},
	}}}
	c := connect(t, stacktest.NewStub(t, false, s.serve).Options())
	tests := []struct {
		ask, want string
		class     openstack.Class
	}{
		{
			"public", "n1", openstack.ClassNone,
		}, {"n1", "n1", openstack.ClassNone}, {
			"twice", "",
			openstack.ClassTerminal,
		}, {"none", "", openstack.ClassNotFound},
	}
	for _, test := range tests {
		got, err := c.Lookup(t.Context(), drivers.KindNetwork, test.ask)
		if got.ID != test.want || openstack.Classify(err) != test.class {
			t.Errorf("%q: got %q, %v (%v)", test.ask, got.ID, err, openstack.Classify(err))
		}
	}
}
