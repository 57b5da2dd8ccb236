// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"

	"github.com/kuryr/raven/service/plan"
)

// What the Sets of one driver may take of the core's memory, in bytes: so much, and so much for each of its objects.
// docs/plugin-protocol.md names both.
const (
	memoryPerDriver = 256 << 20
	memoryPerObject = 16 << 10
)

// memory is what the Sets of one driver take.
type memory struct {
	total int
	of    map[plan.Owner]int
	prune int // how many entries make it worth while to search for those of objects that are gone
}

// Reserve makes room for an object's new Set, or refuses it: a driver must not take all memory by many answers, each
// of which is within its bounds.
func (tx *LoopTx) Reserve(driver string, o *Object, size int) error {
	m := &tx.drivers[driver].memory
	if m.of == nil {
		m.of = map[plan.Owner]int{}
	}
	total := m.total - m.of[o.ID] + size
	if total > tx.config.memory(len(m.of)) || len(m.of) > m.prune {
		tx.pruneMemory(m)
		total = m.total - m.of[o.ID] + size
	}
	if most := tx.config.memory(len(m.of)); total > most && size > m.of[o.ID] {
		return fmt.Errorf("driver(%s): its answers take too much memory: %d MiB with this one, which takes %d bytes; at "+
			"most %d MiB, for %d objects", driver, total>>20, size, most>>20, len(m.of))
	}
	m.total, m.of[o.ID] = total, size
	return nil
}

// pruneMemory forgets what objects held that are gone.
func (tx *Tx) pruneMemory(m *memory) {
	for id, size := range m.of {
		if o := tx.objects[id]; o == nil || o.Gone {
			m.total -= size
			delete(m.of, id)
		}
	}
	m.prune = 2*len(m.of) + 1024
}

// memory is how much the Sets for so many objects may take.
func (c *Config) memory(objects int) int {
	if c.MemoryPerDriver > 0 {
		return c.MemoryPerDriver
	}
	return memoryPerDriver + objects*memoryPerObject
}
