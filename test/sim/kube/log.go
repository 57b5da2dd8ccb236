// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"sync"
	"time"
)

// Request is one entry of the request log.
type Request struct {
	Number int       `json:"number"`
	Time   time.Time `json:"time"`
	Method string    `json:"method"`
	Path   string    `json:"path"`
	Query  string    `json:"query,omitempty"`
	// list, watch, get, create, update, patch, delete, deletecollection
	Verb        string        `json:"verb"`
	Resource    string        `json:"resource,omitempty"` // plural, plural.group; "" for discovery
	Subresource string        `json:"subresource,omitempty"`
	Namespace   string        `json:"namespace,omitempty"`
	Name        string        `json:"name,omitempty"`
	User        string        `json:"user"`
	Agent       string        `json:"agent,omitempty"`
	ContentType string        `json:"contentType,omitempty"`
	Status      int           `json:"status"` // 0 while it is being handled or when its connection was cut
	Duration    time.Duration `json:"duration"`
}

// key is what requests are counted by: "patch pods", "update pods/status", "get /version".
func (r Request) key() string {
	switch {
	case r.Resource == "":
		return r.Verb + " " + r.Path
	case r.Subresource != "":
		return r.Verb + " " + r.Resource + "/" + r.Subresource
	}
	return r.Verb + " " + r.Resource
}

// Stats are counts since the start or the last ResetLog.
type Stats struct {
	Requests int            `json:"requests"`
	Counts   map[string]int `json:"counts"` // by verb and resource, such as "list pods"
	Statuses map[int]int    `json:"statuses"`
	Watches  map[string]int `json:"watches"` // open ones, by resource
	Objects  map[string]int `json:"objects"`
	Version  uint64         `json:"resourceVersion"`
}

type requestLog struct {
	mu       sync.Mutex
	size     int
	number   int
	requests []Request // a ring once it is full
	counts   map[string]int
	statuses map[int]int
}

func (l *requestLog) init(size int) {
	l.size, l.number, l.requests, l.counts, l.statuses = size, 0, nil, map[string]int{}, map[int]int{}
}

func (l *requestLog) begin(a *API, c *call) Request {
	r := Request{
		Time: a.options.Clock.Now(), Method: c.request.Method, Path: c.request.URL.Path, Query: c.request.URL.RawQuery,
		Verb:        c.verb,
		Subresource: c.subresource, Namespace: c.namespace, Name: c.name, User: c.user, Agent: c.request.UserAgent(),
		ContentType: c.request.Header.Get("Content-Type"),
	}
	if c.view != nil {
		r.Resource = c.view.groupResource().String()
	}
	if r.Verb == "" {
		r.Verb = verbOf(c)
	}
	if c.view == nil && r.Verb == "list" {
		r.Verb = "get"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number++
	r.Number = l.number
	if len(l.requests) < l.size {
		l.requests = append(l.requests, r)
	} else {
		l.requests[(r.Number-1)%l.size] = r
	}
	l.counts[r.key()]++
	return r
}

func (l *requestLog) end(a *API, r Request, status int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.statuses[status]++
	i := (r.Number - 1) % l.size
	if i < len(l.requests) && l.requests[i].Number == r.Number {
		l.requests[i].Status, l.requests[i].Duration = status, a.options.Clock.Since(r.Time)
	}
}

// Requests is the request log, oldest first, including requests that are being handled.
func (a *API) Requests() []Request {
	l := &a.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.number <= len(l.requests) {
		return append([]Request(nil), l.requests...)
	}
	start := l.number % l.size
	return append(append([]Request(nil), l.requests[start:]...), l.requests[:start]...)
}

// Count is how many requests there were for a verb and resource, such as "patch pods" or "list
// leases.coordination.k8s.io".
func (a *API) Count(key string) int {
	a.log.mu.Lock()
	defer a.log.mu.Unlock()
	return a.log.counts[key]
}

// ResetLog forgets the request log and its counts.
func (a *API) ResetLog() {
	a.log.mu.Lock()
	defer a.log.mu.Unlock()
	a.log.init(a.log.size)
}

// Stats returns the counts.
func (a *API) Stats() Stats {
	s := Stats{Counts: map[string]int{}, Statuses: map[int]int{}, Watches: map[string]int{}, Objects: map[string]int{}}
	a.log.mu.Lock()
	s.Requests = a.log.number
	for k, n := range a.log.counts {
		s.Counts[k] = n
	}
	for k, n := range a.log.statuses {
		s.Statuses[k] = n
	}
	a.log.mu.Unlock()
	a.mu.RLock()
	defer a.mu.RUnlock()
	s.Version = a.version
	for gr, res := range a.resources {
		if n := len(res.watchers); n > 0 {
			s.Watches[gr.String()] = n
		}
		if n := len(res.objects); n > 0 {
			s.Objects[gr.String()] = n
		}
	}
	return s
}
