package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
)

// trust is what was learned of a provider of load balancers. Nothing of it is kept over a restart.
type trust struct {
	// proven: a load balancer that was made at once with all its parts became ready with all of them.
	proven bool
	// bare: of what a load balancer was made with, the parts never became ready: they are made one by one.
	bare bool
	// noMonitors: it is not asked for health monitors together with the rest.
	noMonitors bool
	// monitored: likewise proven with health monitors.
	monitored bool
	// early: a load balancer is ready before its parts are.
	early bool
	// noFailover: it cannot, or these credentials must not.
	noFailover bool
}

// balancerState is what the store knows of load balancers beside what the cloud shows.
type balancerState struct {
	providers map[string]*trust
	mendings  map[doubtKey]*mending
	busy      map[string]*busyState // by id
	// piecemeal are those whose parts were refused when they were asked for together, and until when that is remembered.
	piecemeal map[doubtKey]time.Time
	// tight is when the quota of load balancers was last seen to be used up.
	tight time.Time
	// away is why the load balancing service could not be read; nothing is done to a load balancer meanwhile.
	away       error
	missed     bool // and it was told that somebody wants one
	activation time.Duration
	stillAfter time.Duration
	clock      clock.PassiveClock
}

func newBalancerState() balancerState {
	return balancerState{
		providers: map[string]*trust{}, mendings: map[doubtKey]*mending{}, busy: map[string]*busyState{}, piecemeal: map[doubtKey]time.Time{}, clock: clock.RealClock{},
		activation: 5 * time.Minute, stillAfter: stillAfter,
	}
}

// trustOf returns what is known of a provider; "" is the cloud's default. The store is locked.
func (s *store) trustOf(provider string) *trust {
	t := s.providers[provider]
	if t == nil {
		// OVN's never makes the health monitors of a full create, and the default one may be OVN's.
		t = &trust{noMonitors: provider == "" || provider == "ovn"}
		s.providers[provider] = t
	}
	return t
}

// mending is what was done about a load balancer in ERROR, by identity, so that it outlives a replacement. What is mended of it until it
// rests no longer is one round.
type mending struct {
	tries int         // rounds
	parts []plan.Part // of which something was mended in this round
	next  time.Time   // when something may be done again
	until time.Time   // forgotten then, if all is well
}

// busyState is how long a load balancer has been busy.
type busyState struct {
	since   time.Time // it takes no changes
	moved   time.Time // its status, or that of a part, was another one before
	full    bool      // made by this process with all its parts, of which nobody knows yet whether they become ready
	early   bool      // it was ready before its parts
	check   bool      // its parts have to be inspected before it counts as ready
	overdue bool      // told to be stuck
	still   bool      // looked at by itself after it had stood still: no part of it had become ready
	by      string    // its provider
}

const (
	// mendPause is how long a load balancer rests after it was failed over or made anew; it doubles up to mendPauseMax.
	mendPause    = time.Minute
	mendPauseMax = 30 * time.Minute
	// mendMemory is how long a load balancer must be well for its failures to be forgotten.
	mendMemory = 10 * time.Minute
	// stillAfter is how long a ready load balancer's parts may stand still, all of them pending, before they are given up.
	stillAfter = 20 * time.Second
	// piecemealFor is how long it is remembered that the parts of a load balancer were refused together.
	piecemealFor = time.Hour
)

// mend says what may be done about a load balancer now, and notes when to look again. The store is locked.
func (s *store) mend(d *plan.Desired, now time.Time) {
	lb, ok := s.cloud.find(d.Identity, d.Kind)
	if !ok {
		return
	}
	condition, _ := plan.ConditionOf(&lb)
	if s.stuck(lb, now) {
		d.Mend = plan.MendReplace
		return
	}
	if condition != plan.Broken && condition != plan.Partial {
		return
	}
	m := s.mendings[identityKey(d.Kind, d.Identity)]
	switch resting := m != nil && now.Before(m.next); {
	case resting && condition == plan.Broken:
	case resting:
		d.Mend, d.Rests = plan.MendReplace, m.parts
	case condition == plan.Broken && (m == nil || m.tries == 0) && !s.trustOf(provider(lb)).noFailover:
		d.Mend = plan.MendFailover
	default:
		d.Mend = plan.MendReplace
	}
}

// mended notes what was done about a load balancer in ERROR.
func (s *store) mended(step plan.Step, now time.Time) {
	if !step.Mends {
		return
	}
	var part plan.Part // nothing: all of it
	if step.Part != nil {
		part = plan.Part{Kind: step.Part.Kind, Name: step.Part.Name}
	}
	key := identityKey(step.Kind, step.Identity)
	m := s.mendings[key]
	if m == nil {
		m = &mending{}
		s.mendings[key] = m
	}
	if step.Part != nil && now.Before(m.next) {
		m.parts = append(m.parts, part)
		return
	}
	m.parts = []plan.Part{part}
	m.tries++
	m.next = now.Add(min(mendPause<<min(m.tries-1, 10), mendPauseMax))
	m.until = now.Add(max(mendMemory, 2*m.next.Sub(now)))
}

func provider(lb plan.Observed) string {
	text, _ := lb.Attrs["provider"].(string)
	return text
}

// standsStill says whether a load balancer may be one that was made at once and whose parts stay pending for good. Some releases of
// Octavia make a load balancer ready and never its parts. One that is merely slow is none: a part of it is ready, or something has
// moved, its own parts or what its provider has to do first. Nor is one whose parts Raven makes one by one: of those one is pending.
func (s *store) standsStill(lb plan.Observed, now time.Time) bool {
	busy := s.busy[lb.ID]
	if busy == nil || lb.Status != statusActive || now.Sub(busy.moved) < s.stillAfter {
		return false
	}
	pending, _, others := pendingParts(lb)
	return pending > 1 && others == 0 && readyMembers(lb) == 0
}

// stuck says whether a load balancer is given up, since looking at that very one has confirmed that it stands still. Its provider is
// then not trusted with parts any more.
func (s *store) stuck(lb plan.Observed, now time.Time) bool {
	if busy := s.busy[lb.ID]; busy == nil || !busy.still || !s.standsStill(lb, now) {
		return false
	}
	s.trustOf(provider(lb)).bare = true
	return true
}

const (
	statusActive   = "ACTIVE"
	statusUpdating = "PENDING_UPDATE"
)

// troubles says, for people, which load balancers of an owner are in ERROR, ignore something, or have been busy for too long. The
// store is locked.
func (s *store) troubles(id plan.Owner, p plan.Plan) []string {
	texts := slices.Clone(p.Notices)
	for key := range s.cloud.byOwner[id] {
		if key.kind != drivers.KindLoadBalancer {
			continue
		}
		lb := s.cloud.entries[key].Observed
		condition, why := plan.ConditionOf(&lb)
		switch b := s.busy[key.id]; {
		case condition == plan.Broken || condition == plan.Partial:
			text := fmt.Sprintf("load balancer %s is not as it should be: %s", lb.ID, why)
			if m := s.mendings[identityKey(key.kind, lb.Identity)]; m != nil && m.tries > 0 {
				text += fmt.Sprintf("; it was failed over, or made anew as a whole or in part, %d times, next at %s", m.tries, m.next.Format(time.TimeOnly))
			}
			texts = append(texts, text)
		case b != nil && b.overdue:
			texts = append(texts, fmt.Sprintf("load balancer %s has not become ready since %s: %s; it is looked at every now and then, and "+
				"nothing else can be done but by an administrator of the cloud", lb.ID, b.since.Format(time.TimeOnly), why))
		}
	}
	return sorted(texts)
}

// mendAgain is how long it is until something may be done about a load balancer of an owner that is in ERROR; 0: nothing is.
func (e *Engine) mendAgain(o *owner) time.Duration {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	now := e.clock.Now()
	var wait time.Duration
	for key := range e.store.cloud.byOwner[o.id] {
		found := e.store.cloud.entries[key]
		if key.kind != drivers.KindLoadBalancer {
			continue
		}
		condition, _ := plan.ConditionOf(&found.Observed)
		m := e.store.mendings[identityKey(key.kind, found.Identity)]
		if m == nil || condition != plan.Broken && condition != plan.Partial || !now.Before(m.next) {
			continue
		}
		if left := m.next.Sub(now); wait == 0 || left < wait {
			wait = left
		}
	}
	return wait
}

// takeBalancer takes a load balancer over as it is now, and wakes who waits for it and whose it is.
func (e *Engine) takeBalancer(lb plan.Observed) {
	var woken []item
	e.store.do(func() { woken = e.store.takeBalancer(lb, e.clock.Now()) })
	e.wakeAll(woken)
	e.requestPoll()
}

// takeSeen takes over what was seen of load balancers since the tick at which they were known as they were looked at. What was
// written since then counts, not what was seen beside it.
func (e *Engine) takeSeen(list []plan.Observed, begun uint64) {
	var woken []item
	e.store.do(func() {
		for _, lb := range e.store.still(list, begun) {
			woken = append(woken, e.store.takeBalancer(lb, e.clock.Now())...)
		}
	})
	e.wakeAll(woken)
	e.requestPoll()
}

// rereads is how often a load balancer is read again that was written to while it was read, which takes several requests.
const rereads = 3

// rereadBalancer takes over a load balancer as it is now, and says whether it is gone.
func (e *Engine) rereadBalancer(ctx context.Context, id string) (gone bool, err error) {
	for try := 1; ; try++ {
		var begun uint64
		e.store.do(func() { begun = e.store.cloud.tick })
		lb, err := e.cloud.Get(ctx, drivers.KindLoadBalancer, id)
		switch {
		case openstack.Classify(err) == openstack.ClassNotFound:
			e.depart(drivers.KindLoadBalancer, id)
			return true, nil
		case err != nil:
			return false, err
		}
		var woken []item
		taken := false
		e.store.do(func() {
			found := e.store.cloud.entries[resourceKey{lb.Kind, lb.ID}]
			if taken = try == rereads || found == nil || found.written <= begun; taken {
				woken = e.store.takeBalancer(lb, e.clock.Now())
			}
		})
		if taken {
			e.wakeAll(woken)
			e.requestPoll()
			return false, nil
		}
	}
}

func (s *store) takeBalancer(lb plan.Observed, now time.Time) []item {
	var before plan.Observed
	if old := s.cloud.entries[resourceKey{lb.Kind, lb.ID}]; old != nil {
		before = old.Observed
	}
	s.swapped(lb)
	woken := s.arrived(lb)
	return append(woken, s.noteBalancer(before, lb, now)...)
}

// noteBalancer keeps the account of what is busy, and returns who must look again.
func (s *store) noteBalancer(before, lb plan.Observed, now time.Time) []item {
	condition, _ := plan.ConditionOf(&lb)
	b := s.busy[lb.ID]
	if condition != plan.Busy && condition != plan.Leaving {
		if b != nil && condition == plan.Ready {
			s.learn(b, lb)
		}
		delete(s.busy, lb.ID)
		if b != nil {
			s.queueMoved(b, doneParts(lb) > doneParts(before), now)
		}
		if b == nil && before.Status == lb.Status {
			return nil
		}
	} else {
		news := b == nil
		if b == nil {
			b = &busyState{since: now, moved: now}
			s.busy[lb.ID] = b
		}
		b.by = provider(lb)
		b.early = b.early || condition == plan.Busy && lb.Status == statusActive
		if progress(before) != progress(lb) {
			news = true
			b.moved, b.still = now, false
			s.queueMoved(b, doneParts(lb) > doneParts(before), now)
		}
		// A look that shows nothing new is no reason for another pass: that would ask again for what was refused meanwhile, at the pace
		// of looks. remind wakes those whose load balancers are late or stand still.
		if !news || before.Status == lb.Status && b.overdue {
			return nil
		}
	}
	return append(s.wake(waitBusy(lb.ID)), s.ownerItem(lb.Identity.Owner)...)
}

// queueMoved notes that a provider is at work: load balancers of which it was asked after this one may have had to wait for it. Where it
// has made a part, so may those of which it was asked before: it may have several queues, as many as there are processes of it, and in
// which of them something is, and where, nobody can see. But those not for ever.
func (s *store) queueMoved(first *busyState, made bool, now time.Time) {
	for _, b := range s.busy {
		if b.by == first.by && (!b.since.Before(first.since) || made && now.Sub(b.since) < s.activation) {
			b.moved, b.still = now, false
		}
	}
}

// doneParts counts the parts that have been made, as far as they are known.
func doneParts(lb plan.Observed) int {
	_, _, others := pendingParts(lb)
	return others + readyMembers(lb)
}

// learn takes down what a load balancer that has become ready says of its provider.
func (s *store) learn(b *busyState, lb plan.Observed) {
	t := s.trustOf(provider(lb))
	t.early = t.early || b.early
	if !b.full {
		return
	}
	t.proven = true
	for _, element := range listOf(lb.Attrs["pools"]) {
		pool, _ := element.(map[string]any)
		t.monitored = t.monitored || pool["healthmonitor"] != nil
	}
}

// doubted says whether a load balancer that is ready may have parts that are not.
func (s *store) doubted(lb plan.Observed) bool {
	pending, monitors, _ := pendingParts(lb)
	t := s.trustOf(provider(lb))
	return pending > 0 && (!t.proven || t.early || monitors > 0 && !t.monitored) || s.busy[lb.ID].check
}

// progress is a text that changes when a status does.
func progress(lb plan.Observed) string {
	var b strings.Builder
	b.WriteString(lb.Status)
	for _, list := range []string{"listeners", "pools"} {
		for _, element := range listOf(lb.Attrs[list]) {
			part, _ := element.(map[string]any)
			monitor, _ := part["healthmonitor"].(map[string]any)
			fmt.Fprint(&b, part["id"], part["provisioning_status"], monitor["provisioning_status"])
		}
	}
	fmt.Fprint(&b, readyMembers(lb)) // of those that are not known none counts: they are not always looked at
	return b.String()
}

// waitBusy is a load balancer that takes no changes.
func waitBusy(id string) waitKey { return waitKey{what: "busy", name: id} }

// recount keeps the account of busy load balancers after all were listed, and returns who must look again. err says that they
// could not be.
func (s *store) recount(now time.Time, err error) []item {
	var woken []item
	back := s.away != nil && err == nil
	s.missed = s.missed && err != nil
	s.away = err
	known := map[string]bool{}
	for _, lb := range s.cloud.ofKind(drivers.KindLoadBalancer) {
		known[lb.ID] = true
		woken = append(woken, s.noteBalancer(lb, lb, now)...)
	}
	maps.DeleteFunc(s.busy, func(id string, _ *busyState) bool { return !known[id] })
	maps.DeleteFunc(s.piecemeal, func(_ doubtKey, until time.Time) bool { return now.After(until) })
	woken = append(woken, s.forgetSwaps()...)
	maps.DeleteFunc(s.mendings, func(_ doubtKey, m *mending) bool { return now.After(m.until) })
	if back {
		for _, o := range s.owners {
			if o.balanced {
				woken = append(woken, o.item)
			}
		}
	}
	return woken
}

// balanced says whether a Set has load balancers.
func balanced(set drivers.Set) bool {
	return slices.ContainsFunc(set.Resources, func(r drivers.Resource) bool { return r.Spec.Kind() == drivers.KindLoadBalancer })
}

// afterObservedBalancers has the load balancers looked at again soon, if they could not be now or some of them are busy. A cloud that
// has no service for them is asked for it at every drift check, and it is a fault only where somebody wants one.
func (e *Engine) afterObservedBalancers(ctx context.Context, err error) {
	if errors.Is(err, openstack.ErrNoBalancing) {
		missed := false
		e.store.do(func() {
			s := e.store
			missed = !s.missed && slices.ContainsFunc(slices.Collect(maps.Values(s.owners)), func(o *owner) bool { return o.balanced })
			s.missed = s.missed || missed
		})
		if missed {
			e.log.WarnContext(ctx, "load balancers are wanted, and nothing is concluded about those that may be there", "error", err)
		}
		return
	}
	if err != nil {
		if ctx.Err() == nil {
			e.log.WarnContext(ctx, "the load balancing service could not be read; nothing is concluded from it", "error", err)
		}
		e.driftAfter(e.config.SlowRetry)
	}
	e.requestPoll()
}

// withhold takes out of a plan what concerns load balancers while nobody knows what there is of them, and says so. The store is locked.
func (s *store) withhold(o *owner, p *plan.Plan) string {
	if s.away == nil {
		return ""
	}
	concerned := o.balanced
	p.Steps = slices.DeleteFunc(p.Steps, func(step plan.Step) bool {
		concerned = concerned || step.Kind == drivers.KindLoadBalancer
		return step.Kind == drivers.KindLoadBalancer
	})
	if !concerned {
		return ""
	}
	text := fmt.Sprintf("waiting for the load balancing service: %v", s.away)
	p.Pending = append(p.Pending, plan.Wait{Message: text})
	if errors.Is(s.away, openstack.ErrNoBalancing) { // which does not pass by itself
		p.Notices = append(p.Notices, text)
	}
	return text
}
