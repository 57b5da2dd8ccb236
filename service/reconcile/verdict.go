package reconcile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
)

// terminalTry is how long a key rests that was refused for good, in case the cloud changes its mind.
const terminalTry = 10 * time.Minute

// crowdShare is the part of SlowRetry between two tries of a crowd that waits for the same thing.
const crowdShare = 10

// verdict is what an error means for its owner.
type verdict struct {
	phase Phase
	next  result
	waits []waitKey // what may wake it before: any of them
	quiet bool      // it is not for the people who look at the object: there would be an Event on every one
	// patient: it is for people only when it has lasted, for most of these pass.
	patient bool
}

// verdict decides, for one error, what the owner is from now on, when it is tried again and what may wake it before.
//
//	unknown need, in use, quota, subnet full,
//	a name that leads to nothing               waiting: woken by what it waits for, tried slowly besides
//	a router that does not join two networks   waiting: its interface, or a person, is still to come
//	a create that was cut                      waiting: looked for, less and less often, until it cannot come any more
//	invalid answer, a request that is refused  terminal: only another object, driver or configuration helps
//	everything else                            failing: tried again, ever later
func (e *Engine) verdict(err error) verdict {
	var (
		unknown   unknownNeedError
		terminal  terminalError
		inUse     inUseError
		ambiguous ambiguousError
		step      stepError
		lookup    lookupError
		kept      keptError
		stays     vetoError
		unseen    unseenError
	)
	switch {
	case errors.As(err, &unknown):
		return verdict{phase: Waiting, next: result{again: e.config.SlowRetry}}
	case errors.As(err, &lookup) && lookup.missing:
		return verdict{phase: Waiting, next: result{again: e.config.SlowRetry}}
	case errors.As(err, &kept):
		return verdict{phase: Waiting, next: result{again: e.config.SlowRetry}, quiet: true}
	case errors.As(err, &stays):
		return verdict{phase: Terminal, next: result{again: stays.wait}}
	case errors.Is(err, drivers.ErrIsolated):
		return verdict{phase: Terminal, next: result{again: isolatedTry}}
	case errors.As(err, &terminal):
		return verdict{phase: Terminal}
	case errors.As(err, &inUse):
		return verdict{phase: Waiting, next: result{backoff: true}}
	case errors.As(err, &ambiguous):
		return verdict{phase: Waiting, next: result{again: ambiguous.again(e.config.BackoffBase)}, quiet: true}
	case errors.As(err, &unseen):
		return verdict{phase: Waiting, next: result{again: e.config.SlowRetry}, waits: []waitKey{waitBalancing()}}
	case errors.As(err, &step) && step.step.Kind.Northbound():
		return e.northboundVerdict(step)
	case errors.As(err, &step):
		return e.stepVerdict(step)
	}
	// That an account may not write is among what passes: an API server that was just started refuses everything until it has read
	// the roles, and a role that is put right wakes nobody.
	unheard := errors.Is(err, drivers.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
	return verdict{phase: Failing, next: result{backoff: true}, quiet: unheard}
}

// isolatedTry is how often an object that is kept from its driver is shown to the host again, which knows how long that lasts.
const isolatedTry = time.Minute

func (e *Engine) stepVerdict(f stepError) verdict {
	switch {
	case f.foreign && e.writtenDown(f):
		return verdict{phase: Terminal, next: result{again: terminalTry}}
	case f.foreign:
		return verdict{phase: Terminal, next: result{again: e.config.SlowRetry}}
	}
	if place := (placeError{}); errors.As(f.err, &place) {
		v := e.crowd(f, waitQuota(f.step.Kind))
		v.quiet = true
		return v
	}
	if room := (roomError{}); errors.As(f.err, &room) {
		return e.crowd(f, waitQuota(f.step.Kind))
	}
	if left := (leftError{}); errors.As(f.err, &left) {
		return verdict{phase: Waiting, next: result{again: left.wait}}
	}
	switch openstack.Classify(f.err) { //nolint:exhaustive // the default is the rule, these are its exceptions
	case openstack.ClassQuota:
		return e.crowd(f, waitQuota(f.step.Kind))
	case openstack.ClassSubnetFull:
		network, _ := f.step.Attrs["network_id"].(string)
		return e.crowd(f, waitRoom(network))
	case openstack.ClassInUse:
		return verdict{phase: Waiting, next: result{backoff: true}}
	case openstack.ClassUnreachable:
		return verdict{phase: Waiting, next: result{backoff: true}, patient: true}
	case openstack.ClassTerminal, openstack.ClassUnsupported:
		return verdict{phase: Terminal, next: result{again: terminalTry}}
	case openstack.ClassThrottled:
		if after := openstack.RetryAfter(f.err); after > 0 {
			return verdict{phase: Failing, next: result{again: after}}
		}
	}
	return verdict{phase: Failing, next: result{backoff: true}}
}

// crowd is the verdict on an owner that waits for something of which there is not enough. However many they are, one tries
// every now and then; if it succeeds, it wakes others.
func (e *Engine) crowd(f stepError, key waitKey) verdict {
	v := verdict{phase: Waiting, waits: []waitKey{key}}
	if f.missed {
		v.next = result{backoff: true} // it became free while it was refused
		return v
	}
	n := 0
	e.store.do(func() { n = len(e.store.waiters[key]) })
	most := max(e.config.SlowRetry, time.Duration(n)*e.config.SlowRetry/crowdShare)
	v.next = result{again: most/2 + rand.N(most)} //nolint:gosec // jitter
	return v
}

// sooner returns the result that looks at the key again first: backoff begins with the shortest time.
func sooner(a, b result) result {
	switch {
	case a.backoff || b == (result{}):
		return a
	case b.backoff || a.again == 0 || b.again < a.again:
		return b
	}
	return a
}

// rank orders phases by what they ask of the loop.
func rank(p Phase) int { return slices.Index([]Phase{Failing, Waiting, Terminal}, p) }

// stepError says which step failed.
type stepError struct {
	step   plan.Step
	err    error
	note   string
	missed bool // what it lacked may have become free meanwhile
	// foreign says that something is not there which is not Raven's to make.
	foreign bool
}

func (f stepError) Error() string {
	text := doing(f.step)
	var refused *openstack.Error
	if errors.As(f.err, &refused) {
		reason := *refused
		reason.Op, reason.Kind, reason.What = "", "", "" // which step it was is said already
		text += ": " + reason.Error()
	} else {
		text += ": " + f.err.Error()
	}
	if f.note != "" {
		text += "; " + f.note
	}
	if left := (leftError{}); errors.As(f.err, &left) {
		text += "; " + left.note()
	}
	if back := (backError{}); errors.As(f.err, &back) {
		text += "; " + back.refused.Error()
	}
	return text
}
func (f stepError) Unwrap() error { return f.err }

// doing says what a step does, with the resource's name in the cloud where it has one.
func doing(step plan.Step) string {
	name, _ := step.Attrs["name"].(string)
	if name == "" {
		name = step.Identity.Name
	}
	if step.Part != nil {
		return fmt.Sprintf("%s %s of load balancer %s", gerund(step.Op), step.Part, step.ID)
	}
	return fmt.Sprintf("%s %s %q", gerund(step.Op), strings.ReplaceAll(string(step.Kind), "_", " "), name)
}

// mendedError is a refusal after which what is known was brought up to date, so that another plan may do.
type mendedError struct{ stepError }

// maxMended is how often that is believed of a step in one pass.
const maxMended = 2

func gerund(op plan.Op) string {
	return map[plan.Op]string{
		plan.Create: "creating", plan.Update: "updating", plan.Delete: "deleting",
		plan.Attach: "attaching", plan.Detach: "detaching", plan.Tag: "tagging",
		plan.Failover: "failing over",
	}[op]
}

// inUseError names what keeps a resource from being deleted.
type inUseError struct {
	step  plan.Step
	users []string
}

func (u inUseError) Error() string {
	shown := u.users
	if len(shown) > 5 {
		shown = append(shown[:5:5], fmt.Sprintf("%d more", len(u.users)-5))
	}
	return doing(u.step) + ": it is still used by " + strings.Join(shown, ", ")
}

// ambiguousError says that a create was cut and its outcome is not known yet.
type ambiguousError struct {
	step  plan.Step
	doubt doubt
	now   time.Time
}

func (a ambiguousError) Error() string {
	return fmt.Sprintf("%s was cut off and may still happen: looking for it until %s before trying again",
		doing(a.step), a.doubt.until.Format(time.TimeOnly))
}

// again is when to look next: soon at first, since most come soon if at all.
func (a ambiguousError) again(base time.Duration) time.Duration {
	return max(min(a.now.Sub(a.doubt.since)/2+base, a.doubt.until.Sub(a.now)), time.Millisecond)
}

// panicError is a fault of ours in one pass. It must not end the daemon.
type panicError struct {
	value any
	stack []byte
}

func (p panicError) Error() string {
	return fmt.Sprintf("a fault in Raven: %v; please report it with the stack in the log", p.value)
}
