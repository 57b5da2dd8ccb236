package reconcile

import (
	"fmt"
	"math"
	"slices"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// finishEpoch ends a driver's replay once every key has been answered. Until then its word ended nothing; now what it would
// end is counted, and held if it is more than the guard allows. Owners of which that is not known yet are counted when it is:
// see compareLate.
func (e *Engine) finishEpoch(name string) {
	var (
		woken       []item
		over, trips bool
		d           *driverState
		held, limit int
	)
	e.store.do(func() {
		d = e.store.drivers[name]
		if d == nil || !d.answered() || d.prune {
			return
		}
		over = true
		woken, trips = e.store.judge(d, e.config)
		held, limit, over = d.held, d.allowed, d.prune
	})
	switch {
	case trips:
		e.reportGuard(name, held, limit)
		e.wakeAll(woken)
	case over:
		e.log.Info("every object is answered", "driver", name, "deletions", held)
		e.wakeAll(woken)
		e.requestSweep()
	}
}

func (e *Engine) reportGuard(name string, held, limit int) {
	e.log.Error("replay held back: it would delete more than the guard allows; `raven plan` shows what, and a higher "+
		"[raven] max_replay_deletes or max_replay_delete_share lets it pass",
		"driver", name, "deletions", held, "allowed", limit)
}

// judge counts what a replay would end and lets it pass or holds it. It says whether it held for the first time.
func (s *store) judge(d *driverState, c Config) (woken []item, trips bool) {
	held, existing, owners := s.wouldDelete(d)
	d.held, d.allowed = held, allowed(c, existing)
	before := d.guarded
	d.prune = held+d.passed <= d.allowed
	d.guarded = !d.prune
	for _, o := range owners {
		o.guarded = d.guarded
		woken = append(woken, o.item)
	}
	if d.prune {
		d.passed += held
		woken = append(woken, item{driver: sharedDriver})
		woken = append(woken, s.released()...)
	}
	return woken, d.guarded && !before
}

// compareLate counts what an owner's answer would end that was not known when the replay was over. It says whether the owner
// may end it, and whether the guard holds for the first time.
func (s *store) compareLate(o *owner, p plan.Plan, c Config) (may, trips bool) {
	d := s.drivers[o.item.driver]
	if o.id.Driver == sharedDriver || d == nil || !d.over() || o.compared == d.epoch || s.silent(o) || undecided(p) {
		return false, false
	}
	o.compared = d.epoch
	held := ends(p)
	if held > 0 {
		shared, _ := s.sharedWouldDelete()
		held += shared
	}
	switch {
	case held == 0:
	case d.prune && d.passed+held <= max(d.allowed, allowed(c, 0)):
		d.passed += held
	default:
		o.guarded = true
		trips = !d.guarded
		d.guarded, d.prune = true, false
		d.held += held
	}
	return !o.guarded, trips
}

// ends counts what a plan would end. That a Service changes from one kind of load balancers to the other ends nothing: it is handed over, and what
// it has goes only when the other one can come.
func ends(p plan.Plan) int { return p.Held - p.Replaced }

// undecided says whether a plan may come to replace or end a resource, once what it refers to is there.
func undecided(p plan.Plan) bool {
	if p.Kept > 0 {
		return true
	}
	for _, step := range p.Steps {
		if step.Op != plan.Update || step.Ready() {
			continue
		}
		for _, a := range drivers.Schema(step.Kind) {
			if _, waits := step.Attrs[a.Name]; waits && a.Immutable {
				return true
			}
		}
	}
	return false
}

// reviewGuards counts again what is held: objects may have gone, or been answered otherwise. It says whether any still is.
func (e *Engine) reviewGuards() bool {
	for _, g := range e.Guards() {
		e.finishEpoch(g.Driver)
	}
	return len(e.Guards()) > 0
}

// fewDeletes may always pass, within the count: in a small cluster a few pods that completed are a large share.
const fewDeletes = 10

// allowed is how many deletions a replay may make: the count, or the share of what exists, whichever is less.
func allowed(c Config, existing int) int {
	share := min(c.MaxReplayDeletes, int(math.Ceil(c.MaxReplayDeleteShare*float64(existing))))
	return max(share, min(c.MaxReplayDeletes, fewDeletes))
}

// wouldDelete counts what a driver's answers would end of objects that still exist, out of how many resources, and returns the
// owners concerned. Once the guard holds, only what it held at first counts.
func (s *store) wouldDelete(d *driverState) (held, existing int, owners []*owner) {
	short := plan.ShortDriver(d.owns)
	for id, keys := range s.cloud.byOwner {
		if id.Driver == short {
			existing += len(keys)
		}
	}
	for _, o := range s.owners {
		if o.item.driver != d.name || o.gone || s.silent(o) || (d.guarded && !o.guarded) {
			continue
		}
		if len(s.cloud.byOwner[o.id]) == 0 {
			o.compared = d.epoch
			continue
		}
		w := s.desire(o.id, o.set)
		p := kinds.Compute(plan.Input{
			Desired: w.desired, Observed: s.decided(o.id, o.set), Resolve: s.resolve(w), Dependants: s.cloud.dependants,
			Unsure: s.unsure(w),
		})
		if undecided(p) {
			continue
		}
		o.compared = d.epoch
		if n := ends(p); n > 0 {
			held += n
			owners = append(owners, o)
		}
	}
	sharedHeld, sharedExisting := s.sharedWouldDelete()
	return held + sharedHeld, existing + sharedExisting, owners
}

// sharedWouldDelete counts what the claims, as they are now, would end of what is shared, while every object has answered.
func (s *store) sharedWouldDelete() (held, existing int) {
	for _, d := range s.drivers {
		if !d.answered() {
			return 0, 0
		}
	}
	if s.disabled() != "" {
		return 0, 0 // nothing that is shared may end
	}
	id := plan.Owner{Driver: sharedDriver}
	sh := s.shares()
	observed := slices.DeleteFunc(s.decided(id, sh.set), func(r plan.Observed) bool { return isFrozen(r, sh.frozen) })
	w := s.desire(id, sh.set)
	p := kinds.Compute(plan.Input{
		Desired: w.desired, Observed: observed, Resolve: s.resolve(w), Dependants: s.cloud.dependants, Unsure: s.unsure(w),
	})
	return p.Held, len(observed)
}

// Guard is what the replay guard holds of one driver.
type Guard struct {
	Driver  string `json:"driver"`
	Held    int    `json:"held"`
	Allowed int    `json:"allowed"`
}

// String says what is held and how to let it pass.
func (g Guard) String() string {
	return fmt.Sprintf("driver %s would delete %d resources of objects that still exist, %d are allowed: "+
		"see `raven plan`; raise [raven] max_replay_deletes and max_replay_delete_share to let it", g.Driver, g.Held, g.Allowed)
}

// Guards lists the drivers whose replay is held.
func (e *Engine) Guards() []Guard {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	var list []Guard
	for _, d := range e.store.drivers {
		if d.guarded {
			list = append(list, Guard{d.name, d.held, d.allowed})
		}
	}
	return list
}

// Replayed says whether every source object of every driver has been answered since its driver started.
func (e *Engine) Replayed() bool {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	for _, d := range e.store.drivers {
		if !e.store.heard(d) {
			return false
		}
	}
	return true
}

// retained says whether a resource outlives its owner.
func retained(o plan.Observed) bool { return o.Identity.Policy == drivers.Retain }
