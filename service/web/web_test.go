// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service"
	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
	"github.com/kuryr/raven/service/web"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ service.Service = (*web.Server)(nil)

// source is a state that tests fill.
type source struct {
	mu      sync.Mutex // guards objects
	objects []reconcile.ObjectStatus
	changed atomic.Uint64
	read    atomic.Int64
}

func (s *source) Overview() any { return map[string]string{"cluster": "c1"} }
func (s *source) Describe(f reconcile.Filter) any {
	return map[string]string{"asked": f.Kind + " " + f.Namespace + " " + f.Name}
}

func (s *source) Objects() []reconcile.ObjectStatus {
	s.read.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects
}
func (s *source) Counts() map[state.Phase]int { return map[state.Phase]int{state.Done: 2} }
func (s *source) Changes() uint64             { return s.changed.Load() }

func (s *source) set(objects ...reconcile.ObjectStatus) {
	s.mu.Lock()
	s.objects = objects
	s.mu.Unlock()
	s.changed.Add(1)
}

func object(driver, kind, namespace, name string, phase state.Phase, resources ...reconcile.ResourceStatus,
) reconcile.ObjectStatus {
	return reconcile.ObjectStatus{
		Driver: driver, Kind: kind, Namespace: namespace, Name: name, UID: kind + name, State: phase, Resources: resources,
	}
}

func resource(kind drivers.Kind, id string, attrs map[string]any) reconcile.ResourceStatus {
	return reconcile.ResourceStatus{Kind: kind, Name: "name of " + id, ID: id, Status: "ACTIVE", Attrs: attrs}
}

// shop is a namespace with two pods, one of which waits, beside an empty one.
func shop() []reconcile.ObjectStatus {
	waiting := object("pod", "Pod", "shop", "web-1", state.Waiting)
	waiting.Reasons = []string{"quota of ports is exhausted"}
	return []reconcile.ObjectStatus{
		object(state.Shared, "", "", "", state.Done, resource(drivers.KindRouter, "r1", nil)),
		object("namespace", "Namespace", "", "shop", state.Done,
			resource(drivers.KindNetwork, "n1", nil),
			resource(drivers.KindSubnet, "s1", map[string]any{"network_id": "n1", "cidr": "10.0.0.0/24"}),
			resource(drivers.KindRouterInterface, "i1", map[string]any{"router_id": "r1", "subnet_id": "s1"})),
		object("namespace", "Namespace", "", "blog", state.Done),
		object("pod", "Pod", "shop", "web-0", state.Done, resource(drivers.KindPort, "p1", map[string]any{
			"network_id": "n1", "fixed_ips": []any{map[string]any{"subnet_id": "s1", "ip_address": "10.0.0.7"}},
		})),
		waiting,
		object("networkpolicy", "Pod", "shop", "web-0", state.Failing),
	}
}

func start(t *testing.T, c web.Config, s *source) *web.Server {
	t.Helper()
	c.Enabled, c.Source, c.Logger = true, s, slog.New(slog.DiscardHandler)
	if c.Host == "" {
		c.Host = "127.0.0.1"
	}
	server := web.New(c)
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(server.Stop(context.Background(), true), server.Wait()); err != nil {
			t.Error(err)
		}
	})
	return server
}

func ask(t *testing.T, handler http.Handler, target string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:8084"+target, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

func decode[T any](t *testing.T, w *httptest.ResponseRecorder) (document T) {
	t.Helper()
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &document); err != nil {
		t.Fatal(err)
	}
	return document
}

func handler(t *testing.T, objects ...reconcile.ObjectStatus) http.Handler {
	t.Helper()
	s := &source{}
	s.set(objects...)
	return web.New(web.Config{Source: s}).Handler()
}

func lines(topology web.Topology) (list []string) {
	for _, g := range topology.Groups {
		list = append(list, fmt.Sprintf("group %s %d %v", g.Namespace, g.Objects, g.States))
	}
	for _, n := range topology.Nodes {
		list = append(list, strings.TrimSpace(fmt.Sprintf("node %s %s%s", n.ID, n.State, n.Status)))
	}
	for _, e := range topology.Edges {
		list = append(list, "edge "+e.From+" "+e.To)
	}
	return list
}

func TestTopology(t *testing.T) {
	t.Parallel()
	folded := []string{
		"group blog 1 map[done:1]", "group shop 3 map[done:1 failing:1 waiting:1]", "node router:r1 ACTIVE",
		"edge group/shop router:r1",
	}
	for name, test := range map[string]struct {
		query string
		want  []string
	}{
		"folded": {"", folded},
		"expanded": {"?namespace=shop", []string{
			"group blog 1 map[done:1]", "group shop 3 map[done:1 failing:1 waiting:1]", "node router:r1 ACTIVE",
			"node Namespace//shop done", "node Pod/shop/web-0 failing", "node Pod/shop/web-1 waiting",
			"node network:n1 ACTIVE", "node subnet:s1 ACTIVE",
			"edge Namespace//shop network:n1", "edge Namespace//shop router:r1", "edge Namespace//shop subnet:s1",
			"edge Pod/shop/web-0 subnet:s1", "edge subnet:s1 network:n1",
		}},
		"too many": {"?namespace=shop&limit=1", []string{
			"group blog 1 map[done:1]", "group shop 3 map[done:1 failing:1 waiting:1]", "node router:r1 ACTIVE",
			"node Pod/shop/web-0 failing",
		}},
		"by state": {"?state=waiting", []string{
			"group shop 1 map[waiting:1]", "node router:r1 ACTIVE", "edge group/shop router:r1",
		}},
		"by driver": {"?driver=networkpolicy&kind=Pod", []string{
			"group shop 1 map[failing:1]", "node router:r1 ACTIVE", "edge group/shop router:r1",
		}},
		"no such":    {"?kind=Service", []string{"node router:r1 ACTIVE", "edge group/shop router:r1"}},
		"by unknown": {"?namespace=none", folded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			have := decode[web.Topology](t, ask(t, handler(t, shop()...), "/api/topology"+test.query))
			if diff := cmp.Diff(test.want, lines(have)); diff != "" {
				t.Error(diff)
			}
		})
	}
	if have := decode[web.Topology](t, ask(t, handler(t), "/api/topology")); !have.StandingBy {
		t.Error("a process that stands by does not say so")
	}
}

func TestDocuments(t *testing.T) {
	t.Parallel()
	h := handler(t, shop()...)
	page := decode[web.Page](t, ask(t, h, "/api/object?kind=Pod&namespace=shop&name=web-0"))
	var links []string
	for _, n := range page.Links {
		links = append(links, n.ID)
	}
	if diff := cmp.Diff([]string{"subnet:s1"}, links); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]any{"asked": "Pod shop web-0"}, page.Document); diff != "" {
		t.Error(diff)
	}
	if w := ask(t, h, "/api/object"); w.Code != http.StatusBadRequest {
		t.Error("an object without a name:", w.Code)
	}
	for query, want := range map[string][]string{
		"WEB-1": {"Pod/shop/web-1 name"}, "10.0.0.7": {"Pod/shop/web-0 port fixed_ips"}, "p1": {"Pod/shop/web-0 port p1"},
		"10.0.0.0/24": {"Namespace//shop subnet cidr"}, "nothing": nil, "": nil,
	} {
		var have []string
		for _, o := range decode[web.Found](t, ask(t, h, "/api/search?q="+query)).Objects {
			have = append(have, o.ID+" "+o.By)
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%q: %s", query, diff)
		}
	}
	overview := decode[web.Overview](t, ask(t, h, "/api/overview"))
	if len(overview.Problems) != 2 || overview.Problems[0].ID != "Pod/shop/web-0" || overview.Report == nil {
		t.Errorf("%+v", overview)
	}
}

func TestGuard(t *testing.T) {
	t.Parallel()
	h := handler(t, shop()...)
	w := ask(t, h, "/")
	policy := w.Header().Get("Content-Security-Policy")
	if w.Code != http.StatusOK || !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") ||
		!strings.Contains(w.Body.String(), "Raven") {
		t.Errorf("%d %q %s", w.Code, policy, w.Body)
	}
	for _, method := range []string{
		http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions,
	} {
		for _, path := range []string{"/", "/api/topology", "/api/changes"} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1"+path, nil))
			if w.Code != http.StatusMethodNotAllowed {
				t.Error(method, path, w.Code)
			}
		}
	}
	for host, want := range map[string]int{
		"localhost:8084": 200, "[::1]:8084": 200, "127.0.0.1": 200, "evil.example:8084": 421, "10.0.0.1": 421, "": 421,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/", nil)
		r.Host = host
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("host %q: %d, want %d", host, w.Code, want)
		}
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	const token = "0123456789abcdef"
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := start(t, web.Config{Host: "0.0.0.0", TokenFile: file}, &source{}).Handler()
	basic := func(password string) string {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.SetBasicAuth("anybody", password)
		return r.Header.Get("Authorization")
	}
	for value, want := range map[string]int{
		"": 401, "Bearer " + token: 200, "Bearer wrong": 401, basic(token): 200, basic("wrong"): 401, basic(""): 401,
	} {
		for _, path := range []string{"/", "/api/overview"} {
			if w := ask(t, h, path, "Authorization", value); w.Code != want {
				t.Errorf("%s with %q: %d, want %d", path, value, w.Code, want)
			}
		}
	}
}

func TestRefusedOptions(t *testing.T) {
	t.Parallel()
	short := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(short, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for option, c := range map[string]web.Config{
		"host": {Host: "192.0.2.1"}, "token_file": {Host: "127.0.0.1", TokenFile: short},
	} {
		c.Enabled, c.Source = true, &source{}
		err := web.New(c).Start(t.Context())
		if problem, ok := errors.AsType[*config.Error](err); !ok || problem.Option != option ||
			strings.Contains(err.Error(), "secret\n") {
			t.Errorf("%s: %v", option, err)
		}
	}
	off := web.New(web.Config{Host: "192.0.2.1", Source: &source{}})
	if err := errors.Join(off.Start(t.Context()), off.Stop(t.Context(), true), off.Wait()); err != nil {
		t.Error("a page that is not enabled:", err)
	}
}

// stream opens a stream of changes.
func stream(t *testing.T, s *web.Server) io.ReadCloser {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Address()+"/api/changes", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		t.Fatal(response.Status)
	}
	return response.Body
}

// await reads a stream until it tells of a generation or a later one.
func await(t *testing.T, lines *bufio.Scanner, generation uint64) {
	t.Helper()
	for lines.Scan() {
		var event struct{ Generation uint64 }
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			if err := json.Unmarshal([]byte(data), &event); err != nil {
				t.Fatal(err)
			}
			if event.Generation >= generation {
				return
			}
		}
	}
	t.Fatalf("the stream ended before generation %d: %v", generation, lines.Err())
}

// A page that reads nothing costs nothing, and others are told all the same; what came meanwhile is one event.
func TestChanges(t *testing.T) {
	t.Parallel()
	src := &source{}
	src.set(shop()...)
	s := start(t, web.Config{}, src)
	stream(t, s) // is never read
	fast := bufio.NewScanner(stream(t, s))
	await(t, fast, 1)
	const many = 1000
	for range many {
		src.set(shop()...)
	}
	await(t, fast, many+1)
	if reads := src.read.Load(); reads > 10 {
		t.Errorf("the state was read %d times for %d changes in a row", reads, many)
	}
	src.set()
	await(t, fast, many+2)
}

func TestStreamsEndWithTheServer(t *testing.T) {
	t.Parallel()
	s := web.New(web.Config{Enabled: true, Host: "127.0.0.1", Source: &source{}, Logger: slog.New(slog.DiscardHandler)})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	body := stream(t, s)
	if err := s.Stop(t.Context(), true); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(body); err != nil {
		t.Error("the stream was torn:", err)
	}
}

func TestLink(t *testing.T) {
	t.Parallel()
	const want = "http://127.0.0.1:8084/#/object/Pod/shop/a%2Fb%3Cc%3E"
	if have := web.Link("http://127.0.0.1:8084/", "Pod", "shop", "a/b<c>"); have != want {
		t.Error(have)
	}
}

func TestURL(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]web.Config{
		"http://127.0.0.1:8084": {Enabled: true, Host: "127.0.0.1", Port: 8084},
		"http://[::1]:8084":     {Enabled: true, Host: "::1", Port: 8084},
		"":                      {Host: "127.0.0.1", Port: 8084},
	} {
		if have := c.URL(); have != want {
			t.Errorf("%+v: %q, want %q", c, have, want)
		}
	}
}
