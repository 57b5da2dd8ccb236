// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"net/http"
	"strings"
	"time"

	"github.com/kuryr/raven/test/contract/rest"
)

// waitFor waits until a load balancer has a provisioning status, is in ERROR, or is gone, and returns which.
func (a *api) waitFor(id, want string) string {
	a.t.Helper()
	return a.poll("/loadbalancers/"+id, "loadbalancer", func(status string) bool {
		return status == want || status == "ERROR"
	})
}

// settled waits until something is no longer PENDING_*, and returns its status, "gone" if it is that.
func (a *api) settled(path, key string) string {
	a.t.Helper()
	return a.poll(path, key, func(status string) bool { return !strings.HasPrefix(status, "PENDING_") })
}

func (a *api) poll(path, key string, done func(string) bool) string {
	a.t.Helper()
	deadline := time.Now().Add(a.target.Timeout)
	for {
		r := a.do(http.MethodGet, path, nil)
		doc, _ := r.Body[key].(attrs)
		status := rest.Text(doc, "provisioning_status")
		switch {
		case r.Status == http.StatusNotFound:
			return "gone"
		case r.Status != http.StatusOK:
			a.t.Fatalf("GET %s: %s", path, r)
		case done(status) || time.Now().After(deadline):
			return status
		}
		a.pause()
	}
}

// pause is the time between two polls.
func (a *api) pause() {
	timer := time.NewTimer(a.target.Poll)
	defer timer.Stop()
	<-timer.C
}

// whole waits until nothing of a load balancer is PENDING_*, and returns what is there by kind and status.
func (a *api) whole(id string) map[string]int {
	a.t.Helper()
	deadline := time.Now().Add(a.target.Timeout)
	for {
		out := a.states(id)
		pending := false
		for s := range out {
			pending = pending || strings.Contains(s, "PENDING_")
		}
		if !pending || time.Now().After(deadline) {
			return out
		}
		a.pause()
	}
}

// states reads the status tree, without health monitors.
func (a *api) states(id string) map[string]int {
	a.t.Helper()
	tree, _ := a.must(http.StatusOK, http.MethodGet, "/loadbalancers/"+id+"/status", nil).Body["statuses"].(attrs)
	lb, _ := tree["loadbalancer"].(attrs)
	out := map[string]int{"loadbalancer " + rest.Text(lb, "provisioning_status"): 1}
	for _, l := range rest.Docs(lb["listeners"]) {
		out["listener "+rest.Text(l, "provisioning_status")]++
		for _, p := range rest.Docs(l["pools"]) {
			out["pool "+rest.Text(p, "provisioning_status")]++
			for _, m := range rest.Docs(p["members"]) {
				out["member "+rest.Text(m, "provisioning_status")]++
			}
		}
	}
	return out
}
