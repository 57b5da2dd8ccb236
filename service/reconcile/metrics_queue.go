// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

// queueMetrics gives client-go's workqueues the metrics that they have in Kubernetes' own components, by the names and
// the label that those use. It is each engine's own: client-go's global provider can be set once in a process only.
type queueMetrics struct {
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	waited, worked             *prometheus.HistogramVec
}

func newQueueMetrics() *queueMetrics {
	by := []string{"name"}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "workqueue_" + name, Help: help}, by)
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "workqueue_" + name, Help: help}, by)
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "workqueue_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 4, 10),
		}, by)
	}
	return &queueMetrics{
		depth:   gauge("depth", "Keys that wait in the queue, by queue: a driver's name, shared or disabled."),
		adds:    counter("adds_total", "Keys that were added to the queue."),
		retries: counter("retries_total", "Keys that were added again with a backoff."),
		waited:  histogram("queue_duration_seconds", "Time that a key waited in the queue."),
		worked:  histogram("work_duration_seconds", "Time that a key was being reconciled."),
		unfinished: gauge("unfinished_work_seconds",
			"Time that the keys being reconciled now have taken so far, added up."),
		longest: gauge("longest_running_processor_seconds", "Time that the longest of these reconciles has taken so far."),
	}
}

func (m *queueMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.depth, m.adds, m.retries, m.waited, m.worked, m.unfinished, m.longest}
}

// NewDepthMetric implements workqueue.MetricsProvider, as the others do.
func (m *queueMetrics) NewDepthMetric(name string) workqueue.GaugeMetric {
	return m.depth.WithLabelValues(name)
}

// NewAddsMetric counts what is added.
func (m *queueMetrics) NewAddsMetric(name string) workqueue.CounterMetric {
	return m.adds.WithLabelValues(name)
}

// NewLatencyMetric observes how long keys wait.
func (m *queueMetrics) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return m.waited.WithLabelValues(name)
}

// NewWorkDurationMetric observes how long reconciles take.
func (m *queueMetrics) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return m.worked.WithLabelValues(name)
}

// NewUnfinishedWorkSecondsMetric measures what is under way.
func (m *queueMetrics) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.unfinished.WithLabelValues(name)
}

// NewLongestRunningProcessorSecondsMetric measures the longest reconcile that is under way.
func (m *queueMetrics) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.longest.WithLabelValues(name)
}

// NewRetriesMetric counts retries.
func (m *queueMetrics) NewRetriesMetric(name string) workqueue.CounterMetric {
	return m.retries.WithLabelValues(name)
}
