// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"net/url"
	goruntime "runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	clientmetrics "k8s.io/client-go/tools/metrics"

	"github.com/kuryr/raven/service/host"
)

// metricsRegistry has all metrics of the process; see docs/metrics.md.
func (d *Daemon) metricsRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), d)
	registry.MustRegister(d.collectors()...)
	return registry
}

// collectors are those that a reload does not replace.
func (d *Daemon) collectors() []prometheus.Collector {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "raven_build_info", Help: "1, with the version of Raven and of Go.",
		ConstLabels: prometheus.Labels{"version": d.config.Loader.Version, "goversion": goruntime.Version()},
	})
	build.Set(1)
	rest := kubernetesRequests()
	return []prometheus.Collector{build, d.reloads.succeeded, d.reloads.at, rest.requests, rest.durations}
}

// reloads measures when the configuration was last taken over.
type reloads struct{ succeeded, at prometheus.Gauge }

func newReloads() reloads {
	return reloads{
		succeeded: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "raven_config_last_reload_successful",
			Help: "1 if the last reload of the configuration succeeded, or there was none since the start, else 0.",
		}),
		at: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "raven_config_last_reload_success_timestamp_seconds",
			Help: "When a configuration was last taken over, at the start or by a reload, in seconds since 1970.",
		}),
	}
}

func (r reloads) note(err error) {
	if err != nil {
		r.succeeded.Set(0)
		return
	}
	r.succeeded.Set(1)
	r.at.SetToCurrentTime()
}

// restMetrics are the metrics that client-go's requests have in Kubernetes' own components, by the same names.
type restMetrics struct {
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
}

// kubernetesRequests registers the metrics with client-go, which takes one registration in a process.
//
//nolint:gochecknoglobals // client-go keeps its metrics in global variables
var kubernetesRequests = sync.OnceValue(func() restMetrics {
	m := restMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rest_client_requests_total",
			Help: "Requests to the API server, by HTTP status code, method and host.",
		}, []string{"code", "method", "host"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "rest_client_request_duration_seconds",
			Help:    "Time of one request to the API server, by verb and host.",
			Buckets: []float64{.005, .025, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60},
		}, []string{"verb", "host"}),
	}
	clientmetrics.Register(clientmetrics.RegisterOpts{
		RequestResult: restResult{m.requests}, RequestLatency: restLatency{m.durations},
	})
	return m
})

type restResult struct{ requests *prometheus.CounterVec }

// Increment implements metrics.ResultMetric of client-go.
func (r restResult) Increment(_ context.Context, code, method, host string) {
	r.requests.WithLabelValues(code, method, host).Inc()
}

type restLatency struct{ durations *prometheus.HistogramVec }

// Observe implements metrics.LatencyMetric of client-go.
func (r restLatency) Observe(_ context.Context, verb string, u url.URL, latency time.Duration) {
	r.durations.WithLabelValues(verb, u.Host).Observe(latency.Seconds())
}

// Describe describes nothing: which collectors there are depends on the configuration.
func (d *Daemon) Describe(chan<- *prometheus.Desc) {}

// Collect passes on the metrics of the present runtime, which a reload replaces.
func (d *Daemon) Collect(to chan<- prometheus.Metric) {
	r := d.current()
	if r == nil {
		return
	}
	for _, c := range r.collectors() {
		c.Collect(to)
	}
}

func (r *runtime) collectors() []prometheus.Collector {
	list := []prometheus.Collector{r.cloud.Neutron.Collector(), newDriverCollector(r)}
	if r.candidate != nil {
		list = append(list, newLeaderCollector(r))
	}
	if r.northbound != nil {
		list = append(list, r.northbound.Collector())
	}
	return append(list, r.engine().Metrics()...)
}

// driverCollector measures the drivers' processes and what the mass-deletion guard holds of them.
type driverCollector struct {
	runtime                                   *runtime
	up, quarantined, restarts, isolated, held *prometheus.Desc
}

func newDriverCollector(r *runtime) *driverCollector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("raven_"+name, help, []string{"driver"}, nil)
	}
	return &driverCollector{
		runtime:     r,
		up:          desc("driver_up", "1 while the driver's process serves, else 0."),
		quarantined: desc("driver_quarantined", "1 while the driver is not started again at once, because it kept ending."),
		restarts:    desc("driver_restarts_total", "Starts of the driver's process after the first one."),
		isolated:    desc("driver_isolated_objects", "Objects that ended or hung the driver and are kept from it."),
		held:        desc("guard_held_deletions", "Deletions that the mass-deletion guard holds."),
	}
}

// Describe implements prometheus.Collector.
func (c *driverCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.up, c.quarantined, c.restarts, c.isolated, c.held} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *driverCollector) Collect(to chan<- prometheus.Metric) {
	for _, d := range c.runtime.driverReports() {
		gauge := func(desc *prometheus.Desc, v float64) {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, d.Name)
		}
		held := 0
		if d.Guard != nil {
			held = d.Guard.Held
		}
		gauge(c.up, truth(d.State == string(host.Ready)))
		gauge(c.quarantined, truth(d.State == string(host.Quarantined)))
		gauge(c.isolated, float64(d.Isolated))
		gauge(c.held, float64(held))
		to <- prometheus.MustNewConstMetric(c.restarts, prometheus.CounterValue, float64(d.Restarts), d.Name)
	}
}

// leaderCollector measures leadership, where it is contended for.
type leaderCollector struct {
	runtime        *runtime
	leading, terms *prometheus.Desc
}

func newLeaderCollector(r *runtime) *leaderCollector {
	return &leaderCollector{
		runtime: r,
		leading: prometheus.NewDesc("raven_leading", "Whether this process leads: 1 or 0.",
			[]string{"identity", "lease"}, nil),
		terms: prometheus.NewDesc("raven_leader_terms_total", "How often this process began to lead.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *leaderCollector) Describe(to chan<- *prometheus.Desc) {
	to <- c.leading
	to <- c.terms
}

// Collect implements prometheus.Collector.
func (c *leaderCollector) Collect(to chan<- prometheus.Metric) {
	s := c.runtime.candidate.Status()
	to <- prometheus.MustNewConstMetric(c.leading, prometheus.GaugeValue, truth(s.Leading), s.Identity, s.Lease)
	to <- prometheus.MustNewConstMetric(c.terms, prometheus.CounterValue, float64(s.Terms))
}

// truth is 1 for true, else 0.
func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
