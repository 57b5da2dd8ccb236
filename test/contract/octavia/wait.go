package octavia

import (
	"net/http"
	"strings"
	"time"
)

// waitFor waits until a load balancer has a provisioning status, is in ERROR, or is gone, and returns which.
func (a *api) waitFor(id, want string) string {
	a.t.Helper()
	return a.poll("/loadbalancers/"+id, "loadbalancer", func(status string) bool { return status == want || status == "ERROR" })
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
		doc, _ := r.body[key].(attrs)
		status := text(doc, "provisioning_status")
		switch {
		case r.status == http.StatusNotFound:
			return "gone"
		case r.status != http.StatusOK:
			a.t.Fatalf("GET %s: %s", path, r)
		case done(status) || time.Now().After(deadline):
			return status
		}
		a.pause()
	}
}

// pause is the time between two looks.
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
	tree, _ := a.must(http.StatusOK, http.MethodGet, "/loadbalancers/"+id+"/status", nil).body["statuses"].(attrs)
	lb, _ := tree["loadbalancer"].(attrs)
	out := map[string]int{"loadbalancer " + text(lb, "provisioning_status"): 1}
	for _, l := range docs(lb["listeners"]) {
		out["listener "+text(l, "provisioning_status")]++
		for _, p := range docs(l["pools"]) {
			out["pool "+text(p, "provisioning_status")]++
			for _, m := range docs(p["members"]) {
				out["member "+text(m, "provisioning_status")]++
			}
		}
	}
	return out
}
