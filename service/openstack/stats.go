// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"cmp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Request says how requests of one method, kind and outcome went.
type Request struct {
	Method   string  `json:"method"`
	Kind     string  `json:"kind"`   // Neutron's plural name
	Status   string  `json:"status"` // "2xx", "4xx", …, or "none" where no answer came
	Count    int64   `json:"count"`
	Items    int64   `json:"items"`           // resources that they were about
	Duration float64 `json:"durationSeconds"` // of all of them, added up
	Longest  float64 `json:"longestSeconds"`
}

// Stats is what was asked of the cloud since the connection was made, and how requests to the networking service are
// paced now.
type Stats struct {
	Requests []Request `json:"requests"` // by method, kind and status
	// Slots is how many requests may be in flight, InFlight how many are, Waiting how many wait for one.
	Slots    int `json:"slots"`
	InFlight int `json:"inFlight"`
	Waiting  int `json:"waiting"`
	// HeldBack is how long the service asked to be left alone from now.
	HeldBack float64 `json:"heldBackSeconds,omitempty"`
}

// Total is the number of requests, and of the resources that they were about.
func (s Stats) Total() (requests, items int64) {
	for _, r := range s.Requests {
		requests += r.Count
		items += r.Items
	}
	return requests, items
}

type requestKey struct{ method, kind, status string }

type stats struct {
	sending   atomic.Int64 // requests that are under way
	durations *prometheus.HistogramVec
	resources *prometheus.CounterVec

	mu       sync.Mutex // guards what follows
	requests map[requestKey]*Request
}

func newStats() *stats {
	by := []string{"method", "kind", "status"}
	return &stats{
		requests: map[requestKey]*Request{},
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "raven_openstack_request_duration_seconds",
			Help: "Time of one request to Neutron or Octavia, by the kind of the resource and the HTTP status; " +
				"none if no answer came.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 15), // to 164 s: a bulk create may take a minute
		}, by),
		resources: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "raven_openstack_request_resources_total",
			Help: "Resources that the requests to Neutron and Octavia were about.",
		}, by),
	}
}

// add counts a request; status 0 says that no answer came.
func (s *stats) add(method string, of Collection, status int, done sample) {
	class, exact := "none", "none"
	if status > 0 {
		class, exact = strconv.Itoa(status/100)+"xx", strconv.Itoa(status)
	}
	s.durations.WithLabelValues(method, of.metricKind(), exact).Observe(done.took.Seconds())
	s.resources.WithLabelValues(method, of.metricKind(), exact).Add(float64(done.n))
	kind := of.Many
	key := requestKey{method, kind, class}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.requests[key]
	if r == nil {
		r = &Request{Method: method, Kind: kind, Status: class}
		s.requests[key] = r
	}
	r.Count++
	r.Items += int64(done.n)
	r.Duration += done.took.Seconds()
	r.Longest = max(r.Longest, done.took.Seconds())
}

// Stats returns the counts so far.
func (c *Connection) Stats() Stats {
	var out Stats
	c.stats.mu.Lock()
	for _, r := range c.stats.requests {
		out.Requests = append(out.Requests, *r)
	}
	c.stats.mu.Unlock()
	slices.SortFunc(out.Requests, func(a, b Request) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Method, b.Method), cmp.Compare(a.Status, b.Status))
	})
	out.Slots, out.InFlight, out.Waiting = c.networking.limiter.state()
	out.HeldBack = c.networking.HeldBack().Seconds()
	return out
}

// Busy says whether a request is under way, or a service has asked to be left alone: who waits for the cloud then waits
// for something that has a bound.
func (c *Connection) Busy() bool {
	return c.stats.sending.Load() > 0 || c.networking.HeldBack() > 0 || c.balancing.HeldBack() > 0
}

// Collector returns the same as Prometheus metrics, under raven_openstack_.
func (c *Connection) Collector() prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("raven_openstack_"+name, help, labels, nil)
	}
	by := []string{"method", "kind", "status"}
	return &collector{
		connection: c,
		requests: desc("requests_total", "Deprecated: use raven_openstack_request_duration_seconds_count. "+
			"Requests to the networking service.", by...),
		items: desc("items_total", "Deprecated: use raven_openstack_request_resources_total. "+
			"Resources that the requests were about.", by...),
		seconds: desc("request_seconds_total", "Deprecated: use raven_openstack_request_duration_seconds_sum. "+
			"Time that the requests took, added up.", by...),
		slots:    desc("slots", "Requests that may be in flight at once."),
		inFlight: desc("in_flight", "Requests in flight."),
		waiting:  desc("waiting", "Requests that wait for a slot."),
	}
}

type collector struct {
	connection                                         *Connection
	requests, items, seconds, slots, inFlight, waiting *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.requests, c.items, c.seconds, c.slots, c.inFlight, c.waiting,
	} {
		to <- d
	}
	c.connection.stats.durations.Describe(to)
	c.connection.stats.resources.Describe(to)
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	s := c.connection.Stats()
	for _, r := range s.Requests {
		counter(c.requests, float64(r.Count), r.Method, r.Kind, r.Status)
		counter(c.items, float64(r.Items), r.Method, r.Kind, r.Status)
		counter(c.seconds, r.Duration, r.Method, r.Kind, r.Status)
	}
	gauge(c.slots, s.Slots)
	gauge(c.inFlight, s.InFlight)
	gauge(c.waiting, s.Waiting)
	c.connection.stats.durations.Collect(to)
	c.connection.stats.resources.Collect(to)
}
