package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/watch"
)

// Presence says which objects the cluster has.
type Presence interface {
	// UIDs returns the UIDs of all objects of a resource, which is written as in watch.ResourceName. An error means that nothing is known.
	UIDs(ctx context.Context, resource string) (map[string]bool, error)
}

// frozenDriver is the driver of the items of owners whose driver is not enabled. No driver can be called so.
const frozenDriver = ":frozen"

// FrozenStatus is what a driver that is not enabled has left: it stays as it is until the objects go that it is for.
type FrozenStatus struct {
	// Driver is whose name stands on it: the driver's or that of its role; a long one is shortened as identities have it.
	Driver    string `json:"driver"`
	Objects   int    `json:"objects"`
	Resources int    `json:"resources"`
	// Untold are how many of the objects' resources do not say: they stay until they are cleaned up.
	Untold int `json:"untold,omitempty"`
	// Problem says why it is not known now which of the objects are gone.
	Problem string `json:"problem,omitempty"`
}

// frozenState is what the looks at frozen owners have found.
type frozenState struct {
	next     time.Time
	problems map[string]string // by resource
}

// sweepFrozen ends what drivers that are not enabled made for objects that are gone: those that were missing in two lists of the resource that
// the identities name. All else of theirs stays. It says whether another look is worth while soon.
func (e *Engine) sweepFrozen(ctx context.Context) (soon bool) {
	now := e.clock.Now()
	var due bool
	var owners map[string][]plan.Owner
	e.store.do(func() {
		if due = e.config.Presence != nil && e.store.joined() && !now.Before(e.store.frozen.next); due {
			owners = e.store.frozenOwners()
			e.store.frozen.next = now.Add(e.config.DriftInterval)
		}
	})
	if !due {
		return false
	}
	problems := map[string]string{}
	for _, resource := range slices.Sorted(maps.Keys(owners)) {
		there, err := e.config.Presence.UIDs(ctx, resource) // after the owners were taken: what is missing is gone, not late
		if ctx.Err() != nil {
			return false
		}
		if err != nil {
			problems[resource] = err.Error()
			e.log.Warn("nobody knows which objects of drivers that are not enabled are gone: what they have stays", "error", err)
			continue
		}
		gone, fresh := e.missing(owners[resource], asOwned(there))
		if len(gone) > e.config.SweepLimit {
			gone, fresh = gone[:e.config.SweepLimit], true
		}
		for _, id := range gone {
			e.endFrozen(id)
		}
		soon = soon || fresh
	}
	e.store.do(func() {
		e.store.frozen.problems = problems
		if soon {
			e.store.frozen.next = now
		}
	})
	return soon
}

// joined says whether all enabled drivers are there: before, it is not known what role each holds.
func (s *store) joined() bool {
	for _, d := range s.drivers {
		if d.epoch == 0 {
			return false
		}
	}
	return true
}

// frozenOwners lists who has something, by the resource of its object, and belongs to no driver that is enabled.
func (s *store) frozenOwners() map[string][]plan.Owner {
	out := map[string][]plan.Owner{}
	enabled := s.enabled()
	for id, keys := range s.cloud.byOwner {
		if enabled[id.Driver] || s.owners[id] != nil || s.allRetained(keys) {
			continue
		}
		if resource := s.resourceOf(keys); resource != "" {
			out[resource] = append(out[resource], id)
		}
	}
	return out
}

// resourceOf returns what resource the object of an owner is, as the identities of what it has say; empty: none does, or they differ.
func (s *store) resourceOf(keys map[resourceKey]bool) string {
	resource := ""
	for key := range keys {
		switch said := s.cloud.entries[key].Identity.Source; {
		case said == "" || said == resource:
		case resource != "":
			return ""
		default:
			resource = said
		}
	}
	return resource
}

// asOwned turns objects' UIDs into what the identities of their resources have in place of them: one that is long, or has odd characters, is
// shortened there. An object must never be taken for gone because its name was written otherwise.
func asOwned(uids map[string]bool) map[string]bool {
	owned := make(map[string]bool, len(uids))
	for uid := range uids {
		owned[plan.Identity{Owner: plan.Owner{UID: uid}}.Key().UID] = true
	}
	return owned
}

// missing counts how often in a row owners were missing. It returns those that were twice, and whether there are new ones.
func (e *Engine) missing(owners []plan.Owner, there map[string]bool) (gone []plan.Owner, fresh bool) {
	e.store.do(func() {
		for _, id := range owners {
			if there[id.UID] {
				delete(e.store.orphans, id)
				continue
			}
			if e.store.orphans[id]++; e.store.orphans[id] >= 2 {
				gone = append(gone, id)
			} else {
				fresh = true
			}
		}
	})
	slices.SortFunc(gone, func(a, b plan.Owner) int { return cmp.Compare(a.UID, b.UID) })
	return gone, fresh
}

// endFrozen makes an owner of what is left of an object that is gone, and ends it by the ordinary way.
func (e *Engine) endFrozen(id plan.Owner) {
	e.log.Info("ending what a driver that is not enabled made for an object that is gone", "driver", id.Driver, "uid", id.UID)
	key := watch.Key{Watch: id.Driver, Name: orphanPrefix + id.UID}
	e.store.do(func() {
		o := e.store.frozenOwner(id, key, e.clock.Now())
		e.store.owners[id] = o
		add(e.store.byItem, o.item, id)
	})
	e.leavings.add(key)
}

func (s *store) frozenOwner(id plan.Owner, key watch.Key, now time.Time) *owner {
	return &owner{
		id: id, item: item{frozenDriver, key}, gone: true, phase: Pending, since: now,
		target: target{watch: drivers.Watch{Kind: "vanished object"}, name: "with UID " + id.UID, uid: id.UID},
	}
}

// reconcileFrozen makes one pass over what is left of an object whose driver is not enabled.
func (e *Engine) reconcileFrozen(ctx context.Context, key watch.Key) (r result) {
	it := item{frozenDriver, key}
	if e.stopping(ctx) || e.StandingBy() {
		return result{}
	}
	defer func() {
		if v := recover(); v != nil {
			r = e.panicked(ctx, it, v)
		}
	}()
	var total result
	for _, o := range e.predecessors(it, "", watch.Absent) {
		total = sooner(total, e.end(ctx, o))
	}
	return total
}

// dryFrozen makes owners for what sweepFrozen would end.
func (e *Engine) dryFrozen(ctx context.Context) {
	if e.config.Presence == nil {
		return
	}
	var owners map[string][]plan.Owner
	e.store.do(func() { owners = e.store.frozenOwners() })
	for resource, ids := range owners {
		there, err := e.config.Presence.UIDs(ctx, resource)
		if err != nil {
			e.log.Warn("nobody knows which objects of drivers that are not enabled are gone: what they have stays", "error", err)
			continue
		}
		there = asOwned(there)
		e.store.do(func() {
			for _, id := range ids {
				if !there[id.UID] {
					e.store.owners[id] = e.store.frozenOwner(id, watch.Key{Watch: id.Driver, Name: orphanPrefix + id.UID}, e.clock.Now())
				}
			}
		})
	}
}

// Frozen says what drivers that are not enabled have left, by driver.
func (e *Engine) Frozen() []FrozenStatus {
	s := e.store
	s.mu.Lock()
	defer s.mu.Unlock()
	byDriver := map[string]*FrozenStatus{}
	enabled := s.enabled()
	for id, keys := range s.cloud.byOwner {
		if enabled[id.Driver] {
			continue
		}
		st := byDriver[id.Driver]
		if st == nil {
			st = &FrozenStatus{Driver: id.Driver}
			if id.Driver == plan.ShortDriver(drivers.ServiceProxy) {
				st.Driver = drivers.ServiceProxy
			}
			byDriver[id.Driver] = st
		}
		st.Objects++
		st.Resources += len(keys)
		resource := s.resourceOf(keys)
		switch {
		case resource == "":
			st.Untold += len(keys)
		case s.frozen.problems[resource] != "":
			st.Problem = s.frozen.problems[resource]
		}
	}
	list := make([]FrozenStatus, 0, len(byDriver))
	for _, name := range slices.Sorted(maps.Keys(byDriver)) {
		list = append(list, *byDriver[name])
	}
	return list
}

// String says it for people.
func (f FrozenStatus) String() string {
	text := fmt.Sprintf("driver %s is not enabled: its %d resources for %d objects stay as they are until the objects go", f.Driver, f.Resources, f.Objects)
	if f.Untold > 0 {
		text += fmt.Sprintf("; %d of them do not say what they are for, and stay until they are cleaned up", f.Untold)
	}
	if f.Problem != "" {
		text += "; which objects are gone is not known: " + f.Problem
	}
	return text + fmt.Sprintf("; `raven cleanup --driver %s` shows them", f.Driver)
}
