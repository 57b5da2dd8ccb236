package reconcile

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
)

// swap is a load balancer that goes for another one: what it was made of, should the other be refused.
type swap struct {
	old   map[string]any
	parts map[string]any // its listeners and pools
	id    plan.Identity
	lb    string // its id in the cloud
	since time.Time
}

// placeFor is how long the place in the quota of a load balancer that has gone is kept for the one that takes its place.
const placeFor = 5 * time.Minute

// tightFor is how long after a refusal the quota counts as used up: those who wait try more often than that.
const tightFor = 5 * time.Minute

// placeError says that a load balancer is not asked for while the only place there may be belongs to another one.
type placeError struct{ of string }

func (p placeError) Error() string {
	return fmt.Sprintf("there is no room in the quota, and the next place is that of load balancer %s, which is just being made anew", p.of)
}

// backError is why a load balancer that has gone could not be made again as it was, for now.
type backError struct{ refused, err error }

func (b backError) Error() string {
	return fmt.Sprintf("%v (making it again as it was, since %v)", b.err, b.refused)
}
func (b backError) Unwrap() error { return b.err }

// refusedAs says whether an error is the last word on what a load balancer was to be made of.
func refusedAs(err error) bool {
	switch openstack.Classify(err) { //nolint:exhaustive // the others may pass
	case openstack.ClassTerminal, openstack.ClassUnsupported, openstack.ClassNotFound, openstack.ClassExists:
		return true
	}
	return false
}

// These are the tags of a load balancer that is made otherwise than was wished, since that was refused: as it was, or without its further
// addresses. They name the wish, so that a restart gives nothing up for the same refusal.
const (
	refusedMark     = "raven:refused="
	refusedVIPsMark = "raven:refused-vips="
)

func refusedTag(mark, wish string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(wish)) // it never fails
	return fmt.Sprintf("%s%016x", mark, h.Sum64())
}

// remember returns the veto that a load balancer of an earlier process shows, unless something else was wished since. The store is locked.
func (s *store) remember(lb plan.Observed, wish string) (veto, bool) {
	key := identityKey(lb.Kind, lb.Identity)
	if wish == "" || s.lapsed[key] == lb.ID {
		return veto{}, false
	}
	_, shown := lb.Attrs["additional_vips"]
	at := slices.IndexFunc(lb.Tags, func(tag string) bool {
		return tag == refusedTag(refusedMark, wish) || shown && tag == refusedTag(refusedVIPsMark, wish)
	})
	if at < 0 {
		return veto{}, false
	}
	v := veto{wish: wish, old: makings(lb), err: fmt.Errorf("load balancer %s stays as it is: the cloud has refused before what is wished "+
		"instead; to have it asked for again take the tag %s from the load balancer, or wish something else first", lb.ID, lb.Tags[at])}
	s.vetoes[key] = v
	return v, true
}

// replaceBalancer makes a load balancer, and if that is refused in place of one that has gone, the one that has gone. As long as a veto
// stands it is made as it was at once.
func (e *Engine) replaceBalancer(ctx context.Context, step *plan.Step) (plan.Observed, error) {
	key := identityKey(step.Kind, step.Identity)
	var (
		gone            swap
		v               veto
		instead, vetoed bool
		holds           string
	)
	e.store.do(func() {
		gone, instead = e.store.swaps[key]
		v, vetoed = e.store.vetoes[key]
		if !instead {
			holds = e.store.reserved(e.clock.Now())
		}
	})
	if holds != "" {
		return plan.Observed{}, placeError{holds}
	}
	if !vetoed {
		wanted := step.Attrs
		made, err := e.createWithVIPs(ctx, step)
		if err == nil {
			e.store.do(func() { delete(e.store.swaps, key) })
		}
		if err == nil || !instead || e.pending(ctx, *step, err) || alike(wanted, gone.old) {
			return made, err
		}
		step.Attrs = wanted
		v = veto{old: gone.old, parts: gone.parts, err: fmt.Errorf("load balancer %s is made anew as it was, since another one was refused: %w", nameOf(*step), err)}
		e.store.do(func() { // before anything is asked for: an answer may be lost
			delete(e.store.lapsed, key)
			delete(e.store.piecemeal, key)
			_, v.wish = e.store.wishFor(step.Identity)
			e.store.vetoes[key] = v
		})
	}
	return e.makeAgain(ctx, step, v)
}

// makeAgain makes a load balancer that has gone as it was. If that is refused as well, what is wished has its turn again.
func (e *Engine) makeAgain(ctx context.Context, step *plan.Step, v veto) (plan.Observed, error) {
	key := identityKey(step.Kind, step.Identity)
	step.Attrs = asItWas(step.Attrs, v.old)
	if pools := listOf(step.Attrs["pools"]); len(pools) > 0 {
		step.Attrs["pools"] = balancedAsBefore(pools, listOf(v.parts["pools"]))
	}
	if v.until.IsZero() && v.wish != "" {
		step.Attrs["tags"] = []string{refusedTag(refusedMark, v.wish)}
	}
	made, err := e.createBalancer(ctx, step)
	switch {
	case err == nil:
		e.store.do(func() { delete(e.store.swaps, key) })
		return made, nil
	case e.pending(ctx, *step, err):
		return made, backError{v.err, err}
	}
	e.store.do(func() { delete(e.store.vetoes, key) })
	return made, backError{v.err, err}
}

// pending says whether a refused create is not refused for good: it is still to be asked for otherwise, or is there after all.
func (e *Engine) pending(ctx context.Context, step plan.Step, err error) bool {
	left := leftError{}
	switch class := openstack.Classify(err); {
	case !refusedAs(err):
		return true
	case errors.As(err, &left):
		return left.otherwise || class == openstack.ClassExists
	case class == openstack.ClassExists:
		adopted, lerr := e.adoptExisting(ctx, step)
		return adopted || lerr != nil
	}
	return false
}

// writtenDown says whether what a refused create refers to, and is not there, is something that somebody has written down. What is ours, and
// is there, is only not there for Octavia yet.
func (e *Engine) writtenDown(f stepError) bool {
	if f.step.Kind != drivers.KindLoadBalancer || f.step.Part != nil {
		return false
	}
	text := f.err.Error()
	named := slices.DeleteFunc(references(plan.Observed{Kind: f.step.Kind, Attrs: f.step.Attrs}), func(id string) bool { return !strings.Contains(text, id) })
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	for key := range e.store.cloud.entries {
		if slices.Contains(named, key.id) {
			return false
		}
	}
	return true
}

func nameOf(step plan.Step) string {
	if name := textOf(step.Attrs["name"]); name != "" {
		return fmt.Sprintf("%q", name)
	}
	return fmt.Sprintf("%q", step.Identity.Name)
}

// asItWas is a wish with what cannot be changed in place as it was.
func asItWas(wanted, old map[string]any) map[string]any {
	attrs := maps.Clone(wanted)
	for _, name := range fixed() {
		delete(attrs, name)
		if value := old[name]; value != nil {
			attrs[name] = value
		}
	}
	return attrs
}

// alike says whether a load balancer would be made of the same as the one that has gone.
func alike(wanted, old map[string]any) bool {
	for _, name := range []string{"provider", "flavor_id", "availability_zone", "vip_subnet_id"} {
		if want := textOf(wanted[name]); want != "" && want != textOf(old[name]) {
			return false
		}
	}
	if textOf(wanted["vip_port_id"]) != "" || textOf(wanted["vip_network_id"]) != "" && textOf(wanted["vip_subnet_id"]) == "" {
		return false // whether that is the same is not known
	}
	given := slices.DeleteFunc(locations(wanted), func(l location) bool { return l.address == "" })
	_, further := wanted["additional_vips"]
	return !slices.ContainsFunc(given, func(l location) bool { return !has(old, l) }) &&
		(!further || len(listOf(wanted["additional_vips"])) == len(listOf(old["additional_vips"])))
}

// failure is a create that the service failed at, and how often in a row.
type failure struct {
	times int
	text  string
}

// failed notes that it is left open what became of a create. The store is locked.
func (s *store) failed(fail stepError) {
	key := identityKey(fail.step.Kind, fail.step.Identity)
	s.unclear[key] = failure{s.unclear[key].times + 1, fail.Error()}
}

// swapped forgets what a load balancer was that has gone, once another one is there in its place. The store is locked.
func (s *store) swapped(lb plan.Observed) {
	key := identityKey(lb.Kind, lb.Identity)
	delete(s.unclear, key)
	if gone, ok := s.swaps[key]; ok && gone.lb != lb.ID {
		delete(s.swaps, key)
	}
}

// reserved names a load balancer that goes, or has gone, and is to be made anew, where there was no more room in the quota: its place is not theirs.
// The store is locked.
func (s *store) reserved(now time.Time) string {
	if s.tight.IsZero() || now.Sub(s.tight) > tightFor {
		return ""
	}
	for _, gone := range s.swaps {
		if now.Sub(gone.since) < placeFor {
			return s.describe(gone.id)
		}
	}
	return ""
}

// succeeded says whether the place in the quota of a load balancer that has gone is that of another one. The store is locked.
func (s *store) succeeded(o plan.Observed) bool {
	_, ok := s.swaps[identityKey(o.Kind, o.Identity)]
	return ok && o.Kind == drivers.KindLoadBalancer
}

// successors returns those of who waits for room in the quota whose place it is. The store is locked.
func (s *store) successors(key waitKey) []item {
	if key != waitQuota(drivers.KindLoadBalancer) {
		return nil
	}
	var items []item
	for _, gone := range s.swaps {
		if o := s.owners[gone.id.Owner]; o != nil && s.waiters[key][o] {
			items = append(items, o.item)
		}
	}
	return items
}

// forgetSwaps drops what was noted of load balancers that nobody wants any more, and returns who may have their places. The store is
// locked.
func (s *store) forgetSwaps() []item {
	wanted := map[doubtKey]bool{}
	for id, o := range s.owners {
		for _, r := range o.set.Resources {
			if r.Spec.Kind() == drivers.KindLoadBalancer {
				wanted[identityKey(drivers.KindLoadBalancer, s.identity(id, r))] = true
			}
		}
	}
	maps.DeleteFunc(s.unclear, func(key doubtKey, _ failure) bool { return !wanted[key] })
	maps.DeleteFunc(s.lapsed, func(key doubtKey, _ string) bool { return !wanted[key] })
	before := len(s.swaps)
	maps.DeleteFunc(s.vetoes, func(key doubtKey, _ veto) bool { return !wanted[key] })
	maps.DeleteFunc(s.swaps, func(key doubtKey, _ swap) bool { return !wanted[key] })
	if len(s.swaps) == before {
		return nil
	}
	return s.wakeSome(waitQuota(drivers.KindLoadBalancer))
}

// createWithVIPs makes a load balancer without the further addresses where those are what it is refused for: the first is then served, and
// people are told of the others. What the refusal was about, the provider or these very addresses, nobody knows: it counts for this wish.
func (e *Engine) createWithVIPs(ctx context.Context, step *plan.Step) (plan.Observed, error) {
	wanted := step.Attrs
	made, err := e.createBalancer(ctx, step)
	class := openstack.Classify(err)
	refused := class == openstack.ClassTerminal || class == openstack.ClassUnsupported
	if !refused || len(listOf(wanted["additional_vips"])) == 0 || !strings.Contains(err.Error(), "additional_vips") {
		return made, err
	}
	refusal := err
	step.Attrs = maps.Clone(wanted)
	delete(step.Attrs, "additional_vips")
	v := veto{}
	if e.store.do(func() { _, v.wish = e.store.wishFor(step.Identity) }); v.wish != "" {
		step.Attrs["tags"] = []string{refusedTag(refusedVIPsMark, v.wish)}
	}
	made, err = e.createBalancer(ctx, step)
	if _, shown := made.Attrs["additional_vips"]; err != nil || !shown { // a service that shows none knows of none: the plan says so
		return made, err
	}
	v.old = makings(made)
	v.err = fmt.Errorf("load balancer %s is made without its additional addresses, with which it was refused: %w", made.ID, refusal)
	e.store.do(func() { e.store.vetoes[identityKey(step.Kind, step.Identity)] = v })
	return made, nil
}
