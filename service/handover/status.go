// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/state"
)

// As long as the handover of a Service waits, the load balancer serves that it had, with the endpoints that it had: who
// made it is not enabled any more, and who is says nothing of load balancers of that kind. So each of these Services
// says it, and they are counted.

// Status says how many Services wait to be handed over.
type Status struct {
	Waiting int `json:"waiting"`
	// Since is when the first of them was found to wait: its endpoints are of then, or of earlier, if this process
	// began later than its wait.
	Since time.Time `json:"since,omitzero"`
	// Unseen are those of which it is not known whether Octavia still serves them.
	Unseen int `json:"unseen,omitempty"`
}

// String says it for people.
func (s Status) String() string {
	return fmt.Sprintf("%d Services wait to be handed over, and their old load balancers serve on with the endpoints of "+
		"%s or earlier: none are followed there", s.Waiting, s.Since.Format(time.DateTime))
}

// Status returns how many Services wait to be handed over.
func (h *Handover) Status() (s Status) {
	h.env.State.View(func(*state.Tx) {
		s.Unseen = len(h.withheld)
		for id, since := range h.stale {
			if _, gap := h.unserved[id]; gap {
				continue
			}
			if s.Waiting++; s.Since.IsZero() || since.Before(s.Since) {
				s.Since = since
			}
		}
	})
	return s
}

// Withheld says, for people, that Services are not served by OVN for Octavia may still serve them, which cannot be
// asked; "" if there are none.
func (h *Handover) Withheld() (text string) {
	h.env.State.View(func(tx *state.Tx) {
		if n := len(h.withheld); n > 0 {
			text = fmt.Sprintf("%d Services wait for %s, whose load balancers may still serve them, with the endpoints "+
				"that they had: %v", n, h.octaviaName, tx.Unavailable(drivers.KindLoadBalancer))
		}
	})
	return text
}

// servesStill returns the kind of load balancers of which one serves an object that is to have one of the other kind;
// "" if there is none.
func (h *Handover) servesStill(tx *state.Tx, o *state.Object) drivers.Kind {
	if _, gap := h.unserved[o.ID]; gap || o.Gone {
		return ""
	}
	for _, kind := range []drivers.Kind{drivers.KindLoadBalancer, drivers.KindOVNLoadBalancer} {
		if wantsInstead(o.Set, kind) && len(tx.Cache.OwnedOf(o.ID, kind)) > 0 {
			return kind
		}
	}
	return ""
}

// noteStale notes since when an object is served by a load balancer whose endpoints are not followed.
func (h *Handover) noteStale(tx *state.Tx, o *state.Object) {
	if h.servesStill(tx, o) == "" {
		delete(h.stale, o.ID)
	} else if h.stale[o.ID].IsZero() {
		h.stale[o.ID] = tx.Now()
	}
}

// remarks says of an object that it is served by a load balancer whose endpoints are not followed.
func (h *Handover) remarks(tx *state.Tx, o *state.Object) []string {
	still, since := h.servesStill(tx, o), h.stale[o.ID]
	if still == "" || since.IsZero() {
		return nil
	}
	whose := "Octavia's"
	if still == drivers.KindOVNLoadBalancer {
		whose = "OVN's"
	}
	return []string{fmt.Sprintf("meanwhile %s load balancer serves on, with the endpoints of %s or earlier: none are "+
		"followed there", whose, since.Format(time.DateTime))}
}

func newGaps() *prometheus.HistogramVec {
	gaps := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "raven_handover_seconds",
		Help: "Time for which a Service had no load balancer while it was handed over, " +
			"by the kind that serves it now.",
		Buckets: prometheus.ExponentialBuckets(0.001, 3, 11),
	}, []string{"to"})
	for _, kind := range []drivers.Kind{drivers.KindLoadBalancer, drivers.KindOVNLoadBalancer} {
		gaps.WithLabelValues(string(kind))
	}
	return gaps
}

// waiting is the metric of Services that wait.
func (h *Handover) waiting() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "raven_handovers_waiting",
		Help: "Services that wait to be handed over: no driver follows the endpoints of the load balancers that " +
			"serve them.",
	}, func() float64 {
		s := h.Status()
		return float64(s.Waiting + s.Unseen)
	})
}
