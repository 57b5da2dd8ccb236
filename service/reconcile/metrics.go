package reconcile

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
)

// Metrics counts what the loop does.
type Metrics struct {
	passes  *prometheus.HistogramVec
	steps   *prometheus.CounterVec
	writes  *prometheus.CounterVec
	drifted prometheus.Counter
	gaps    *prometheus.HistogramVec
	objects *prometheus.Desc
	waiting *prometheus.Desc
	store   *store
}

func newMetrics() *Metrics {
	return &Metrics{
		passes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "raven_reconcile_seconds", Help: "Time of one pass over a source object, by driver.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}, []string{"driver"}),
		steps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "raven_steps_total", Help: "Steps applied to the cloud, by operation, kind and outcome.",
		}, []string{"op", "kind", "outcome"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "raven_writebacks_total", Help: "Source objects that were written to, by driver.",
		}, []string{"driver"}),
		drifted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "raven_drifted_resources_total", Help: "Resources that a drift check found changed or gone.",
		}),
		gaps: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "raven_handover_seconds", Help: "Time for which a Service had no load balancer while it was handed over, by the kind that serves it now.",
			Buckets: prometheus.ExponentialBuckets(0.001, 3, 11),
		}, []string{"to"}),
		objects: prometheus.NewDesc("raven_objects", "Source objects, by driver and state.", []string{"driver", "state"}, nil),
		waiting: prometheus.NewDesc("raven_handovers_waiting", "Services that wait to be handed over: nobody follows the endpoints of the load balancers that serve them.", nil, nil),
	}
}

// Metrics returns the engine's collectors, to be registered once.
func (e *Engine) Metrics() []prometheus.Collector {
	m := e.metrics
	return []prometheus.Collector{m.passes, m.steps, m.writes, m.drifted, m.gaps, m}
}

// Describe implements prometheus.Collector for what is counted when it is asked for.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	to <- m.objects
	to <- m.waiting
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	type label struct {
		driver string
		phase  Phase
	}
	counts := map[label]int{}
	var handover HandoverStatus
	m.store.do(func() {
		handover = m.store.handover()
		for name := range m.store.drivers {
			for _, phase := range []Phase{Pending, Done, Waiting, Failing, Terminal} {
				counts[label{name, phase}] = 0
			}
		}
		for _, o := range m.store.owners {
			if o.id.Driver != sharedDriver {
				counts[label{o.item.driver, o.phase}]++
			}
		}
	})
	to <- prometheus.MustNewConstMetric(m.waiting, prometheus.GaugeValue, float64(handover.Waiting+handover.Unseen))
	for l, n := range counts {
		to <- prometheus.MustNewConstMetric(m.objects, prometheus.GaugeValue, float64(n), l.driver, string(l.phase))
	}
}

func (m *Metrics) pass(driver string, d time.Duration) {
	m.passes.WithLabelValues(driver).Observe(d.Seconds())
}

func (m *Metrics) step(s plan.Step, err error) {
	outcome := "ok"
	if err != nil {
		outcome = openstack.Classify(err).String()
	}
	m.steps.WithLabelValues(string(s.Op), string(s.Kind), outcome).Inc()
}

func (m *Metrics) handover(to drivers.Kind, gap time.Duration) {
	m.gaps.WithLabelValues(string(to)).Observe(gap.Seconds())
}
func (m *Metrics) written(driver string) { m.writes.WithLabelValues(driver).Inc() }
func (m *Metrics) drift(n int)           { m.drifted.Add(float64(n)) }
