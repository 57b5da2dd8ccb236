// SPDX-License-Identifier: Apache-2.0

// Package backend is what the loop asks of a place where resources are kept: Neutron, Octavia, OVN's northbound
// database. It must never name a kind of resource: a backend describes its kinds itself.
package backend

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

var (
	// ErrNotFound says that a resource is not there.
	ErrNotFound = errors.New("there is no such resource")
	// ErrAbsent says that a cloud has no service of that kind, so that there is nothing to list. It does not pass by
	// itself.
	ErrAbsent = errors.New("there is no such service")
)

// Backend is a place where resources of some kinds are kept. Its methods may be called by any number of goroutines.
type Backend interface {
	// Kinds describes the kinds that are kept there.
	Kinds() []plan.Descriptor
	// List returns all resources of its kinds with a cluster's identity. An error means that nothing is known: what was
	// known stays as it is, and steps on it wait. One that is ErrAbsent says that there can be none.
	List(ctx context.Context, cluster string) ([]plan.Observed, error)
	// Get reads one resource. The error is ErrNotFound where it is not there.
	Get(ctx context.Context, kind drivers.Kind, id string) (plan.Observed, error)
	// Apply carries out one step for an owner: its preflight, the request, and what a refusal makes necessary. What has
	// become of the resource is in the state when it returns. The error is a *Failure.
	Apply(ctx context.Context, owner plan.Owner, step *plan.Step) error
}

// Registration is a backend with what it can do besides. A nil function does nothing.
type Registration struct {
	Backend
	// Name names the backend for people, such as "the load balancing service".
	Name string
	// Reason is that of Events about it, such as LoadBalancer.
	Reason string
	// Required says that nothing is concluded at all while it cannot be listed, and that Raven does not start without it.
	Required bool
	// Follows says that the backend itself tells what others change and when it can be asked again: its steps are tried
	// although it could not be listed, and it is not listed again for that.
	Follows bool
	// Unconfigured says why the backend keeps nothing, so that what is there of its resources is not known; "": it is
	// configured.
	Unconfigured string
	// Hooks are what it adds to the state; Backend and Kinds are filled in.
	Hooks state.Hooks
	// Review looks at a plan before it is carried out, with the lock held and without I/O: it may withhold steps, add
	// notices and waits.
	Review func(tx *state.Tx, o *state.Object, p *plan.Plan) Review
	// Refused returns why a step is not to be asked for now, since it was refused before.
	Refused func(tx *state.Tx, step plan.Step) *Failure
	// Due is in what time something may be done about an owner's resources though nothing wakes it; 0: nothing is.
	Due func(tx *state.Tx, owner plan.Owner) time.Duration
	// Remarks are for people, on an object that is not done.
	Remarks func(tx *state.Tx, o *state.Object) []string
	// Ready says of a resource that is made, and works, what people wait for: as the reason and the message of an Event;
	// "": they do not wait for it.
	Ready func(r plan.Observed) (reason, message string)
	// Listed is called when all resources were listed, or could not be, with the lock held.
	Listed func(tx *state.Tx, err error)
	// Find lists the resources with one identity, those that were created a moment ago too. Without it no create has an
	// unknown outcome.
	Find func(ctx context.Context, kind drivers.Kind, identity plan.Identity) ([]plan.Observed, error)
	// Lookup finds an existing resource that an operator named by id or name. The error is a *LookupError.
	Lookup func(ctx context.Context, kind drivers.Kind, idOrName string) (plan.Observed, error)
	// Remove deletes a resource without preflight: see package cleanup.
	Remove func(ctx context.Context, step plan.Step) error
	// Run is a loop of the backend's own while this process leads; it ends with ctx.
	Run func(ctx context.Context)
	// Collectors are its metrics.
	Collectors []prometheus.Collector
}

// Review is what a backend has to say of a plan.
type Review struct {
	// Withheld says, for people, why there is only a part of a plan; "": it is whole.
	Withheld string
	// Wait is what wakes the object besides, and what it cannot go on without.
	Wait []state.Key
	// Failures are why something is not done though the plan does not say so.
	Failures []*Failure
}

// Env is what a backend gets from the loop.
type Env struct {
	State   *state.State
	Loop    Loop
	Clock   clock.WithTickerAndDelayedExecution
	Log     *slog.Logger
	Cluster string
	Timing  Timing
}

// Timing is how long things take that pass by themselves.
type Timing struct {
	// SlowRetry is how long an object rests that waits for something outside, such as quota, in case its wake-up never
	// comes.
	SlowRetry time.Duration
	// UnknownWait is how long a create with unknown outcome may still be carried out.
	UnknownWait time.Duration
	// Refusal is how long an object rests that was refused for good, in case the cloud changes its mind.
	Refusal time.Duration
}

// Loop is what a backend may ask of the loop. Nothing of it may be called with the lock of the state held, but for
// RequestList.
type Loop interface {
	// RequestList has all backends listed after a time; 0: at once.
	RequestList(after time.Duration)
	// Reread takes over one resource of any backend as it is now, and says whether it is gone.
	Reread(ctx context.Context, kind drivers.Kind, id string) (gone bool, err error)
	// Adopt takes over what carries a step's identity already, and says whether there was any.
	Adopt(ctx context.Context, step plan.Step) (bool, error)
	Objects
	// Drifted counts and logs resources that others have changed.
	Drifted(changes []state.Drift)
}

// Objects are the source objects of the drivers.
type Objects interface {
	// Source returns an owner's source object, and the name of its driver.
	Source(id plan.Owner) (object drivers.Object, driver string)
	// Annotations visits the annotations that drivers write on source objects, by key, as they are there now, with the
	// objects' UIDs. It says whether these are all objects: every driver is there, and its watches work.
	Annotations(visit func(uid string, annotations map[string]string)) (all bool)
}

// LookupError says why a configured name leads to nothing.
type LookupError struct {
	// Missing says that nothing has that id or name, or that several have, as far as the credentials see. Otherwise it
	// could not be read.
	Missing bool
	Err     error
}

func (l *LookupError) Error() string { return l.Err.Error() }
func (l *LookupError) Unwrap() error { return l.Err }
