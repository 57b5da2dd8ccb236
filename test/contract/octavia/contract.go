// SPDX-License-Identifier: Apache-2.0

// Package octavia is what Raven relies on of an Octavia API and its providers, as tests that run against the
// simulated cloud and against real ones alike. It must never touch what it did not make: everything it makes has its
// own random prefix, and is deleted at the end.
package octavia

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/gophercloud/gophercloud/v2"

	"github.com/kuryr/raven/test/contract/rest"
)

// Target is a cloud under test. The credentials are a plain member's, with the role that Octavia asks for.
type Target struct {
	// Network and Balancing are Neutron and Octavia, logged in.
	Network, Balancing *gophercloud.ServiceClient
	// Provider is what is known of the provider under test: OVN or Amphora.
	Provider Provider
	// Admin is Octavia with an administrator's login. Nil: what needs one is left out, which is said.
	Admin *gophercloud.ServiceClient
	// Timeout bounds one request, and one piece of a provider's work. 0: three minutes.
	Timeout time.Duration
	// Poll is the time between two polls of a status. 0: 100 ms.
	Poll time.Duration
}

// Provider is what may be relied on of a provider.
type Provider struct {
	Name, Algorithm string
	// Wrong is an algorithm that it refuses.
	Wrong string
	// Web: HTTP, allowed_cidrs, HTTP monitors and monitor_port are supported; else they are 501.
	Web bool
	// ForeignVIP: the VIP may be a given port.
	ForeignVIP bool
	// AdditionalVIPs are made; else they are ignored.
	AdditionalVIPs bool
	// FullMonitors: a health monitor of a full create becomes ACTIVE; else it stays PENDING_CREATE.
	FullMonitors bool
	// LoosePools: a pool of a full create that no listener has becomes ACTIVE; else it stays PENDING_CREATE.
	LoosePools bool
	// Probes: a health monitor becomes ACTIVE whatever the members are; else they must be ports, on subnets with DHCP.
	Probes bool
	// Unlocks: a change of a health monitor unlocks the pool's listeners in the end; else they stay PENDING_UPDATE until
	// they are changed.
	Unlocks bool
	// Locks: a load balancer is PENDING_* until all work on it is done; else it may be ACTIVE early.
	Locks bool
}

// OVN is what may be relied on of the provider ovn.
func OVN() Provider {
	return Provider{Name: "ovn", Algorithm: "SOURCE_IP_PORT", Wrong: "ROUND_ROBIN", LoosePools: true}
}

// Amphora is what may be relied on of the provider amphora.
func Amphora() Provider {
	return Provider{
		Name: "amphora", Algorithm: "ROUND_ROBIN", Wrong: "SOURCE_IP_PORT", Web: true, ForeignVIP: true, AdditionalVIPs: true,
		FullMonitors: true, Locks: true, Probes: true, Unlocks: true,
	}
}

type (
	attrs = rest.Attrs
	reply = rest.Reply
)

// api is one run's way to the cloud.
type api struct {
	t      *testing.T
	target Target
	prefix string // of names and tags
	http   *http.Client
	subnet string // of every test, 10.70.0.0/24
	net    string
}

// in returns the same api for a subtest.
func (a *api) in(t *testing.T) *api {
	t.Helper()
	b := *a
	b.t = t
	return &b
}

func newAPI(t *testing.T, target Target) *api {
	t.Helper()
	if target.Timeout == 0 {
		target.Timeout = 3 * time.Minute
	}
	if target.Poll == 0 {
		target.Poll = 100 * time.Millisecond
	}
	a := &api{
		t: t, target: target, prefix: "raven-contract-" + uuid.NewString()[:8], http: rest.Client(t, target.Timeout),
	}
	a.net = a.neutron("networks", attrs{"name": a.prefix})
	// with DHCP: see monitored
	a.subnet = a.neutron("subnets", attrs{"network_id": a.net, "ip_version": 4, "cidr": "10.70.0.0/24"})
	t.Cleanup(func() { a.leftPorts() })
	return a
}

// leftPorts deletes the VIP ports of load balancers that are not there, and returns how many there were: a create
// that is refused after its VIP port was made leaves that port behind, with its address.
func (a *api) leftPorts() int {
	a.t.Helper()
	r := a.request(a.target.Network, http.MethodGet,
		a.target.Network.Endpoint+"v2.0/ports?network_id="+a.net+"&fields=id&fields=name", nil)
	left := 0
	for _, p := range rest.Docs(r.Body["ports"]) {
		id, ok := strings.CutPrefix(rest.Text(p, "name"), "ovn-lb-vip-")
		if !ok {
			id, ok = strings.CutPrefix(rest.Text(p, "name"), "octavia-lb-")
		}
		if ok && a.do(http.MethodGet, "/loadbalancers/"+id, nil).Status == http.StatusNotFound {
			left++
			a.request(a.target.Network, http.MethodDelete, a.target.Network.Endpoint+"v2.0/ports/"+rest.Text(p, "id"), nil)
		}
	}
	return left
}

// fault returns the text of an error; that of a path that leads nowhere is in another place.
func fault(r reply) string {
	if s, ok := r.Body["description"].(string); ok {
		return s
	}
	s, _ := r.Body["faultstring"].(string)
	return s
}

func (a *api) request(client *gophercloud.ServiceClient, method, url string, body any) reply {
	a.t.Helper()
	return rest.Do(a.t, a.http, client, method, url, body)
}

// do makes a request to Octavia: path is below /v2.0/lbaas.
func (a *api) do(method, path string, body any) reply {
	a.t.Helper()
	return a.request(a.target.Balancing, method, a.target.Balancing.Endpoint+"v2.0/lbaas"+path, body)
}

// must makes a request that has to be answered so.
func (a *api) must(status int, method, path string, body any) reply {
	a.t.Helper()
	r := a.do(method, path, body)
	if r.Status != status {
		a.t.Fatalf("%s %s %v: %s; want %d", method, path, body, r, status)
	}
	return r
}

// refused makes a request that has to be refused so, with a text that contains want.
func (a *api) refused(status int, want, method, path string, body any) reply {
	a.t.Helper()
	r := a.do(method, path, body)
	if r.Status != status || !strings.Contains(fault(r), want) {
		a.t.Errorf("%s %s %v: got %s; want %d with %q", method, path, body, r, status, want)
		if r.Status == http.StatusCreated { // it should not be there: delete it
			a.forget(path, r)
		}
		return r
	}
	code := "Client"
	if status >= http.StatusInternalServerError {
		code = "Server"
	}
	if _, path := r.Body["description"]; path {
		return r
	}
	if info, there := r.Body["debuginfo"]; r.Body["faultcode"] != code || !there || info != nil {
		a.t.Errorf("%s %s: the error body is %s, want faultcode %s and debuginfo null", method, path, r, code)
	}
	return r
}

// forget deletes a load balancer that was made against expectation.
func (a *api) forget(path string, r reply) {
	if doc, ok := r.Body["loadbalancer"].(attrs); ok && path == "/loadbalancers" {
		a.waitFor(rest.Text(doc, "id"), "ACTIVE")
		a.remove(rest.Text(doc, "id"))
	}
}

// neutron makes something in Neutron that is deleted in the end, and returns its id.
func (a *api) neutron(collection string, in attrs) string {
	a.t.Helper()
	key := strings.TrimSuffix(collection, "s")
	at := a.target.Network.Endpoint + "v2.0/" + collection
	r := a.request(a.target.Network, http.MethodPost, at, attrs{key: in})
	doc, _ := r.Body[key].(attrs)
	id := rest.Text(doc, "id")
	if id == "" {
		a.t.Fatalf("POST %s: %s", at, r)
	}
	a.t.Cleanup(func() {
		if r := a.request(a.target.Network, http.MethodDelete, at+"/"+id, nil); r.Status != http.StatusNoContent &&
			r.Status != http.StatusNotFound {
			a.t.Errorf("cleaning up: DELETE %s/%s: %s", at, id, r)
		}
	})
	return id
}

// port returns a port of Neutron, nil if it is not there.
func (a *api) port(id string) attrs {
	a.t.Helper()
	r := a.request(a.target.Network, http.MethodGet, a.target.Network.Endpoint+"v2.0/ports/"+id, nil)
	doc, _ := r.Body["port"].(attrs)
	return doc
}

// balancer makes a load balancer on the test's subnet that is deleted in the end, and waits until it is ACTIVE.
func (a *api) balancer(in attrs) attrs {
	a.t.Helper()
	doc := a.create(in)
	if s := a.waitFor(rest.Text(doc, "id"), "ACTIVE"); s != "ACTIVE" {
		a.t.Fatalf("the load balancer became %s", s)
	}
	return doc
}

// create makes a load balancer, and does not wait.
func (a *api) create(in attrs) attrs {
	a.t.Helper()
	if in["name"] == nil {
		in["name"] = a.prefix
	}
	if in["vip_subnet_id"] == nil && in["vip_port_id"] == nil && in["vip_network_id"] == nil {
		in["vip_subnet_id"] = a.subnet
	}
	in["provider"] = a.target.Provider.Name
	doc, _ := a.must(http.StatusCreated, http.MethodPost, "/loadbalancers",
		attrs{"loadbalancer": in}).Body["loadbalancer"].(attrs)
	id := rest.Text(doc, "id")
	a.t.Cleanup(func() { a.remove(id) })
	return doc
}

// remove deletes a load balancer with all that belongs to it, and waits until it is gone.
func (a *api) remove(id string) {
	a.t.Helper()
	a.waitFor(id, "ACTIVE")
	if r := a.do(http.MethodDelete, "/loadbalancers/"+id+"?cascade=true", nil); r.Status != http.StatusNoContent &&
		r.Status != http.StatusNotFound {
		a.t.Errorf("deleting load balancer %s: %s", id, r)
		return
	}
	if s := a.waitFor(id, "gone"); s != "gone" {
		a.t.Errorf("a deleted load balancer became %s", s)
	}
}

// child makes a listener, pool, member or health monitor, waits until it is done, and returns it.
func (a *api) child(path, key string, in attrs) attrs {
	a.t.Helper()
	r := a.must(http.StatusCreated, http.MethodPost, path, attrs{key: in})
	doc, _ := r.Body[key].(attrs)
	if s := a.settled(path+"/"+rest.Text(doc, "id"), key); s != "ACTIVE" {
		a.t.Fatalf("the %s %v became %s", key, in, s)
	}
	return doc
}

func (a *api) list(path string) []attrs {
	a.t.Helper()
	collection := strings.SplitN(path, "?", 2)[0]
	collection = collection[strings.LastIndex(collection, "/")+1:]
	return rest.Docs(a.must(http.StatusOK, http.MethodGet, path, nil).Body[collection])
}
