// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// The phases of an ADD, in order.
const (
	phaseAnnotation = "annotation" // until the API server has shown the port
	phaseOwner      = "owner"      // the question to OVN's southbound database
	phaseLink       = "link"       // the pair of links
	phaseRow        = "row"        // Open vSwitch's row
	phaseSandbox    = "sandbox"    // addresses and routes
	phaseInstalled  = "installed"  // until OVN has the port's flows in place
)

type metrics struct {
	phases   *prometheus.HistogramVec
	add      prometheus.Histogram
	requests *prometheus.CounterVec
	restored *prometheus.CounterVec
}

func newMetrics() *metrics {
	buckets := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}
	return &metrics{
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "raven_node_add_phase_seconds", Help: "Seconds that each phase of a CNI ADD took.", Buckets: buckets,
		}, []string{"phase"}),
		add: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "raven_node_add_seconds", Help: "Seconds that CNI ADDs took that succeeded.", Buckets: buckets,
		}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "raven_node_cni_requests_total", Help: "CNI requests by command and result.",
		}, []string{"command", "result"}),
		restored: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "raven_node_repairs_total", Help: "Interfaces that were put right outside of a CNI request, by what was done.",
		}, []string{"done"}),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	m.phases.Describe(to)
	m.add.Describe(to)
	m.requests.Describe(to)
	m.restored.Describe(to)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	m.phases.Collect(to)
	m.add.Collect(to)
	m.requests.Collect(to)
	m.restored.Collect(to)
}

// count counts a request.
func (m *metrics) count(command string, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.requests.WithLabelValues(strings.ToUpper(command), result).Inc()
}

// stopwatch measures the phases of one ADD.
type stopwatch struct {
	clock   clock.PassiveClock
	metrics *metrics
	began   time.Time
	last    time.Time
	took    []any // names and milliseconds, for the log
}

func (m *metrics) start(c clock.PassiveClock) *stopwatch {
	now := c.Now()
	return &stopwatch{clock: c, metrics: m, began: now, last: now}
}

// phase ends a phase.
func (s *stopwatch) phase(name string) {
	now := s.clock.Now()
	took := now.Sub(s.last)
	s.last = now
	s.metrics.phases.WithLabelValues(name).Observe(took.Seconds())
	s.took = append(s.took, name+"_ms", float64(took.Microseconds())/1000)
}

// end ends an ADD that has succeeded.
func (s *stopwatch) end() {
	s.metrics.add.Observe(s.clock.Since(s.began).Seconds())
}
