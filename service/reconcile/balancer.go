package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/octavia"
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
	// refusedParts are the parts of load balancers whose creation was refused for good.
	refusedParts map[refusalKey]partRefusal
	// tight is when the quota of load balancers was last seen to be used up.
	tight time.Time
	// lapsed are load balancers that were refused otherwise, since when something else was wished of them.
	lapsed map[doubtKey]string
	// unclear are creates whose outcome the service left open, as when it fails.
	unclear map[doubtKey]failure
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
		lapsed: map[doubtKey]string{}, unclear: map[doubtKey]failure{}, refusedParts: map[refusalKey]partRefusal{},
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
	// going is the id of a load balancer that was asked to go though it was in ERROR, and asks how often: that may have ended in ERROR, too.
	going string
	asks  int
	next  time.Time // when something may be done again
	until time.Time // forgotten then, if all is well
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
	condition, _ := octavia.ConditionOf(&lb)
	hints := octavia.HintsOf(d)
	defer func() { d.Hints = hints }()
	if s.stuck(lb, now) {
		hints.Mend = octavia.MendReplace
		return
	}
	if condition != octavia.Broken && condition != octavia.Partial {
		return
	}
	m := s.mendings[identityKey(d.Kind, d.Identity)]
	switch resting := m != nil && now.Before(m.next); {
	case resting && condition == octavia.Broken:
	case resting:
		hints.Mend, hints.Rests = octavia.MendReplace, m.parts
	case condition == octavia.Broken && (m == nil || m.tries == 0) && !s.trustOf(provider(lb)).noFailover:
		hints.Mend = octavia.MendFailover
	default:
		hints.Mend = octavia.MendReplace
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
	switch {
	case step.Op != plan.Delete || step.Part != nil:
	case m.going == step.ID:
		m.asks++
	default:
		m.going, m.asks = step.ID, 1
	}
	m.next = now.Add(min(mendPause<<min(m.tries-1, 10), mendPauseMax))
	m.until = now.Add(max(mendMemory, 2*m.next.Sub(now)))
}

func provider(lb plan.Observed) string {
	text, _ := lb.Attrs["provider"].(string)
	return text
}

const (
	statusActive   = "ACTIVE"
	statusUpdating = "PENDING_UPDATE"
)

// troubles says, for people, which load balancers of an owner are in ERROR, ignore something, or have been busy for too long. The
// store is locked.
func (s *store) troubles(id plan.Owner, p plan.Plan) []string {
	var texts []string
	for _, notice := range p.Notices {
		texts = append(texts, notice.Message)
	}
	for key, f := range s.unclear {
		if key.key.Driver == id.Driver && key.key.UID == id.UID && f.times > 1 {
			texts = append(texts, "the load balancing service fails again and again: "+f.text)
		}
	}
	for key := range s.cloud.byOwner[id] {
		if key.kind != drivers.KindLoadBalancer {
			continue
		}
		lb := s.cloud.entries[key].Observed
		condition, why := octavia.ConditionOf(&lb)
		switch b := s.busy[key.id]; {
		case condition == octavia.Broken || condition == octavia.Partial:
			text := fmt.Sprintf("load balancer %s is not as it should be: %s", lb.ID, why)
			switch m := s.mendings[identityKey(key.kind, lb.Identity)]; {
			case m == nil || m.tries == 0:
			case m.going == lb.ID:
				text += fmt.Sprintf("; it was asked to go %d times since then, next at %s", m.asks, m.next.Format(time.TimeOnly))
			default:
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

// resting says of an owner's load balancers that were asked to go, and are in ERROR again, why they are not asked now. The store is locked.
func (s *store) resting(id plan.Owner, now time.Time) map[string]string {
	texts := map[string]string{}
	for key := range s.cloud.byOwner[id] {
		if key.kind != drivers.KindLoadBalancer {
			continue
		}
		lb := s.cloud.entries[key].Observed
		m := s.mendings[identityKey(key.kind, lb.Identity)]
		condition, _ := octavia.ConditionOf(&lb) // one that somebody has brought back can go at once
		if m != nil && m.going == key.id && now.Before(m.next) && condition == octavia.Broken {
			texts[key.id] = fmt.Sprintf("load balancer %s is in ERROR though it was asked to go %d times: its provider fails to remove it, which an "+
				"administrator of the cloud can look into; next at %s", key.id, m.asks, m.next.Format(time.TimeOnly))
		}
	}
	return texts
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
		condition, _ := octavia.ConditionOf(&found.Observed)
		m := e.store.mendings[identityKey(key.kind, found.Identity)]
		if m == nil || condition != octavia.Broken && condition != octavia.Partial || !now.Before(m.next) {
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

// balanced says whether a Set has load balancers.
func balanced(set drivers.Set) bool {
	return slices.ContainsFunc(set.Resources, func(r drivers.Resource) bool { return r.Spec.Kind() == drivers.KindLoadBalancer })
}

// afterObservedBalancers has the load balancers looked at again soon, if they could not be now or some of them are busy. A cloud that
// has no service for them is asked for it at every drift check, and it is a fault only where somebody wants one.
func (e *Engine) afterObservedBalancers(ctx context.Context, err error) {
	if errors.Is(err, octavia.ErrNoBalancing) {
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
	awaited := slices.ContainsFunc(p.Steps, func(step plan.Step) bool {
		return step.Op == plan.Create && step.Kind == drivers.KindLoadBalancer && step.Part == nil
	})
	p.Steps = slices.DeleteFunc(p.Steps, func(step plan.Step) bool {
		if awaited && step.Op == plan.Delete && step.Kind == drivers.KindOVNLoadBalancer {
			return true // it serves until the other one can come
		}
		concerned = concerned || step.Kind == drivers.KindLoadBalancer
		return step.Kind == drivers.KindLoadBalancer
	})
	if !concerned {
		return ""
	}
	text := fmt.Sprintf("waiting for the load balancing service: %v", s.away)
	p.Pending = append(p.Pending, plan.Wait{Message: text})
	if errors.Is(s.away, octavia.ErrNoBalancing) { // which does not pass by itself
		p.Notices = append(p.Notices, plan.Notice{Reason: "LoadBalancer", Message: text})
	}
	return text
}
