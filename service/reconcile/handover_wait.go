package reconcile

import (
	"fmt"
	"time"

	"github.com/kuryr/raven/drivers"
)

// As long as the handover of a Service waits, the load balancer serves that it had, with the endpoints that it had: who made it is not enabled any
// more, and who is says nothing of load balancers of that kind. So each of these Services says it, and they are counted.

// HandoverStatus says how many Services wait to be handed over.
type HandoverStatus struct {
	Waiting int `json:"waiting"`
	// Since is when the first of them was found to wait: its endpoints are of then, or of earlier, if this process began later than its wait.
	Since time.Time `json:"since,omitzero"`
	// Unseen are those of which nobody can see whether Octavia still serves them.
	Unseen int `json:"unseen,omitempty"`
}

// String says it for people.
func (h HandoverStatus) String() string {
	return fmt.Sprintf("%d Services wait to be handed over, and their old load balancers serve on with the endpoints of %s or earlier: none are followed there",
		h.Waiting, h.Since.Format(time.DateTime))
}

// Handover returns how many Services wait to be handed over.
func (e *Engine) Handover() HandoverStatus {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	return e.store.handover()
}

// handover is that. The store is locked.
func (s *store) handover() HandoverStatus {
	h := HandoverStatus{Unseen: len(s.northbound.withheld)}
	for id, o := range s.owners {
		if _, gap := s.handovers[id]; gap || o.stale.IsZero() {
			continue
		}
		if h.Waiting++; h.Since.IsZero() || o.stale.Before(h.Since) {
			h.Since = o.stale
		}
	}
	return h
}

// servesStill returns the kind of load balancers of which one serves an owner that is to have one of the other kind; "" if there is none. The store is
// locked.
func (s *store) servesStill(o *owner) drivers.Kind {
	if _, gap := s.handovers[o.id]; gap || o.gone {
		return ""
	}
	for key := range s.cloud.byOwner[o.id] {
		switch key.kind { //nolint:exhaustive // the others serve nobody
		case drivers.KindLoadBalancer, drivers.KindOVNLoadBalancer:
			if wantsInstead(o.set, key.kind) {
				return key.kind
			}
		}
	}
	return ""
}

// noteStale notes since when an owner is served by what nobody follows. The store is locked.
func (s *store) noteStale(o *owner) {
	switch still := s.servesStill(o); {
	case still == "":
		o.stale = time.Time{}
	case o.stale.IsZero():
		o.stale = s.clock.Now()
	}
}

// tellStale adds to what an owner waits for that it is served by what nobody follows.
func (e *Engine) tellStale(o *owner, messages []string) []string {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	still := e.store.servesStill(o)
	if still == "" || o.stale.IsZero() || len(messages) == 0 {
		return messages
	}
	whose := "Octavia's"
	if still == drivers.KindOVNLoadBalancer {
		whose = "OVN's"
	}
	messages[0] += fmt.Sprintf("; meanwhile %s load balancer serves on, with the endpoints of %s or earlier: none are followed there",
		whose, o.stale.Format(time.DateTime))
	return messages
}
