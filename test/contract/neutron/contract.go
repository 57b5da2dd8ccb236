// SPDX-License-Identifier: Apache-2.0

// Package neutron is what Raven relies on of a Neutron API, as tests that run against the simulated cloud and against
// real ones alike. It must never touch what it did not make: everything it makes has its own random prefix, and is
// deleted at the end.
package neutron

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/gophercloud/gophercloud/v2"

	"github.com/kuryr/raven/test/contract/rest"
)

// Target is a cloud under test. The credentials are a plain member's.
type Target struct {
	// Network is Neutron, logged in.
	Network *gophercloud.ServiceClient
	// Login logs in once more, as the same user, for a token that no other test has.
	Login func(context.Context) (*gophercloud.ProviderClient, error)
	// Admin is Neutron as an administrator sees it, who may change quotas. nil: quotas are read, not met.
	Admin *gophercloud.ServiceClient
	// Simulated says that it is the simulation: of the known differences it has the other side.
	Simulated bool
	// Timeout bounds one request. 0: two minutes.
	Timeout time.Duration
}

// api is one test's way to the cloud. It deletes what the test made.
type api struct {
	t      *testing.T
	target Target
	prefix string // of names and tags
	http   *http.Client
}

func newAPI(t *testing.T, target Target) *api {
	t.Helper()
	if target.Timeout == 0 {
		target.Timeout = 2 * time.Minute
	}
	return &api{
		t: t, target: target, prefix: "raven-contract-" + uuid.NewString()[:8], http: rest.Client(t, target.Timeout),
	}
}

type (
	attrs = rest.Attrs
	reply = rest.Reply
)

// errorTypeOf returns the exception's name of an error body.
func errorTypeOf(r reply) string {
	e, _ := r.Body["NeutronError"].(attrs)
	return rest.Text(e, "type")
}

// do makes a request: path is below /v2.0, headers are "Name: value".
func (a *api) do(method, path string, body any, headers ...string) reply {
	a.t.Helper()
	return a.request(method, a.target.Network.Endpoint+"v2.0"+path, body, headers...)
}

func (a *api) request(method, url string, body any, headers ...string) reply {
	a.t.Helper()
	r := rest.Do(a.t, a.http, a.target.Network, method, url, body, headers...)
	if text := strings.TrimSpace(r.Text); r.Body == nil && text != "" && text != "null" { // what Neutron says of a tag
		a.t.Fatalf("%s %s: %s, which is no JSON document", method, url, r)
	}
	return r
}

// must makes a request that has to go well.
func (a *api) must(method, path string, body any, headers ...string) reply {
	a.t.Helper()
	r := a.do(method, path, body, headers...)
	if r.Status < 200 || r.Status > 299 {
		a.t.Fatalf("%s %s: %s", method, path, r)
	}
	return r
}

// refused makes a request that has to be refused so.
func (a *api) refused(status int, errorType, method, path string, body any, headers ...string) reply {
	a.t.Helper()
	r := a.do(method, path, body, headers...)
	if r.Status != status || errorTypeOf(r) != errorType {
		a.t.Errorf("%s %s %v: got %s; want %d %s", method, path, body, r, status, errorType)
	}
	if method == http.MethodPost && r.Status == http.StatusCreated { // it has to go all the same
		for _, inner := range r.Body {
			one, _ := inner.(attrs)
			for _, made := range append(rest.Docs(inner), one) {
				if id := rest.Text(made, "id"); id != "" {
					a.deleteLater(strings.TrimPrefix(path, "/"), id)
				}
			}
		}
	}
	if e, ok := r.Body["NeutronError"].(attrs); ok {
		for _, key := range []string{"type", "message", "detail"} {
			if _, there := e[key].(string); !there {
				a.t.Errorf("%s %s: the error body has no %s: %s", method, path, key, r)
			}
		}
	}
	return r
}

// create makes a resource that is deleted when the test ends. collection is the URL's segment.
func (a *api) create(collection string, in attrs) attrs {
	a.t.Helper()
	key := strings.ReplaceAll(strings.TrimSuffix(collection, "s"), "-", "_")
	r := a.must(http.MethodPost, "/"+collection, attrs{key: in})
	if r.Status != http.StatusCreated {
		a.t.Errorf("POST /%s gave %d, want 201", collection, r.Status)
	}
	doc, _ := r.Body[key].(attrs)
	a.deleteLater(collection, rest.Text(doc, "id"))
	return doc
}

func (a *api) deleteLater(collection, id string) {
	a.t.Cleanup(func() {
		if r := a.do(http.MethodDelete, "/"+collection+"/"+id, nil); r.Status != http.StatusNoContent &&
			r.Status != http.StatusNotFound {
			a.t.Errorf("cleaning up: DELETE /%s/%s: %s", collection, id, r)
		}
	})
}

// network makes a network with a subnet of that range, and returns both ids. The subnet has no DHCP: with it, some
// clouds take an address for themselves.
func (a *api) network(cidr string) (network, subnet string) {
	a.t.Helper()
	network = rest.Text(a.create("networks", attrs{"name": a.prefix}), "id")
	subnet = rest.Text(a.create("subnets",
		attrs{"name": a.prefix, "network_id": network, "ip_version": 4, "cidr": cidr, "enable_dhcp": false}), "id")
	return network, subnet
}

func (a *api) port(network string, more attrs) attrs {
	a.t.Helper()
	in := attrs{"network_id": network, "name": a.prefix}
	for k, v := range more {
		in[k] = v
	}
	return a.create("ports", in)
}

func (a *api) list(collection, query string) []attrs {
	a.t.Helper()
	r := a.must(http.MethodGet, "/"+collection+"?"+query, nil)
	return others(rest.Docs(r.Body[strings.ReplaceAll(collection, "-", "_")]))
}

// others leaves out the ports that some clouds keep for themselves in every network.
func others(all []attrs) []attrs {
	return slices.DeleteFunc(all, func(x attrs) bool {
		return x["device_owner"] == "network:distributed" || x["device_owner"] == "network:dhcp"
	})
}

func number(doc attrs, key string) int64 {
	n, _ := doc[key].(json.Number)
	i, err := n.Int64()
	if err != nil {
		return -1
	}
	return i
}

// fixedIPs returns a port's addresses.
func fixedIPs(port attrs) []string {
	var out []string
	for _, f := range rest.Docs(port["fixed_ips"]) {
		out = append(out, rest.Text(f, "ip_address"))
	}
	return out
}
