// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
	"github.com/kuryr/raven/service/watch"
)

// Presence says which objects the cluster has.
type Presence interface {
	// UIDs returns the UIDs of all objects of a resource, which is written as in watch.ResourceName. An error means that
	// nothing is known.
	UIDs(ctx context.Context, resource string) (map[string]bool, error)
}

// disabledDriver is the driver of the requests of objects whose driver is not enabled. No driver can be called so.
const disabledDriver = ":disabled"

// DisabledStatus is what a driver that is not enabled has left: it stays as it is until the objects are deleted that it
// is for.
type DisabledStatus struct {
	// Driver is whose name stands on it: the driver's or that of its role; a long one is shortened as identities have it.
	Driver    string `json:"driver"`
	Objects   int    `json:"objects"`
	Resources int    `json:"resources"`
	// Untold are how many of the objects' resources do not say: they stay until they are cleaned up.
	Untold int `json:"untold,omitempty"`
	// Problem says why it is not known now which of the objects are gone.
	Problem string `json:"problem,omitempty"`
}

// disabledState is what the checks of the objects of disabled drivers have found.
type disabledState struct {
	mu       sync.Mutex
	next     time.Time
	problems map[string]string // by resource
}

// due says whether it is time for another check, and sets the next time.
func (d *disabledState) due(now time.Time, interval time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Before(d.next) {
		return false
	}
	d.next = now.Add(interval)
	return true
}

// found notes what a check has found; soon says that another one is due at once.
func (d *disabledState) found(problems map[string]string, soon bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.problems = problems; soon {
		d.next = time.Time{}
	}
}

func (d *disabledState) problem(resource string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.problems[resource]
}

// collectDisabled ends what drivers that are not enabled made for objects that are gone: those that were missing in two
// lists of the resource that the identities name. All else of these drivers stays. It says whether another check is
// worth while soon.
func (e *Engine) collectDisabled(ctx context.Context) (soon bool) {
	if e.config.Presence == nil {
		return false
	}
	joined := false
	e.state.View(func(tx *state.LoopTx) { joined = tx.Joined() && tx.Unlisted("") == "" })
	if !joined || !e.disabled.due(e.clock.Now(), e.config.DriftInterval) {
		return false
	}
	var owners map[string][]plan.Owner
	e.state.View(func(tx *state.LoopTx) { owners = disabledOwners(tx) })
	problems := map[string]string{}
	for _, resource := range slices.Sorted(maps.Keys(owners)) {
		there, err := e.config.Presence.UIDs(ctx, resource) // after the owners were taken: what is missing is gone, not late
		if ctx.Err() != nil {
			return false
		}
		if err != nil {
			problems[resource] = err.Error()
			e.log.Warn("it is not known which objects of disabled drivers are gone: their resources stay", "error", err)
			continue
		}
		gone, fresh := e.missing(owners[resource], asOwned(there))
		if len(gone) > e.config.CollectLimit {
			gone, fresh = gone[:e.config.CollectLimit], true
		}
		for _, id := range gone {
			e.endDisabled(id)
		}
		soon = soon || fresh
	}
	e.disabled.found(problems, soon)
	return soon
}

// disabledOwners lists who has something, by the resource of its object, and belongs to no driver that is enabled.
func disabledOwners(tx *state.LoopTx) map[string][]plan.Owner {
	out := map[string][]plan.Owner{}
	enabled := tx.Enabled()
	for id := range tx.Cache.Owners() {
		if enabled[id.Driver] || tx.Object(id) != nil || allRetained(tx, id) {
			continue
		}
		if resource := resourceOf(tx, id); resource != "" {
			out[resource] = append(out[resource], id)
		}
	}
	return out
}

// resourceOf returns what resource the object of an owner is, as the identities of what it has say; empty: none does,
// or they differ.
func resourceOf(tx *state.LoopTx, id plan.Owner) string {
	resource := ""
	for _, o := range tx.Cache.Owned(id) {
		switch said := o.Identity.Source; {
		case said == "" || said == resource:
		case resource != "":
			return ""
		default:
			resource = said
		}
	}
	return resource
}

// asOwned turns objects' UIDs into what the identities of their resources have in place of them: one that is long, or
// has odd characters, is shortened there. An object must never be taken for gone because its name was written
// otherwise.
func asOwned(uids map[string]bool) map[string]bool {
	owned := make(map[string]bool, len(uids))
	for uid := range uids {
		owned[plan.Identity{Owner: plan.Owner{UID: uid}}.Key().UID] = true
	}
	return owned
}

// missing counts how often in a row owners were missing. It returns those that were twice, and whether there are new
// ones.
func (e *Engine) missing(owners []plan.Owner, there map[string]bool) (gone []plan.Owner, fresh bool) {
	e.state.Update(func(tx *state.LoopTx) {
		for _, id := range owners {
			if there[id.UID] {
				delete(tx.Orphans, id)
				continue
			}
			if tx.Orphans[id]++; tx.Orphans[id] >= 2 {
				gone = append(gone, id)
			} else {
				fresh = true
			}
		}
	})
	slices.SortFunc(gone, func(a, b plan.Owner) int { return cmp.Compare(a.UID, b.UID) })
	return gone, fresh
}

// endDisabled makes an object of what is left of one that is gone, and ends it by the ordinary way.
func (e *Engine) endDisabled(id plan.Owner) {
	e.log.Info("deleting what a disabled driver made for an object that is gone", "driver", id.Driver, "uid", id.UID)
	key := leftKey(id)
	e.state.Update(func(tx *state.LoopTx) {
		tx.EnsureGone(id, state.Request{Driver: disabledDriver, Key: key}, drivers.Watch{Kind: vanished})
	})
	e.leavings.add(key)
}

// vanished is the kind of an object that is gone and of which only the UID is known.
const vanished = "vanished object"

func leftKey(id plan.Owner) watch.Key {
	return watch.Key{Watch: id.Driver, Name: orphanPrefix + id.UID}
}

// reconcileDisabled reconciles what is left of an object whose driver is not enabled.
func (e *Engine) reconcileDisabled(ctx context.Context, key watch.Key) (r result) {
	request := state.Request{Driver: disabledDriver, Key: key}
	if e.stopping(ctx) || e.StandingBy() {
		return result{}
	}
	defer func() {
		if v := recover(); v != nil {
			r = e.panicked(ctx, request, v)
		}
	}()
	var total result
	for _, o := range e.predecessors(request, "", watch.Absent) {
		total = sooner(total, e.end(ctx, o))
	}
	return total
}

// dryDisabled makes objects for what collectDisabled would end.
func (e *Engine) dryDisabled(ctx context.Context) {
	if e.config.Presence == nil {
		return
	}
	var owners map[string][]plan.Owner
	e.state.View(func(tx *state.LoopTx) {
		if tx.Unlisted("") == "" { // otherwise none of their resources is collected
			owners = disabledOwners(tx)
		}
	})
	for resource, ids := range owners {
		there, err := e.config.Presence.UIDs(ctx, resource)
		if err != nil {
			e.log.Warn("it is not known which objects of disabled drivers are gone: their resources stay", "error", err)
			continue
		}
		there = asOwned(there)
		e.state.Update(func(tx *state.LoopTx) {
			for _, id := range ids {
				if !there[id.UID] {
					tx.EnsureGone(id, state.Request{Driver: disabledDriver, Key: leftKey(id)}, drivers.Watch{Kind: vanished})
				}
			}
		})
	}
}

// DisabledResources says what drivers that are not enabled have left, by driver.
func (e *Engine) DisabledResources() []DisabledStatus {
	byDriver := map[string]*DisabledStatus{}
	e.state.View(func(tx *state.LoopTx) {
		enabled := tx.Enabled()
		for id, keys := range tx.Cache.Owners() {
			if enabled[id.Driver] {
				continue
			}
			st := byDriver[id.Driver]
			if st == nil {
				st = &DisabledStatus{Driver: id.Driver}
				if id.Driver == plan.ShortDriver(drivers.ServiceProxy) {
					st.Driver = drivers.ServiceProxy
				}
				byDriver[id.Driver] = st
			}
			st.Objects++
			st.Resources += len(keys)
			if resource := resourceOf(tx, id); resource == "" {
				st.Untold += len(keys)
			} else {
				st.Problem = cmp.Or(e.disabled.problem(resource), st.Problem)
			}
		}
	})
	list := make([]DisabledStatus, 0, len(byDriver))
	for _, name := range slices.Sorted(maps.Keys(byDriver)) {
		list = append(list, *byDriver[name])
	}
	return list
}

// String says it for people.
func (f DisabledStatus) String() string {
	text := fmt.Sprintf("driver %s is not enabled: its %d resources for %d objects stay as they are until the "+
		"objects go", f.Driver, f.Resources, f.Objects)
	if f.Untold > 0 {
		text += fmt.Sprintf("; %d of them do not say what they are for, and stay until they are cleaned up", f.Untold)
	}
	if f.Problem != "" {
		text += "; which objects are gone is not known: " + f.Problem
	}
	return text + fmt.Sprintf("; `raven cleanup --driver %s` shows them", f.Driver)
}
