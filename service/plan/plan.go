// SPDX-License-Identifier: Apache-2.0

// Package plan compares what an owner wants with what the cloud holds and says which steps lead from one to the other.
// It must never do I/O, log, read a clock or remember anything: the same input gives the same plan.
//
//	desired  observed              steps
//	yes      no                    create (waits for its refs and After)
//	yes      same                  none; tag, if only the description proves its identity
//	yes      mutable difference    update
//	yes      immutable difference  delete the old one, then create; what of this owner uses it goes and comes with it,
//	                               as soon as nothing else uses it
//	yes      twice                 one is kept, the other deleted when nothing uses it
//	no       policy delete         delete, when nothing of Raven's uses it any more
//	no       policy retain         none
//
// What is peculiar to one kind of resource stands in its Descriptor, which its backend registers: this package names no
// kind.
package plan

import (
	"fmt"

	"github.com/kuryr/raven/drivers"
)

// Observed is one resource as the cloud showed it.
type Observed struct {
	// Kind is the resource's kind, or the one that it is stored as; see Kinds.KindOf.
	Kind     drivers.Kind
	ID       string
	Identity Identity // as Parse returns it
	Managed  bool     // Parse found an identity. Nothing is ever done to what is not managed.
	// Attrs is the Neutron document in JSON's types; whole numbers may be int64 or float64.
	Attrs       map[string]any
	Revision    int64
	Tags        []string
	Description string
	CreatedAt   string // as Neutron writes it, so that texts compare as times do
	Status      string
}

// Desired is one resource as an owner wants it.
type Desired struct {
	Kind     drivers.Kind
	Identity Identity
	// Attrs are those of drivers.Attributes and of the descriptor's Attributes; leaves may be drivers.Ref.
	Attrs map[string]any
	// Expand is how many resources like this one there may be in all; 0 and 1 mean only this one.
	Expand int
	After  []drivers.Ref
	// Tags are for people, and written with those that prove the identity.
	Tags []string
	// Hints are what only the kind's own descriptor reads; their type is the backend's.
	Hints any
}

// Op is what a step does.
type Op string

// The operations.
const (
	Create Op = "create"
	Update Op = "update"
	Delete Op = "delete"
	Attach Op = "attach" // a resource that exists to another one, which Attrs name
	Detach Op = "detach" // a resource from another one, which Attrs name; that deletes it
	// Failover has the cloud make what is behind a resource anew.
	Failover Op = "failover"
	// Tag adds tags: Attrs["tags"] is a []string; and removes those in Attrs["remove"], if there, as well as one can.
	Tag Op = "tag"
)

// Step is one change to the cloud.
type Step struct {
	Op       Op
	Kind     drivers.Kind
	Identity Identity
	ID       string // empty for create
	// Part is what of a resource the step is about; nil: the whole resource. ID is the resource's either way.
	Part     *Part
	Revision int64 // what an update was computed from
	// Attrs of a create are the whole body, without identity. Of an update, what changes, which may include
	// "description". Refs that do not resolve yet stand as drivers.Ref; such a step has Waits.
	Attrs map[string]any
	// Old is what an update changes, for people.
	Old map[string]any
	// Reason is one sentence for people.
	Reason string
	// Repairs says that the step repairs a resource, or a part of it, that is in an error state; or that it deletes a
	// resource in an error state, for whatever reason: that may be how the last deletion of it ended.
	Repairs bool
	// Waits is what has to happen first; a step without Waits is ready. Ready steps may be applied in any order.
	Waits []Wait
}

// Ready says whether the step can be applied now.
func (s Step) Ready() bool { return len(s.Waits) == 0 }

// PartKind is what a part is, in the words that people read before its name: "listener", "the members of pool".
type PartKind string

// Part is a part of a resource that is changed by steps of its own.
type Part struct {
	Kind PartKind
	Name string // its own, or that of the part that it belongs to; empty: there is only one
	ID   string // in the cloud; empty for a create
	Pool string // the id of the pool that it belongs to, where it is a pool's
}

// String names the part for people.
func (p Part) String() string {
	if p.Name == "" {
		return string(p.Kind)
	}
	return fmt.Sprintf("%s %q", p.Kind, p.Name)
}

// Resource names a resource in the cloud.
type Resource struct {
	Kind     drivers.Kind
	ID       string
	Identity Identity
}

// Wait is something that has to happen before a step can be applied. At most one of Ref, Resource and Busy is set; if
// none is, it is another step of the same plan, or a person, that ends it, as Message says.
type Wait struct {
	Ref      *drivers.Ref // must resolve
	Resource *Resource    // must be gone
	Busy     *Resource    // must take changes again
	Message  string
}

// Input is all that a plan is computed from.
type Input struct {
	// Desired are the resources that one owner wants.
	Desired []Desired
	// Observed is everything in the cloud with that owner's identity, twins included.
	Observed []Observed
	// Resolve returns the value of a ref, within the set and by role, and false when it is not there yet. Nil resolves
	// nothing.
	Resolve func(drivers.Ref) (any, bool)
	// Dependants returns what of Raven's, of any owner, uses the resource with that id: ports and router interfaces of a
	// subnet; these and subnets of a network; interfaces of a router; ports and rules of a security group; subnets of a
	// pool; floating IPs of a port. Nil means that nothing uses anything.
	Dependants func(drivers.Kind, string) []Observed
	// Unsure are kinds of what is wanted and not known: what is there of them, and what uses it, is not deleted for
	// that it is not wanted any more.
	Unsure map[drivers.Kind]bool
	// Blocked says of resources, by their id, why they must not be deleted for now.
	Blocked map[string]string
	// Prune allows deletions. False when not all opinions are in.
	Prune bool
}

// Plan is the steps from observed to desired, in a stable order: what is made or changed by kind, then what goes.
type Plan struct {
	Steps []Step
	// Held counts the deletions that are not planned because Prune is false.
	Held int
	// Replaced are those of Held that are replaced by a resource of their alternative kind: they end nothing.
	Replaced int
	// Kept counts the deletions that are not planned because of Unsure.
	Kept int
	// Pending are waits for what is not ready yet though no step is left for it.
	Pending []Wait
	// Notices say, for people, what cannot be as it should.
	Notices []Notice
}

// Notice is something for people to know.
type Notice struct {
	Reason  string // of the Event, one word
	Message string
}
