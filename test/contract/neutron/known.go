// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/kuryr/raven/test/contract/rest"
)

// difference is one between the simulation and Neutron that Raven does not rely on. Each is checked: one that is no
// more fails.
type difference struct {
	what            string
	simulated, real string // what observe returns
	observe         func(*api) string
}

// differences are all that are known, of Neutron 21.
func differences() []difference {
	return []difference{
		{
			"a token that is revoked after it was used", "refused",
			"taken, as long as Neutron remembers that it was good (5 minutes)", revokedAfterUse,
		},
		{"a PUT that changes nothing", "the revision stays", "the revision rises by 1", func(a *api) string {
			n := a.create("networks", attrs{"name": a.prefix})
			after, _ := a.must(http.MethodPut, "/networks/"+rest.Text(n, "id"),
				attrs{"network": attrs{"name": a.prefix}}).Body["network"].(attrs)
			if by := number(after, "revision_number") - number(n, "revision_number"); by != 0 {
				return fmt.Sprintf("the revision rises by %d", by)
			}
			return "the revision stays"
		}},
		{"a tag of 100 characters", "400 HTTPBadRequest, as releases before 21 answer", "201", func(a *api) string {
			n := rest.Text(a.create("networks", attrs{"name": a.prefix}), "id")
			r := a.do(http.MethodPut, "/networks/"+n+"/tags/"+strings.Repeat("x", 100), nil)
			if r.Status == http.StatusBadRequest {
				return "400 HTTPBadRequest, as releases before 21 answer"
			}
			return fmt.Sprint(r.Status)
		}},
		{"a tag that is given twice", "400 HTTPBadRequest", "400 InvalidInput", func(a *api) string {
			n := rest.Text(a.create("networks", attrs{"name": a.prefix}), "id")
			r := a.do(http.MethodPut, "/networks/"+n+"/tags", attrs{"tags": []string{"a", "a"}})
			return fmt.Sprint(r.Status, " ", errorTypeOf(r))
		}},
	}
}

func revokedAfterUse(a *api) string {
	mine, other := a.login().Token(), a.login().Token()
	ask := func() int {
		return a.do(http.MethodGet, "/networks?limit=1&fields=id", nil, "X-Auth-Token: "+other).Status
	}
	if status := ask(); status != http.StatusOK {
		a.t.Fatalf("a new token gave %d", status)
	}
	if r := a.identity(http.MethodDelete, "/auth/tokens", mine, other); r.Status != http.StatusNoContent {
		a.t.Fatalf("revoking a token: %s", r)
	}
	switch status := ask(); status {
	case http.StatusOK:
		return "taken, as long as Neutron remembers that it was good (5 minutes)"
	case http.StatusUnauthorized:
		return "refused"
	default:
		return fmt.Sprint("answered with ", status)
	}
}

// knownDifferences prints the differences, and checks whether they still exist.
func knownDifferences(a *api) {
	for _, d := range differences() {
		want := d.real
		if a.target.Simulated {
			want = d.simulated
		}
		if is := d.observe(a); is != want {
			a.t.Errorf("known difference is no more: %s: here it is %q, and not %q", d.what, is, want)
			continue
		}
		a.t.Logf("known: %s: simulated: %s; Neutron: %s", d.what, d.simulated, d.real)
	}
}
