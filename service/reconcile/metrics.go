// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// Metrics counts what the loop does.
type Metrics struct {
	took    *prometheus.HistogramVec
	steps   *prometheus.CounterVec
	writes  *prometheus.CounterVec
	drifted *prometheus.CounterVec
	objects *prometheus.Desc
	state   *state.Loop
}

func newMetrics(st *state.Loop) *Metrics {
	return &Metrics{
		state: st,
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "raven_reconcile_seconds", Help: "Time of one reconcile of a source object, by driver.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}, []string{"driver"}),
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
	list := []prometheus.Collector{m.took, m.steps, m.writes, m.drifted, m}
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
