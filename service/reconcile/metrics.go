// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// Metrics counts what the loop does.
type Metrics struct {
	took    *prometheus.HistogramVec
	tookOld *prometheus.HistogramVec // by its deprecated name
	listed  *prometheus.GaugeVec
	steps   *prometheus.CounterVec
	writes  *prometheus.CounterVec
	drifted *prometheus.CounterVec
	toMade  *prometheus.HistogramVec
	toWrite *prometheus.HistogramVec
	objects *prometheus.Desc
	queues  *queueMetrics
	state   *state.Loop
}

func newMetrics(st *state.Loop) *Metrics {
	return &Metrics{
		state: st,
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "raven_reconcile_duration_seconds", Help: "Time of one reconcile of a source object, by driver.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}, []string{"driver"}),
		tookOld: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "raven_reconcile_seconds",
			Help:    "Deprecated: use raven_reconcile_duration_seconds. Time of one reconcile of a source object, by driver.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}, []string{"driver"}),
		listed: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "raven_backend_last_list_success_timestamp_seconds",
			Help: "When this cluster's resources were last listed without an error, by backend, in seconds since 1970.",
		}, []string{"backend"}),
		toMade: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "raven_resource_creation_delay_seconds",
			Help: "Time from the creation of a source object (a whole second) to that of its resource in the cloud, " +
				"for objects on which nothing was written back yet, by driver and kind.",
			Buckets: prometheus.ExponentialBuckets(0.25, 2, 12),
		}, []string{"driver", "kind"}),
		toWrite: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "raven_writeback_delay_seconds",
			Help: "Time from the creation of a source object (a whole second) to the first annotations or labels that " +
				"were written back on it, by driver.",
			Buckets: prometheus.ExponentialBuckets(0.25, 2, 12),
		}, []string{"driver"}),
		queues: newQueueMetrics(),
		steps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "raven_steps_total", Help: "Steps applied to the cloud, by operation, kind and outcome.",
		}, []string{"op", "kind", "outcome"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "raven_writebacks_total", Help: "Source objects that were written to, by driver.",
		}, []string{"driver"}),
		drifted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "raven_drifted_resources_total", Help: "Resources that a drift check found changed or gone, by kind.",
		}, []string{"kind"}),
		objects: prometheus.NewDesc("raven_objects", "Source objects, by driver and state.", []string{"driver", "state"},
			nil),
	}
}

// Metrics returns the engine's collectors and those of its backends, to be registered once.
func (e *Engine) Metrics() []prometheus.Collector {
	m := e.metrics
	list := []prometheus.Collector{m.took, m.tookOld, m.listed, m.steps, m.writes, m.drifted, m.toMade, m.toWrite, m}
	list = append(list, m.queues.collectors()...)
	for _, b := range e.backends {
		list = append(list, b.Collectors...)
	}
	return list
}

// Describe implements prometheus.Collector for what is counted when it is asked for.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	to <- m.objects
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	type label struct {
		driver string
		phase  state.Phase
	}
	counts := map[label]int{}
	m.state.View(func(tx *state.LoopTx) {
		for name := range tx.Drivers() {
			for _, phase := range []state.Phase{state.Pending, state.Done, state.Waiting, state.Failing, state.Terminal} {
				counts[label{name, phase}] = 0
			}
		}
		for _, o := range tx.Objects() {
			if o.ID.Driver != state.Shared {
				counts[label{o.Request.Driver, o.Phase}]++
			}
		}
	})
	for l, n := range counts {
		to <- prometheus.MustNewConstMetric(m.objects, prometheus.GaugeValue, float64(n), l.driver, string(l.phase))
	}
}

func (m *Metrics) reconciled(driver string, d time.Duration) {
	m.took.WithLabelValues(driver).Observe(d.Seconds())
	m.tookOld.WithLabelValues(driver).Observe(d.Seconds())
}

// driver has the metrics of a driver begin at 0.
func (m *Metrics) driver(name string, info drivers.Info) {
	m.took.WithLabelValues(name)
	m.writes.WithLabelValues(name)
	if len(info.Annotations)+len(info.Labels) == 0 {
		return
	}
	m.toWrite.WithLabelValues(name)
	for _, kind := range info.Kinds {
		m.toMade.WithLabelValues(name, string(kind))
	}
}

// firstCreate measures how long a new object waited for a resource that a step has created; the state is locked.
func (m *Metrics) firstCreate(o *state.Object, s plan.Step, now time.Time) {
	if s.Op == plan.Create && !o.NewSince.IsZero() {
		m.toMade.WithLabelValues(o.Request.Driver, string(s.Kind)).Observe(max(0, now.Sub(o.NewSince).Seconds()))
	}
}

// firstWrite measures how long a new object waited for what is written back on it; the state is locked.
func (m *Metrics) firstWrite(o *state.Object, now time.Time) {
	if !o.NewSince.IsZero() {
		m.toWrite.WithLabelValues(o.Request.Driver).Observe(max(0, now.Sub(o.NewSince).Seconds()))
	}
}

func (m *Metrics) list(backend string, at time.Time) {
	m.listed.WithLabelValues(backend).Set(float64(at.UnixNano()) / float64(time.Second))
}

func (m *Metrics) step(s plan.Step, err error) {
	outcome := "ok"
	var f *backend.Failure
	if errors.As(err, &f) && f.NotTried {
		return
	}
	if err != nil {
		outcome = "retry" // what is no answer of a cloud is tried again
		var class interface{ Outcome() string }
		if errors.As(err, &class) {
			outcome = class.Outcome()
		}
	}
	m.steps.WithLabelValues(string(s.Op), string(s.Kind), outcome).Inc()
}

func (m *Metrics) written(driver string) { m.writes.WithLabelValues(driver).Inc() }

func (m *Metrics) drift(d state.Drift) { m.drifted.WithLabelValues(string(d.Kind)).Inc() }
