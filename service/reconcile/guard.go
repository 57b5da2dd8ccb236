// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"fmt"

	"github.com/kuryr/raven/service/state"
)

// reviewGuards counts again what is held: objects may have gone, or been answered otherwise. It says whether any
// still is.
func (e *Engine) reviewGuards() bool {
	for _, g := range e.Guards() {
		e.finishEpoch(g.Driver)
	}
	return len(e.Guards()) > 0
}

// Guard is what the mass-deletion guard holds of one driver.
type Guard struct {
	Driver  string `json:"driver"`
	Held    int    `json:"held"`
	Allowed int    `json:"allowed"`
}

// String says what is held and how to let it pass.
func (g Guard) String() string {
	return fmt.Sprintf("driver %s would delete %d resources of objects that still exist, %d are allowed: see `raven "+
		"plan`; raise [raven] max_replay_deletes and max_replay_delete_share to let it", g.Driver, g.Held, g.Allowed)
}

// Guards lists the drivers whose replay is held.
func (e *Engine) Guards() []Guard {
	var list []Guard
	e.state.View(func(tx *state.LoopTx) {
		for _, d := range tx.Drivers() {
			if d.Guarded {
				list = append(list, Guard{d.Name, d.Held, d.Allowed})
			}
		}
	})
	return list
}

// Replayed says whether every source object of every driver has been answered since its driver started.
func (e *Engine) Replayed() bool {
	replayed := true
	e.state.View(func(tx *state.LoopTx) {
		for _, d := range tx.Drivers() {
			replayed = replayed && tx.Heard(d)
		}
	})
	return replayed
}
