package reconcile

import (
	"fmt"
	"slices"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// What the Sets of one driver may take of the core's memory, in bytes: so much, and so much for each of its objects. docs/plugin-protocol.md names both.
const (
	heldPerDriver = 256 << 20
	heldPerObject = 16 << 10
)

// held is what the Sets of one driver take. The store's lock guards it.
type held struct {
	total int
	of    map[plan.Owner]int
	prune int // how many entries make it worth while to look for those of owners that are gone
}

// hold makes room for an owner's new Set, or refuses it: a driver must not take all memory by many answers, each of which is within its bounds.
func (e *Engine) hold(w *watcher, o *owner, size int) (err error) {
	e.store.do(func() {
		h := &w.held
		if h.of == nil {
			h.of = map[plan.Owner]int{}
		}
		total := h.total - h.of[o.id] + size
		if total > e.config.heldMost(len(h.of)) || len(h.of) > h.prune {
			e.store.pruneHeld(h)
			total = h.total - h.of[o.id] + size
		}
		if most := e.config.heldMost(len(h.of)); total > most && size > h.of[o.id] {
			err = terminalError{fmt.Errorf("driver(%s): its answers take too much memory: %d MiB with this one, which takes %d bytes; at most %d MiB, for "+
				"%d objects", w.name, total>>20, size, most>>20, len(h.of))}
			return
		}
		h.total, h.of[o.id] = total, size
	})
	return err
}

// pruneHeld forgets what owners held that are gone.
func (s *store) pruneHeld(h *held) {
	for id, size := range h.of {
		if o := s.owners[id]; o == nil || o.gone {
			h.total -= size
			delete(h.of, id)
		}
	}
	h.prune = 2*len(h.of) + 1024
}

func (c *Config) heldMost(objects int) int {
	if c.HeldPerDriver > 0 {
		return c.HeldPerDriver
	}
	return heldPerDriver + objects*heldPerObject
}

// mayContribute refuses contributions that the operator does not allow: they change what belongs to others.
func (e *Engine) mayContribute(driver string, set drivers.Set) error {
	allowed, bounded := e.config.Contributes[driver]
	if !bounded {
		return nil
	}
	for _, c := range set.Contributions {
		if !slices.Contains(allowed, c.Attribute) {
			return terminalError{fmt.Errorf("driver(%s): contribution %q: it adds to the %s of %s, which [driver:%s] allow_contributions does not name",
				driver, c.Name, c.Attribute, c.Target, driver)}
		}
	}
	return nil
}
