// SPDX-License-Identifier: Apache-2.0

// Package outcome turns a refused request of an OpenStack service into what becomes of its object: it brings what is
// known up to date and returns a backend.Failure. It must never repeat the request itself.
package outcome

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// capacityShare is the part of SlowRetry between two tries of all who wait for the same thing.
const capacityShare = 10

// Handler handles the refusals of one backend.
type Handler struct {
	Env backend.Env
	// Dependants names, for people, what uses a resource.
	Dependants func(ctx context.Context, kind drivers.Kind, id string) ([]string, error)
}

// Refusal is a request that failed.
type Refusal struct {
	Step plan.Step
	Err  error
	Note string
	// Missed says that what it lacked may have become free meanwhile.
	Missed bool
	// Scarce is what there may not be enough of.
	Scarce []state.Key
	// Foreign says that something is not there which is not Raven's to make; Refuse is then the time to the next try, or
	// the general one.
	Foreign bool
	Refuse  time.Duration
}

// Scarce is what a create may lack: quota, and room for a port in its network.
func Scarce(step plan.Step) []state.Key {
	network, _ := step.Attrs["network_id"].(string)
	return []state.Key{state.ByQuota(step.Kind), ByRoom(network)}
}

// ByRoom is a free address in a network.
func ByRoom(networkID string) state.Key { return state.Key{What: "room", Name: networkID} }

// Handle brings what is known up to date with a failed step, and says what becomes of the object.
func (h *Handler) Handle(ctx context.Context, r Refusal) *backend.Failure {
	step := r.Step
	switch openstack.Classify(r.Err) { //nolint:exhaustive // the other classes leave nothing to be done here
	case openstack.ClassAmbiguous:
		if step.Op == plan.Create {
			h.Env.State.Update(func(tx *state.Tx) {
				tx.NoteUnknown(step.Kind, step.Identity, h.Env.Timing.UnknownWait, openstack.AnswerOf(r.Err))
			})
			if r.Note == "" {
				r.Note = "it may have been carried out all the same: Raven searches for it before it tries again"
			}
		}
	case openstack.ClassExists:
		if step.Op != plan.Create {
			break
		}
		switch adopted, err := h.Env.Loop.Adopt(ctx, step); {
		case err != nil:
			return h.Failure(Refusal{Step: step, Err: err})
		case adopted:
			return h.Replan(r)
		}
	case openstack.ClassStale:
		if _, err := h.Env.Loop.Reread(ctx, step.Kind, step.ID); err != nil {
			return h.Failure(Refusal{Step: step, Err: err})
		}
		return h.Replan(r)
	case openstack.ClassNotFound:
		return h.missing(ctx, r)
	case openstack.ClassInUse:
		if users, err := h.Dependants(ctx, step.Kind, step.ID); err == nil && len(users) > 0 {
			return &backend.Failure{Phase: state.Waiting, Backoff: true, Err: InUse(step, users, r.Err)}
		}
	}
	return h.Failure(r)
}

// missing finds what is gone: the resource itself, a resource of this cluster that it refers to, or a resource
// that is not Raven's, which only its owner can make again.
func (h *Handler) missing(ctx context.Context, r Refusal) *backend.Failure {
	step := r.Step
	if step.ID != "" {
		gone, err := h.Env.Loop.Reread(ctx, step.Kind, step.ID)
		if err != nil {
			return h.Failure(Refusal{Step: step, Err: err})
		}
		if gone {
			return h.Replan(r)
		}
	}
	found := false
	var known []state.ResourceKey
	h.Env.State.Update(func(tx *state.Tx) {
		ids := tx.Cache.References(plan.Observed{Kind: step.Kind, Attrs: step.Attrs})
		known, found = tx.Cache.Known(ids), tx.ForgetLookups(ids)
	})
	for _, key := range known {
		gone, err := h.Env.Loop.Reread(ctx, key.Kind, key.ID)
		if err != nil {
			return h.Failure(Refusal{Step: step, Err: err})
		}
		found = found || gone
	}
	if found {
		return h.Replan(r)
	}
	r.Foreign = true
	return h.Failure(r)
}

// Replan is the failure of a step after which another plan may do.
func (h *Handler) Replan(r Refusal) *backend.Failure {
	f := h.Failure(r)
	f.Replan = true
	return f
}

// Failure says what an error means for the object.
//
//	in use, quota, subnet full                waiting: woken by what it waits for, tried slowly besides
//	a router that does not join two networks  waiting: its interface, or a person, is still to come
//	a request that is refused                 permanent: only another object, driver or configuration helps
//	everything else                           failing: tried again, ever later
func (h *Handler) Failure(r Refusal) *backend.Failure {
	f := h.classify(r)
	f.Err = &backend.StepError{Step: r.Step, Err: r.Err, Note: r.Note}
	return f
}

func (h *Handler) classify(r Refusal) *backend.Failure {
	var known *backend.Failure
	if errors.As(r.Err, &known) {
		f := *known
		return &f
	}
	if r.Foreign {
		f := &backend.Failure{Phase: state.Terminal, RequeueAfter: h.Env.Timing.SlowRetry}
		if r.Refuse > 0 {
			f.RequeueAfter = r.Refuse
		}
		return f
	}
	switch openstack.Classify(r.Err) { //nolint:exhaustive // the default is the rule, these are its exceptions
	case openstack.ClassQuota:
		return h.Capacity(state.ByQuota(r.Step.Kind), r.Missed)
	case openstack.ClassSubnetFull:
		network, _ := r.Step.Attrs["network_id"].(string)
		return h.Capacity(ByRoom(network), r.Missed)
	case openstack.ClassInUse:
		return &backend.Failure{Phase: state.Waiting, Backoff: true}
	case openstack.ClassUnreachable:
		return &backend.Failure{Phase: state.Waiting, Backoff: true, Patient: true}
	case openstack.ClassTerminal, openstack.ClassUnsupported:
		return &backend.Failure{Phase: state.Terminal, RequeueAfter: h.Env.Timing.Refusal}
	case openstack.ClassThrottled:
		if after := openstack.RetryAfter(r.Err); after > 0 {
			return &backend.Failure{Phase: state.Failing, RequeueAfter: after}
		}
	}
	return &backend.Failure{Phase: state.Failing, Backoff: true}
}

// Capacity is the failure of an object that waits for something of which there is not enough. However many they are,
// one tries every now and then; if it succeeds, it wakes others. missed says that it became free while it was
// refused.
func (h *Handler) Capacity(key state.Key, missed bool) *backend.Failure {
	f := &backend.Failure{Phase: state.Waiting, Wait: []state.Key{key}}
	if missed {
		f.Backoff = true
		return f
	}
	n := 0
	h.Env.State.View(func(tx *state.Tx) { n = tx.Waiting(key) })
	slow := h.Env.Timing.SlowRetry
	most := max(slow, time.Duration(n)*slow/capacityShare)
	f.RequeueAfter = most/2 + rand.N(most) //nolint:gosec // jitter
	return f
}

// inUse is the refusal of a deletion with what keeps the resource.
type inUse struct {
	text    string
	refusal error
}

func (i inUse) Error() string { return i.text }
func (i inUse) Unwrap() error { return i.refusal }

// InUse names what keeps a resource from being deleted.
func InUse(step plan.Step, users []string, refusal error) error {
	shown := users
	if len(shown) > 5 {
		shown = append(shown[:5:5], fmt.Sprintf("%d more", len(users)-5))
	}
	text := fmt.Sprintf("%s: it is still used by %s", backend.Doing(step), strings.Join(shown, ", "))
	return inUse{text, refusal}
}

// notFound is an error that says that a resource is not there.
type notFound struct{ error }

func (n notFound) Unwrap() error { return n.error }

// Is implements what errors.Is asks for.
func (notFound) Is(target error) bool { return target == backend.ErrNotFound }

// NotFound returns an error as backend.Backend's Get returns it: that a resource is not there is backend.ErrNotFound.
func NotFound(err error) error {
	if openstack.Classify(err) == openstack.ClassNotFound {
		return notFound{err}
	}
	return err
}

// Lookup returns an error as backend.Registration's Lookup returns it: a name that leads to nothing, or to several,
// is told from one that cannot be read now.
func Lookup(err error) error {
	if err == nil {
		return nil
	}
	class := openstack.Classify(err)
	missing := class == openstack.ClassNotFound || class == openstack.ClassTerminal
	return &backend.LookupError{Missing: missing, Err: NotFound(err)}
}

// List returns an error as backend.Backend's List returns it: one that may pass is a backend.Failure.
func List(err error) error {
	switch openstack.Classify(err) { //nolint:exhaustive // the others do not pass
	case openstack.ClassRetry, openstack.ClassThrottled:
		return &backend.Failure{Phase: state.Failing, RequeueAfter: openstack.RetryAfter(err), Backoff: true, Err: err}
	}
	return err
}

// Removed returns what is wrong with a deletion: nothing if the resource was not there. What still uses it is named.
func (h *Handler) Removed(ctx context.Context, step plan.Step, err error) error {
	switch openstack.Classify(err) { //nolint:exhaustive // the others are as they are
	case openstack.ClassNotFound:
		return nil
	case openstack.ClassInUse:
		if users, derr := h.Dependants(ctx, step.Kind, step.ID); derr == nil && len(users) > 0 {
			return InUse(step, users, err)
		}
	}
	return err
}
