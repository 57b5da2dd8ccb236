// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/internal/stacktest"
	sim "github.com/kuryr/raven/test/sim/openstack"
)

// recorder answers by a table of "METHOD path" and keeps what it was asked.
type recorder struct {
	answers map[string]func(w http.ResponseWriter)

	mu    sync.Mutex
	asked []string
	body  map[string]any
	match string
}

func (f *recorder) serve(w http.ResponseWriter, r *http.Request) {
	line := r.Method + " " + strings.TrimPrefix(r.URL.EscapedPath(), "/net/v2.0/")
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.asked = append(f.asked, line)
	f.match = r.Header.Get("If-Match")
	f.body = nil
	_ = json.Unmarshal(body, &f.body)
	f.mu.Unlock()
	if answer := f.answers[line]; answer != nil {
		answer(w)
		return
	}
	w.WriteHeader(http.StatusNotFound)
	_, _ = io.WriteString(w, stacktest.NeutronBody("NotFound", "no"))
}

func says(status int, body string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestUpdate(t *testing.T) {
	const port = `{"port": {"id": "p", "revision_number": 8}}`
	forbidden := stacktest.NeutronBody("PolicyNotAuthorized", "rule:update_port:binding:host_id is disallowed by policy")
	tests := []struct {
		name     string
		revision int64
		attrs    map[string]any
		answer   func(http.ResponseWriter)
		class    openstack.Class
		match    string
		asked    []string
	}{
		{
			"with a revision", 7,
			map[string]any{"name": "x"},
			says(200, port), openstack.ClassNone, "revision_number=7",
			[]string{"PUT ports/p"},
		},
		{
			"of any revision", 0, map[string]any{"name": "x"}, says(200, port), openstack.ClassNone, "", []string{"PUT ports/p"},
		},
		{
			"a change that raises it itself", 7,
			map[string]any{"external_gateway_info": nil},
			says(200, port),
			openstack.ClassNone, "",
			[]string{"PUT ports/p"},
		},
		{
			"stale", 6,
			map[string]any{"name": "x"},
			says(412, stacktest.NeutronBody("RevisionNumberConstraintFailed", "Constrained to 6, but current revision is 7")),
			openstack.ClassStale, "revision_number=6",
			[]string{"PUT ports/p"},
		},
		{
			"gone", 6,
			map[string]any{"name": "x"},
			says(404, stacktest.NeutronBody("PortNotFound", "Port p could not be found.")), openstack.ClassNotFound,
			"revision_number=6",
			[]string{"PUT ports/p"},
		},
		{
			"nothing but what is not allowed", 0,
			map[string]any{"binding:host_id": "n"},
			says(403, forbidden),
			openstack.ClassNone, "",
			[]string{"PUT ports/p", "GET ports/p"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := &recorder{
				answers: map[string]func(http.ResponseWriter){"PUT ports/p": test.answer, "GET ports/p": says(200, port)},
			}
			c := connect(t, stacktest.NewStub(t, false, f.serve).Options())
			got, err := c.Update(t.Context(), drivers.KindPort, "p", test.revision, test.attrs)
			if openstack.Classify(err) != test.class || f.match != test.match {
				t.Errorf("got %v (%v), If-Match %q", err, openstack.Classify(err), f.match)
			}
			if err == nil && got.Revision != 8 {
				t.Errorf("got %+v", got)
			}
			if diff := cmp.Diff(test.asked, f.asked); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDelete(t *testing.T) {
	tests := []struct {
		name   string
		answer func(http.ResponseWriter)
		want   openstack.Class
	}{
		{"there", says(204, ""), openstack.ClassNone},
		{"gone", says(404, stacktest.NeutronBody("PortNotFound", "Port p could not be found.")), openstack.ClassNone},
		{
			"in use", says(409, stacktest.NeutronBody("PortInUse", "Unable to complete operation on port p for network n.")),
			openstack.ClassInUse,
		},
		{"refused by a proxy", says(503, ""), openstack.ClassRetry},
		{"cut", func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, openstack.ClassRetry},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := &recorder{answers: map[string]func(http.ResponseWriter){"DELETE ports/p": test.answer}}
			c := connect(t, stacktest.NewStub(t, false, f.serve).Options())
			if err := c.Delete(t.Context(), drivers.KindPort, "p"); openstack.Classify(err) != test.want {
				t.Errorf("got %v (%v), want %v", err, openstack.Classify(err), test.want)
			}
		})
	}
}

func TestTagsGoOneByOne(t *testing.T) {
	f := &recorder{answers: map[string]func(http.ResponseWriter){
		"PUT security-groups/g/tags/raven:cluster=c1": says(201, ""), "PUT security-groups/g/tags/a%20b": says(201, ""),
		"DELETE security-groups/g/tags/here": says(204, ""),
	}}
	c := connect(t, stacktest.NewStub(t, false, f.serve).Options())
	if err := c.AddTags(t.Context(), drivers.KindSecurityGroup, "g", []string{"raven:cluster=c1", "a b"}); err != nil {
		t.Error(err)
	}
	if err := c.RemoveTags(t.Context(), drivers.KindSecurityGroup, "g", []string{"here", "gone"}); err != nil {
		t.Error(err)
	}
	if err := c.AddTags(t.Context(), drivers.KindSecurityGroupRule, "r", []string{"no tags on rules"}); err != nil {
		t.Error(err)
	}
	if err := c.AddTags(
		t.Context(), drivers.KindNetwork, "gone", []string{"x"},
	); openstack.Classify(err) != openstack.ClassNotFound {
		t.Errorf("got %v", err)
	}
	want := []string{
		"PUT security-groups/g/tags/raven:cluster=c1", "PUT security-groups/g/tags/a%20b",
		"DELETE security-groups/g/tags/here",
		"DELETE security-groups/g/tags/gone", "PUT networks/gone/tags/x",
	}
	if diff := cmp.Diff(want, f.asked); diff != "" {
		t.Error(diff)
	}
}

func TestAttachAndDetach(t *testing.T) {
	const (
		add, remove = "PUT routers/r/add_router_interface", "PUT routers/r/remove_router_interface"
		get, del    = "GET ports/p", "DELETE ports/p"
		mine        = `{"port": {"id": "p", "device_owner": "network:router_interface", "device_id": "r"}}`
		others      = `{"port": {"id": "p", "device_owner": "network:router_interface", "device_id": "other"}}`
	)
	twice := stacktest.NeutronBody("BadRequest", "Bad router request: Router already has a port on subnet s.")
	used := stacktest.NeutronBody(
		"PortInUse", "Unable to complete operation on port p for network n. Port already has an attached device r.",
	)
	tests := []struct {
		name    string
		detach  bool
		answers map[string]func(http.ResponseWriter)
		want    openstack.Class
		asked   []string
	}{
		{"attached", false, map[string]func(http.ResponseWriter){add: says(200, "{}")}, openstack.ClassNone, []string{add}},
		{
			"attached before", false,
			map[string]func(http.ResponseWriter){add: says(409, used), get: says(200, mine)},
			openstack.ClassNone,
			[]string{add, get},
		},
		{
			"attached elsewhere", false,
			map[string]func(http.ResponseWriter){add: says(409, used), get: says(200, others)},
			openstack.ClassInUse,
			[]string{add, get},
		},
		{
			"another interface on the subnet", false,
			map[string]func(http.ResponseWriter){add: says(400, twice), get: says(200, `{"port": {"id": "p"}}`)},
			openstack.ClassTerminal,
			[]string{add, get},
		},
		{"no router", false, nil, openstack.ClassNotFound, []string{add}},
		{
			"detached", true,
			map[string]func(http.ResponseWriter){remove: says(200, "{}")},
			openstack.ClassNone,
			[]string{remove},
		},
		{
			"never attached", true,
			map[string]func(http.ResponseWriter){del: says(204, "")},
			openstack.ClassNone,
			[]string{remove, del},
		},
		{"gone", true, nil, openstack.ClassNone, []string{remove, del}},
		{
			"needed by a floating IP", true,
			map[string]func(http.ResponseWriter){
				remove: says(409, stacktest.NeutronBody("RouterInterfaceInUseByFloatingIP", "required")),
			},
			openstack.ClassInUse,
			[]string{remove},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := &recorder{answers: test.answers}
			c := connect(t, stacktest.NewStub(t, false, f.serve).Options())
			do := c.Attach
			if test.detach {
				do = c.Detach
			}
			if err := do(t.Context(), "r", "p"); openstack.Classify(err) != test.want {
				t.Errorf("got %v (%v), want %v", err, openstack.Classify(err), test.want)
			}
			if diff := cmp.Diff(test.asked, f.asked); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCreateBodies(t *testing.T) {
	identity := stacktest.IdentityOf(1)
	tags := []any{}
	for _, tag := range identity.Tags() {
		tags = append(tags, tag)
	}
	tests := []struct {
		name  string
		kind  drivers.Kind
		attrs map[string]any
		key   string
		want  map[string]any
	}{
		{
			"a port has both proofs", drivers.KindPort,
			map[string]any{"network_id": "n"},
			"port",
			map[string]any{"network_id": "n", "tags": tags, "description": identity.Description()},
		},
		{
			"a subnet only the description; no gateway is null", drivers.KindSubnet,
			map[string]any{"network_id": "n", "gateway_ip": ""},
			"subnet",
			map[string]any{"network_id": "n", "gateway_ip": nil, "description": identity.Description()},
		},
		{
			"an interface begins as a port", drivers.KindRouterInterface,
			map[string]any{"router_id": "r", "subnet_id": "s", "network_id": "n", "ip_address": "10.0.0.1"},
			"port",
			map[string]any{
				"network_id": "n", "fixed_ips": []any{map[string]any{"subnet_id": "s", "ip_address": "10.0.0.1"}}, "name": "port",
				"tags": tags, "description": identity.Description(),
			},
		},
		{
			"an interface in a port's words", drivers.KindRouterInterface,
			map[string]any{"network_id": "n", "fixed_ips": []any{map[string]any{"subnet_id": "s"}}, "name": "x"},
			"port",
			map[string]any{
				"network_id": "n", "fixed_ips": []any{map[string]any{"subnet_id": "s"}}, "name": "x", "tags": tags,
				"description": identity.Description(),
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			ok := says(201, `{"port": {"id": "x"}, "subnet": {"id": "x"}}`)
			f := &recorder{answers: map[string]func(http.ResponseWriter){"POST ports": ok, "POST subnets": ok}}
			c := connect(t, stacktest.NewStub(t, false, f.serve).Options())
			given, _ := json.Marshal(test.attrs)
			if _, err := c.Create(t.Context(), test.kind, identity, test.attrs); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]any{test.key: test.want}, f.body); diff != "" {
				t.Error(diff)
			}
			if after, _ := json.Marshal(test.attrs); string(after) != string(given) {
				t.Errorf("the caller's attributes were changed: %s", after)
			}
		})
	}
}

// TestCreateAmbiguous tells apart creates that may have worked from those that cannot have.
func TestCreateAmbiguous(t *testing.T) {
	tests := []struct {
		name   string
		answer func(http.ResponseWriter)
		want   openstack.Class
	}{
		{"cut before the answer", func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, openstack.ClassAmbiguous},
		{"cut in the answer", func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(201)
			_, _ = io.WriteString(w, `{"port": {"id"`)
			panic(http.ErrAbortHandler)
		}, openstack.ClassAmbiguous},
		{"an answer without the port", says(201, `{}`), openstack.ClassAmbiguous},
		{"500", says(500, stacktest.NeutronBody("HTTPInternalServerError", "Request Failed")), openstack.ClassAmbiguous},
		{"504", says(504, "<html>"), openstack.ClassAmbiguous},
		{
			"409", says(409, stacktest.NeutronBody("OverQuota", "Quota exceeded for resources: ['port'].")),
			openstack.ClassQuota,
		},
	}
	for _, kind := range []drivers.Kind{drivers.KindPort, drivers.KindRouterInterface} { // in batches and one by one
		for _, test := range tests {
			t.Run(string(kind)+" "+test.name, func(t *testing.T) {
				f := &recorder{answers: map[string]func(http.ResponseWriter){"POST ports": test.answer}}
				c := connect(t, stacktest.NewStub(t, false, f.serve).Options())
				_, err := c.Create(t.Context(), kind, stacktest.IdentityOf(1), map[string]any{"network_id": "n"})
				if openstack.Classify(err) != test.want {
					t.Errorf("got %v (%v), want %v", err, openstack.Classify(err), test.want)
				}
				f.mu.Lock()
				defer f.mu.Unlock()
				if len(f.asked) != 1 {
					t.Errorf("sent %d times", len(f.asked))
				}
			})
		}
		t.Run(string(kind)+" nobody there", func(t *testing.T) {
			s := stacktest.NewStub(t, false, stacktest.Nothing)
			config, transport := s.Options(), &http.Transport{}
			config.Transport = transport
			c := connect(t, config)
			transport.CloseIdleConnections() // otherwise it may be one of these that ends
			s.Close()
			_, err := c.Create(t.Context(), kind, stacktest.IdentityOf(1), map[string]any{"network_id": "n"})
			if openstack.Classify(err) != openstack.ClassRetry {
				t.Errorf("got %v (%v)", err, openstack.Classify(err))
			}
		})
	}
}

// TestGatewayOfARouterInUse: it can be changed though Neutron refuses every revision that is named with it.
func TestGatewayOfARouterInUse(t *testing.T) {
	_, c := startSim(t, sim.Options{})
	public, err := c.Lookup(t.Context(), drivers.KindNetwork, "public")
	if err != nil {
		t.Fatal(err)
	}
	network, subnet := place(t, c, "10.0.0.0/24")
	router := must(t, c, drivers.KindRouter, "router", map[string]any{"name": "way"})
	port := must(t, c, drivers.KindRouterInterface, "rif.way", map[string]any{
		"network_id": network.ID, "fixed_ips": []any{map[string]any{"subnet_id": subnet.ID}},
	})
	if err := c.Attach(t.Context(), router.ID, port.ID); err != nil {
		t.Fatal(err)
	}
	now, err := c.Get(t.Context(), drivers.KindRouter, router.ID)
	if err != nil {
		t.Fatal(err)
	}
	now, err = c.Update(
		t.Context(), now.Kind, now.ID, now.Revision,
		map[string]any{"external_gateway_info": map[string]any{"network_id": public.ID}},
	)
	if err != nil || now.Attrs["external_gateway_info"] == nil {
		t.Errorf("%v, %v", now.Attrs, err)
	}
}
