// SPDX-License-Identifier: Apache-2.0

package ovn

import (
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// follower takes over what the database tells of its own accord.
type follower struct{ b *Backend }

// Follower returns who is to be told what changes in the database by itself.
func (b *Backend) Follower() Follower { return follower{b} }

// Changed implements Follower: what is not as it was is reconciled.
func (f follower) Changed(list []Resource) {
	b := f.b
	var changes []state.Drift
	for _, r := range list {
		begun, ready := b.begin()
		if !ready {
			return
		}
		now, there, err := b.database.Get(r.Kind, r.ID)
		if err != nil {
			break // it is told when the database is back
		}
		b.env.State.Update(func(tx *state.Tx) {
			changes = see(tx, changes, state.ResourceKey{Kind: r.Kind, ID: r.ID}, now, there, begun)
		})
	}
	b.env.Loop.Drifted(changes)
}

// Arrived implements Follower.
func (f follower) Arrived(rows []string) {
	f.b.env.State.Update(func(tx *state.Tx) {
		for _, row := range rows {
			tx.Wake(byRow(row))
		}
	})
}

// Back implements Follower: all of it is taken over, and who waited is woken.
func (f follower) Back() { f.b.take() }

// begin says since when what is read of the database counts. Before the cloud was observed for the first time nothing
// is taken over: then all is listed, and once more if something was told meanwhile.
func (b *Backend) begin() (begun uint64, ready bool) {
	b.env.State.Update(func(tx *state.Tx) {
		begun, ready = tx.Cache.Sequence(), b.observed
		b.told = b.told || !ready
	})
	return begun, ready
}

// listed notes that the cloud was observed. What was told meanwhile is taken over then; so is the database if it could
// not be listed, since it may have come back between that and now.
func (b *Backend) listed(tx *state.Tx, err error) {
	if b.told || err != nil {
		tx.After(b.take)
	}
	b.observed, b.told = true, false
}

// take takes over all that the database has of this cluster's, and wakes who waits for the database. Where it was never
// listed, all backends are listed once more: replays may end with that.
func (b *Backend) take() {
	begun, ready := b.begin()
	if !ready || b.database == nil {
		return
	}
	list, err := b.list()
	if err != nil {
		return // it is told when the database is back again
	}
	var changes []state.Drift
	b.env.State.Update(func(tx *state.Tx) {
		seen := map[state.ResourceKey]bool{}
		for _, o := range list {
			key := state.ResourceKey{Kind: o.Kind, ID: o.ID}
			seen[key] = true
			changes = see(tx, changes, key, o, true, begun)
		}
		for _, d := range Kinds() {
			for _, o := range tx.Cache.OfKind(d.Kind) {
				if key := (state.ResourceKey{Kind: o.Kind, ID: o.ID}); !seen[key] {
					changes = see(tx, changes, key, plan.Observed{}, false, begun)
				}
			}
		}
		if kind := Kinds()[0].Kind; tx.Listed(kind) {
			tx.SetAvailable(kind)
		} else {
			b.env.Loop.RequestList(0)
		}
	})
	b.env.Loop.Drifted(changes)
}

// see takes over a resource as it was read since a sequence, or that it is not there. It adds what differs from what
// was known.
func see(
	tx *state.Tx, changes []state.Drift, key state.ResourceKey, now plan.Observed, there bool, begun uint64,
) []state.Drift {
	old, known := tx.Cache.Get(key.Kind, key.ID)
	if !tx.Seen(key, now, there, begun) {
		return changes
	}
	change := state.Change{Differs: true}
	if known {
		change.Before = &old
	}
	if there {
		change.Now = &now
	}
	if drift, drifts := tx.Cache.Drift(change); drifts {
		changes = append(changes, drift)
	}
	return changes
}
