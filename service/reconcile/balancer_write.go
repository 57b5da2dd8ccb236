package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/octavia"
	"github.com/kuryr/raven/service/plan"
)

// Balancer changes load balancers, which take changes one at a time and carry them out some time after.
type Balancer interface {
	// ChangePart applies a step on a part, and returns what that changes of the load balancer.
	ChangePart(ctx context.Context, lb plan.Observed, step plan.Step) (octavia.Change, error)
	// FailOver has the provider make what is behind a load balancer anew.
	FailOver(ctx context.Context, id string) error
	// PollLoadBalancers lists them with their statuses and addresses, without parts. Which of those that are known it leaves out is gone.
	PollLoadBalancers(ctx context.Context, cluster string, known []string) ([]plan.Observed, error)
	// LoadBalancerProviders lists the names of the providers that can be chosen.
	LoadBalancerProviders(ctx context.Context) ([]string, error)
	// InspectLoadBalancers returns them with the statuses of their parts.
	InspectLoadBalancers(ctx context.Context, list []plan.Observed) ([]plan.Observed, error)
}

// createBalancer makes a load balancer with as many of its parts as its provider is trusted with, or can take.
func (e *Engine) createBalancer(ctx context.Context, step *plan.Step) (plan.Observed, error) {
	wanted := step.Attrs
	asked, _ := wanted["provider"].(string)
	key := identityKey(step.Kind, step.Identity)
	var (
		t       trust
		less    map[string]any
		refused bool
	)
	e.store.do(func() {
		t, less = *e.store.trustOf(asked), e.store.lesser(key, wanted)
		_, refused = e.store.piecemeal[key]
	})
	step.Attrs = entrusted(wanted, t)
	if refused {
		step.Attrs = entrusted(less, t)
	}
	made, freed, err := e.tryBalancer(ctx, step)
	if parts(less) < parts(step.Attrs) && blamesParts(err) {
		// One of the parts is more than the provider, or this Octavia, can do: it is told which when they are made one by one.
		e.store.do(func() { e.store.piecemeal[key] = e.clock.Now().Add(piecemealFor) })
		step.Attrs = entrusted(less, t)
		if left := (leftError{}); errors.As(err, &left) {
			left.otherwise = true
			return made, left
		}
		made, freed, err = e.tryBalancer(ctx, step)
		if openstack.Classify(err) == openstack.ClassTerminal { // nor is it taken without them: it is not they that are to blame
			e.store.do(func() { delete(e.store.piecemeal, key) })
		}
	}
	if freed && openstack.Classify(err) == openstack.ClassExists {
		made, _, err = e.tryBalancer(ctx, step)
	}
	if err != nil {
		return made, err
	}
	now := e.clock.Now()
	e.store.do(func() {
		delete(e.store.piecemeal, key)
		e.store.busy[made.ID] = &busyState{since: now, moved: now, full: hasParts(step.Attrs)}
		if asked == "" { // what is learned of the default provider is learned of its name
			e.store.providers[""] = e.store.trustOf(provider(made))
		}
	})
	return made, nil
}

// tryBalancer asks for a load balancer, and removes what a refusal has left behind. freed says that there was something. The error is
// the refusal, or why that could not be done.
func (e *Engine) tryBalancer(ctx context.Context, step *plan.Step) (made plan.Observed, freed bool, err error) {
	made, refusal := e.cloud.Create(ctx, step.Kind, step.Identity, step.Attrs)
	class := openstack.Classify(refusal)
	switch class {
	case openstack.ClassUnsupported, openstack.ClassTerminal, openstack.ClassQuota, openstack.ClassExists, openstack.ClassNotFound:
	default:
		return made, false, refusal
	}
	freed, wait, err := e.cloud.FreeVIP(
		ctx, textOf(step.Attrs["vip_subnet_id"]), textOf(step.Attrs["vip_address"]), e.config.AmbiguousWait)
	switch {
	case err != nil:
		return made, freed, fmt.Errorf("%w; looking for a VIP port that this left behind: %w", refusal, err)
	case wait > 0 && (class == openstack.ClassUnsupported || class == openstack.ClassExists || hasParts(step.Attrs) && blamesParts(refusal)):
		return made, freed, leftError{error: refusal, wait: wait}
	}
	return made, freed, refusal
}

// leftError is the refusal of a load balancer whose address is held by a VIP port that may be left behind, or belong to a create that
// is under way.
type leftError struct {
	error
	wait      time.Duration
	otherwise bool // it is asked for otherwise then: its parts one by one
}

func (l leftError) Unwrap() error { return l.error }

func (l leftError) note() string {
	return fmt.Sprintf("a port has the address that no load balancer owns: it may belong to one that is being made, and is removed "+
		"if that is so in %s still", l.wait.Round(time.Second))
}

// entrusted returns what a create may ask for.
func entrusted(attrs map[string]any, t trust) map[string]any {
	if !t.bare && !t.noMonitors {
		return attrs
	}
	attrs = maps.Clone(attrs)
	if t.bare {
		delete(attrs, "listeners")
		delete(attrs, "pools")
		return attrs
	}
	pools := slices.Clone(listOf(attrs["pools"]))
	for i, element := range pools {
		pool, _ := element.(map[string]any)
		pool = maps.Clone(pool)
		delete(pool, "healthmonitor")
		pools[i] = pool
	}
	attrs["pools"] = pools
	return attrs
}

func hasParts(attrs map[string]any) bool { return parts(attrs) > 0 }

// parts counts the listeners and pools that a load balancer is to be made with.
func parts(attrs map[string]any) int {
	return len(listOf(attrs["listeners"])) + len(listOf(attrs["pools"]))
}

// changeBalancer applies a step on a load balancer that exists. What it changes is written into what is known when the answer comes,
// not into what was known when it was asked for: whoever has looked at the load balancer meanwhile may know more of it.
func (e *Engine) changeBalancer(ctx context.Context, step *plan.Step) (plan.Observed, error) {
	var (
		lb plan.Observed
		ok bool
	)
	e.store.do(func() { lb, ok = e.store.cloud.get(step.Kind, step.ID) })
	if !ok {
		return plan.Observed{}, fmt.Errorf("load balancer %s is not there any more", step.ID)
	}
	change, err := e.askBalancer(ctx, lb, *step)
	if err != nil {
		return plan.Observed{}, err
	}
	if step.Op == plan.Delete && step.Part == nil {
		e.leaves(*step)
		if step.Mends {
			e.log.WarnContext(ctx, "a load balancer in ERROR was asked to go; if it is so again that is tried less and less often", "id", step.ID,
				"reason", step.Reason)
		}
	}
	return e.amend(lb, change, *step), nil
}

// askBalancer asks for a step, and returns what it changes.
func (e *Engine) askBalancer(ctx context.Context, lb plan.Observed, step plan.Step) (octavia.Change, error) {
	switch {
	case step.Part != nil:
		return e.cloud.ChangePart(ctx, lb, step)
	case step.Op == plan.Failover:
		return becomes(statusUpdating), e.cloud.FailOver(ctx, step.ID)
	case step.Op == plan.Delete:
		return becomes("PENDING_DELETE"), e.cloud.Delete(ctx, step.Kind, step.ID)
	case step.Op == plan.Tag:
		return func(lb plan.Observed) plan.Observed { return becomes(statusUpdating)(retagged(lb, step)) }, e.retag(ctx, step)
	}
	updated, err := e.cloud.Update(ctx, step.Kind, step.ID, 0, step.Attrs)
	return func(lb plan.Observed) plan.Observed {
		now := updated
		now.Attrs = maps.Clone(now.Attrs)
		for _, name := range []string{"listeners", "pools", "vip_sg_ids"} {
			now.Attrs[name] = lb.Attrs[name]
		}
		return now
	}, err
}

// becomes is the change of a load balancer's status alone.
func becomes(status string) octavia.Change {
	return func(lb plan.Observed) plan.Observed {
		lb.Status = status
		return lb
	}
}

// amend writes a change into what is known of a load balancer, and returns it as it is then. One that has gone meanwhile stays gone.
func (e *Engine) amend(lb plan.Observed, change octavia.Change, step plan.Step) plan.Observed {
	var woken []item
	now := e.clock.Now()
	e.store.do(func() {
		known, ok := e.store.cloud.get(lb.Kind, lb.ID)
		if !ok {
			return
		}
		e.store.mended(step, now)
		lb = change(known)
		woken = e.store.takeBalancer(lb, now)
		if b := e.store.busy[lb.ID]; b != nil && step.Part != nil && step.Op == plan.Create {
			b.check = true
		}
	})
	e.wakeAll(woken)
	e.requestPoll()
	return lb
}

// afterBalancer brings what is known up to date with a refused step on a load balancer. It says whether another plan may do.
func (e *Engine) afterBalancer(ctx context.Context, fail stepError) error {
	step := fail.step
	switch openstack.Classify(fail.err) { //nolint:exhaustive // the others are as for every resource
	case openstack.ClassBusy:
		return e.afterBusy(ctx, fail)
	case openstack.ClassQuota:
		e.store.do(func() { e.store.tight = e.clock.Now() })
	case openstack.ClassForbidden, openstack.ClassUnsupported, openstack.ClassTerminal:
		e.refuse(fail)
		// Which of the three it is depends on the release.
		if step.Op == plan.Failover {
			e.store.do(func() {
				if found := e.store.cloud.entries[resourceKey{step.Kind, step.ID}]; found != nil {
					e.store.trustOf(provider(found.Observed)).noFailover = true
				}
			})
			return mendedError{fail}
		}
	case openstack.ClassRetry, openstack.ClassAmbiguous, openstack.ClassStale, openstack.ClassNotFound:
		// It may have been done, or be not what was known.
		if step.ID == "" {
			if openstack.Classify(fail.err) == openstack.ClassAmbiguous {
				e.store.do(func() { e.store.failed(fail) })
			}
			return nil
		}
		if _, err := e.reread(ctx, step.Kind, step.ID); err != nil {
			return stepError{step: step, err: err}
		}
		if class := openstack.Classify(fail.err); class == openstack.ClassStale || class == openstack.ClassNotFound {
			return mendedError{fail}
		}
		return fail
	}
	return nil
}

// afterBusy learns what keeps a load balancer from taking changes.
func (e *Engine) afterBusy(ctx context.Context, fail stepError) error {
	var (
		lb    plan.Observed
		ok    bool
		begun uint64
	)
	e.store.do(func() {
		begun = e.store.cloud.tick
		lb, ok = e.store.cloud.get(fail.step.Kind, fail.step.ID)
	})
	if !ok {
		return mendedError{fail}
	}
	list, err := e.cloud.InspectLoadBalancers(ctx, []plan.Observed{lb})
	if err != nil {
		return stepError{step: fail.step, err: err}
	}
	e.takeSeen(list, begun)
	for _, lb := range list {
		if condition, _ := octavia.ConditionOf(&lb); condition != octavia.Ready && condition != octavia.Partial {
			continue
		}
		if part, locked := lockedPool(lb); locked && fail.step.Part != nil && fail.step.Part.Kind == octavia.Listener {
			return e.unlock(ctx, fail, lb, part)
		}
		return fail // it was busy for a moment: again, a little later
	}
	return mendedError{fail}
}

// lockedPool returns a pool of a listener that is left PENDING_UPDATE though the load balancer is done.
func lockedPool(lb plan.Observed) (plan.Part, bool) {
	for _, element := range listOf(lb.Attrs["listeners"]) {
		listener, _ := element.(map[string]any)
		if id := textOf(listener["default_pool_id"]); id != "" && textOf(listener["provisioning_status"]) == statusUpdating {
			return plan.Part{Kind: octavia.Pool, Name: textOf(listener["default_pool"]), ID: id}, true
		}
	}
	return plan.Part{}, false
}

// unlock has a provider finish with the listeners of a pool, by a change of the pool that changes nothing: OVN's leaves them
// PENDING_UPDATE after a change of the pool's health monitor.
func (e *Engine) unlock(ctx context.Context, fail stepError, lb plan.Observed, pool plan.Part) error {
	change, err := e.cloud.ChangePart(ctx, lb, plan.Step{
		Op: plan.Update, Kind: lb.Kind, Identity: lb.Identity, ID: lb.ID, Part: &pool, Attrs: map[string]any{"name": pool.Name},
	})
	if err != nil {
		return stepError{step: fail.step, err: err}
	}
	e.amend(lb, change, plan.Step{})
	return mendedError{fail}
}
