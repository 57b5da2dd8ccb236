// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/kuryr/raven/test/contract/rest"
)

// quotas lets the project run out of ports: what is over quota is refused whole, and goes through once the limit is
// raised.
func quotas(a *api) {
	n, _ := a.network("10.89.0.0/24")
	project := rest.Text(a.port(n, nil), "project_id")
	path := "/quotas/" + project
	limits, _ := a.must(http.MethodGet, path, nil).Body["quota"].(attrs)
	had := number(limits, "port")
	if _, there := limits["port"]; !there {
		a.t.Fatalf("quotas are %v", limits)
	}
	set := attrs{"quota": attrs{"port": had}}
	a.refused(http.StatusForbidden, "PolicyNotAuthorized", http.MethodPut, path, set)
	a.refused(http.StatusForbidden, "PolicyNotAuthorized", http.MethodGet, "/quotas/"+strings.Repeat("0", 32), nil)
	if a.target.Admin == nil {
		a.t.Log("no administrator is known (RAVEN_CONTRACT_ADMIN_CLOUD): quotas are read, not met")
		return
	}
	limit, used := a.limited(project, "port")
	if used < 1 {
		a.t.Fatalf("of ports there are %d used", used)
	}
	limit(used + 1)
	name := a.prefix + "-quota"
	one := attrs{"network_id": n, "name": name}
	r := a.refused(http.StatusConflict, "OverQuota", http.MethodPost, "/ports", attrs{"ports": []attrs{one, one}})
	if left := a.list("ports", "name="+name); len(left) != 0 {
		a.t.Errorf("a bulk over quota left %d ports", len(left))
	}
	if e, _ := r.Body["NeutronError"].(attrs); e["message"] != "Quota exceeded for resources: ['port']." {
		a.t.Errorf("over quota gave %s", r)
	}
	a.port(n, attrs{"name": name})
	a.refused(http.StatusConflict, "OverQuota", http.MethodPost, "/ports", attrs{"port": one})
	limit(used + 2)
	a.port(n, attrs{"name": name})
	limit(0) // below what there is: nothing goes, and nothing comes
	if left := a.list("ports", "name="+name); len(left) != 2 {
		a.t.Errorf("a limit below what there is left %d of 2 ports", len(left))
	}
	a.refused(http.StatusConflict, "OverQuota", http.MethodPost, "/ports", attrs{"port": one})
}

// limited returns what sets a project's limit of a resource until the test ends, and how many there are. An
// administrator is known.
func (a *api) limited(project, resource string) (limit func(int64), used int64) {
	a.t.Helper()
	path, admin := "/quotas/"+project, "X-Auth-Token: "+a.target.Admin.Token()
	limit = func(n int64) {
		a.t.Helper()
		a.must(http.MethodPut, path, attrs{"quota": attrs{resource: n}}, "X-Auth-Token: "+a.target.Admin.Token())
	}
	limits, _ := a.must(http.MethodGet, path, nil, admin).Body["quota"].(attrs)
	if _, there := limits[resource]; !there {
		a.t.Fatalf("quotas are %v", limits)
	}
	had := number(limits, resource)
	a.t.Cleanup(func() { limit(had) })
	details, _ := a.must(http.MethodGet, path+"/details.json", nil, admin).Body["quota"].(attrs)
	is, _ := details[resource].(attrs)
	return limit, number(is, "used")
}

// identity makes a request to Keystone; path is below /v3.
func (a *api) identity(method, path, token, subject string) reply {
	a.t.Helper()
	return a.request(method, strings.TrimSuffix(a.target.Network.IdentityEndpoint, "/")+path, nil,
		"X-Auth-Token: "+token, "X-Subject-Token: "+subject)
}

// login gives a token that no other test has.
func (a *api) login() *gophercloud.ProviderClient {
	a.t.Helper()
	p, err := a.target.Login(a.t.Context())
	if err != nil {
		a.t.Fatalf("logging in: %v", err)
	}
	if transport, ok := p.HTTPClient.Transport.(*http.Transport); ok {
		a.t.Cleanup(transport.CloseIdleConnections)
	}
	return p
}

// unauthorized checks an answer of 401 as clients know it: they log in again and repeat the request.
func (a *api) unauthorized(r reply, what string) {
	a.t.Helper()
	e, _ := r.Body["error"].(attrs)
	if r.Status != http.StatusUnauthorized || fmt.Sprint(e["code"]) != "401" ||
		!strings.HasPrefix(r.Header.Get("Www-Authenticate"), "Keystone uri=") {
		a.t.Errorf("%s: %s with %v, want 401 and where to log in", what, r, r.Header)
	}
}

// tokens are what is refused and why. How one expires cannot be waited for here; one that is revoked is refused in
// the same way.
func tokens(a *api) {
	network := func(token string) reply {
		return a.do(http.MethodGet, "/networks?limit=1&fields=id", nil, "X-Auth-Token: "+token)
	}
	a.unauthorized(network(""), "no token")
	a.unauthorized(network("none"), "nobody's token")
	mine, other := a.login().Token(), a.login().Token()
	if mine == other {
		a.t.Fatal("two logins gave one token")
	}
	if r := network(mine); r.Status != http.StatusOK {
		a.t.Errorf("a new token: %s", r)
	}
	r := a.identity(http.MethodGet, "/auth/tokens", mine, other)
	doc, _ := r.Body["token"].(attrs)
	if end, err := time.Parse(gophercloud.RFC3339Milli, rest.Text(doc, "expires_at")); r.Status != http.StatusOK ||
		err != nil || !end.After(time.Now()) {
		a.t.Errorf("a token that was just given expires at %q (%v, %s)", rest.Text(doc, "expires_at"), err, r)
	}
	if r := a.identity(http.MethodDelete, "/auth/tokens", mine, other); r.Status != http.StatusNoContent {
		a.t.Errorf("revoking a token: %s", r)
	}
	a.unauthorized(network(other), "a token that was revoked")
	a.unauthorized(a.identity(http.MethodGet, "/auth/tokens", other, mine), "Keystone asked with a token that was revoked")
	if r := a.identity(http.MethodGet, "/auth/tokens", mine, other); r.Status != http.StatusNotFound {
		a.t.Errorf("Keystone asked about a token that was revoked: %s, want 404", r)
	}
	if r := network(mine); r.Status != http.StatusOK {
		a.t.Errorf("the token of another login after that: %s", r)
	}
}

// catalog names Neutron's place for each interface, and the project and roles that the token has.
func catalog(a *api) {
	token := a.login().Token()
	doc, _ := a.identity(http.MethodGet, "/auth/tokens", token, token).Body["token"].(attrs)
	project, _ := doc["project"].(attrs)
	n := a.create("networks", attrs{"name": a.prefix})
	if rest.Text(project, "id") == "" || rest.Text(project, "id") != rest.Text(n, "project_id") {
		a.t.Errorf("the token is for project %v, and makes things in %v", project, n["project_id"])
	}
	if !slices.ContainsFunc(rest.Docs(doc["roles"]), func(role attrs) bool { return role["name"] == "member" }) {
		a.t.Errorf("roles are %v", doc["roles"])
	}
	found := false
	for _, service := range rest.Docs(doc["catalog"]) {
		if service["type"] != "network" {
			continue
		}
		for _, e := range rest.Docs(service["endpoints"]) {
			if rest.Text(e, "region") == "" || rest.Text(e, "interface") == "" {
				a.t.Errorf("an endpoint is %v", e)
			}
			found = found || strings.TrimSuffix(rest.Text(e, "url"), "/") == strings.TrimSuffix(a.target.Network.Endpoint, "/")
		}
	}
	if !found {
		a.t.Errorf("the catalog does not name %s: %v", a.target.Network.Endpoint, doc["catalog"])
	}
}
