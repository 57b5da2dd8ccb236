// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
)

// clashes returns what goes by this plan and holds what a new resource needs, so that the cloud would refuse the new
// one.
func (c *Computation) clashes(m *Match, attrs map[string]any) []*Observed {
	clash := c.kinds.Of(m.Kind).Clash
	if clash == nil {
		return nil
	}
	var found []*Observed
	for _, key := range slices.Sorted(maps.Keys(c.going)) {
		o := c.going[key].observed
		if m.Observed == nil || m.Observed.ID != o.ID {
			if c.KindOf(o) == m.Kind && c.Leaves(o.ID) && clash(attrs, o.Attrs) {
				found = append(found, o)
			}
		}
	}
	return found
}

// keepUnsure takes back the departures of what something that is not known yet may stand for, and of what uses it.
func (c *Computation) keepUnsure() {
	if len(c.Unsure) == 0 {
		return
	}
	var queue []*Observed
	for _, gone := range c.going {
		if c.Unsure[c.KindOf(gone.observed)] && c.instead[gone.observed.ID] == "" {
			queue = append(queue, gone.observed)
		}
	}
	for len(queue) > 0 {
		o := queue[0]
		queue = queue[1:]
		if _, goes := c.going[o.ID]; !goes {
			continue
		}
		delete(c.going, o.ID)
		c.Plan.Kept++
		for _, user := range c.Users(o) {
			if gone, goes := c.going[user.ID]; goes && c.instead[user.ID] == "" {
				queue = append(queue, gone.observed)
			}
		}
	}
}
