// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"time"
)

// Request is one request in the log, and what hooks see of it.
type Request struct {
	// N numbers requests from 1 in the order of their arrival; WriteN those that write, and is 0 for others.
	N      int `json:"n"`
	WriteN int `json:"write_n,omitempty"`
	// After is false before the request is applied. Status, Error, Duration and Project are set after.
	After  bool   `json:"-"`
	Method string `json:"method"`
	Path   string `json:"path"` // below the service's root
	Query  string `json:"query,omitempty"`
	// Kind is the Neutron resource's name ("port", "security_group"), or tag, add_router_interface,
	// remove_router_interface, router_route, quota, extension, token, version. Of Octavia: loadbalancer, listener, pool,
	// member, healthmonitor, member_batch, loadbalancer_status, loadbalancer_stats, loadbalancer_failover,
	// listener_stats, lb_quota, provider, flavor, availabilityzone.
	Kind string `json:"kind"`
	// Items is how many resources are in the body or in the answer.
	Items    int           `json:"items"`
	Status   int           `json:"status"`          // 0: cut before an answer
	Error    string        `json:"error,omitempty"` // the exception's name
	Fault    string        `json:"fault,omitempty"` // the action of the rule that acted
	Project  string        `json:"project,omitempty"`
	At       time.Time     `json:"at"`
	Duration time.Duration `json:"duration"` // nanoseconds
	// Body is the request's; in the log its first 4 KiB.
	Body string `json:"body,omitempty"`
}

const loggedBody = 4096

// requestLog keeps the last requests and counts all.
type requestLog struct {
	limit   int
	total   int
	writes  int
	entries []Request
	counts  map[string]int
	items   map[string]int
	errors  map[string]int
	freed   int
}

func newRequestLog(limit int) requestLog {
	return requestLog{limit: limit, counts: map[string]int{}, items: map[string]int{}, errors: map[string]int{}}
}

func (l *requestLog) add(r Request) {
	if len(r.Body) > loggedBody {
		r.Body = r.Body[:loggedBody]
	}
	if len(l.entries) >= l.limit {
		l.entries = append([]Request(nil), l.entries[len(l.entries)/2:]...)
	}
	l.entries = append(l.entries, r)
	key := r.Method + " " + r.Kind
	l.counts[key]++
	if r.Status >= 200 && r.Status < 300 {
		l.items[key] += r.Items
	}
	if r.Error != "" {
		l.errors[r.Error]++
	}
}

// Stats counts requests that were finished.
type Stats struct {
	Requests int            `json:"requests"` // all that began
	Writes   int            `json:"writes"`   // to Neutron and Octavia
	Counts   map[string]int `json:"counts"`   // by method and kind: "POST port"
	Items    map[string]int `json:"items"`    // resources in those that went well
	Errors   map[string]int `json:"errors"`   // by the exception's name
	// Freed is how often a load balancer that was PENDING_* became ACTIVE.
	Freed int `json:"freed"`
	// Objects is how many resources of each kind there are.
	Objects map[string]int `json:"objects"`
	// Best is, by kind, how many resources per second the workers could create at best; empty without bound.
	Best map[string]float64 `json:"best,omitempty"`
}

// Stats returns the counts since the start or ResetLog.
func (c *Cloud) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle()
	s := Stats{
		Requests: c.log.total, Writes: c.log.writes, Counts: map[string]int{}, Items: map[string]int{},
		Errors:  map[string]int{},
		Objects: map[string]int{}, Best: map[string]float64{}, Freed: c.log.freed,
	}
	for k, v := range c.log.counts {
		s.Counts[k] = v
	}
	for k, v := range c.log.items {
		s.Items[k] = v
	}
	for k, v := range c.log.errors {
		s.Errors[k] = v
	}
	for name, t := range c.tables {
		s.Objects[name] = len(t.byID)
		if best, _ := c.profile.BestThroughput(name); best > 0 {
			s.Best[name] = best
		}
	}
	return s
}

// Log returns the finished requests whose number is above after, oldest first.
func (c *Cloud) Log(after int) []Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Request, 0, len(c.log.entries))
	for _, r := range c.log.entries {
		if r.N > after {
			out = append(out, r)
		}
	}
	return out
}

// ResetLog forgets the log and its counts, and begins numbering anew.
func (c *Cloud) ResetLog() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = newRequestLog(c.opts.LogSize)
}
