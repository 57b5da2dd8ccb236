// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// ResourceStatus is one resource of an object.
type ResourceStatus struct {
	Kind   drivers.Kind   `json:"kind"`
	Name   string         `json:"name"` // its name in the cloud
	ID     string         `json:"id"`
	Role   string         `json:"role"`             // its logical name
	Shared bool           `json:"shared,omitempty"` // shared with other objects
	Status string         `json:"status,omitempty"`
	Attrs  map[string]any `json:"attributes,omitempty"`
}

// ObjectStatus is what became of one source object.
type ObjectStatus struct {
	Driver    string      `json:"driver"`
	Kind      string      `json:"kind"`
	Namespace string      `json:"namespace,omitempty"`
	Name      string      `json:"name"`
	UID       string      `json:"uid"`
	State     state.Phase `json:"state"`
	Reasons   []string    `json:"reasons,omitempty"`
	Since     time.Time   `json:"since"`
	NextTry   *time.Time  `json:"nextTry,omitempty"`
	Tries     int         `json:"tries,omitempty"`
	Deleted   bool        `json:"deleted,omitempty"` // the object is gone, what it had is going
	// HandoverGap is for how many seconds a Service was not served when it was handed over from one kind of load
	// balancers to the other.
	HandoverGap float64 `json:"handoverGapSeconds,omitempty"`
	// Messages are the driver's diagnostics.
	Messages  []string         `json:"messages,omitempty"`
	Resources []ResourceStatus `json:"resources"`
}

// Filter selects objects. Empty fields select everything.
type Filter struct {
	Driver, Kind, Namespace, Name string
	State                         state.Phase
}

// Objects returns what became of the source objects, ordered by kind, namespace, name and driver.
func (e *Engine) Objects(f Filter) []ObjectStatus {
	var list []ObjectStatus
	e.state.View(func(tx *state.LoopTx) {
		list = make([]ObjectStatus, 0, len(tx.Objects()))
		for _, o := range tx.Objects() {
			if f.selects(o) {
				list = append(list, statusOf(tx, o, e.clock.Now()))
			}
		}
	})
	slices.SortFunc(list, func(a, b ObjectStatus) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.UID, b.UID))
	})
	return list
}

func (f Filter) selects(o *state.Object) bool {
	match := func(want, have string) bool { return want == "" || want == have }
	namespace := o.Target.Namespace
	if o.Target.Watch.Kind == "Namespace" && namespace == "" {
		namespace = o.Target.Name // a namespace is in itself
	}
	return match(f.Driver, o.Request.Driver) && match(f.Kind, o.Target.Watch.Kind) && match(f.Namespace, namespace) &&
		match(f.Name, o.Target.Name) && match(string(f.State), string(o.Phase))
}

// slowStep is how long a step may last before the status says for how long it does.
const slowStep = 3 * time.Second

// doingText says what is being applied, and for how long where the cloud takes its time.
func doingText(doing string, lasts time.Duration) string {
	if lasts < slowStep {
		return doing
	}
	return fmt.Sprintf("%s, for %s: the cloud has not answered yet", doing, lasts.Truncate(time.Second))
}

func statusOf(tx *state.LoopTx, o *state.Object, now time.Time) ObjectStatus {
	st := ObjectStatus{
		Driver: o.Request.Driver, Kind: o.Target.Watch.Kind, Namespace: o.Target.Namespace, Name: o.Target.Name,
		UID:   o.Target.UID,
		State: o.Phase, Reasons: o.Reasons, Since: o.Since, Tries: o.Tries, Deleted: o.Gone,
		HandoverGap: o.Gap.Seconds(),
	}
	if o.Request.Driver == disabledDriver {
		st.Driver = o.ID.Driver
	}
	if !o.NextTry.IsZero() {
		next := o.NextTry
		st.NextTry = &next
	}
	if o.Doing != "" {
		st.Reasons = append([]string{doingText(o.Doing, now.Sub(o.DoingSince))}, o.Reasons...)
		if o.Phase == state.Done {
			st.State = state.Pending
		}
	} else if o.Phase == state.Waiting {
		st.Reasons = append(slices.Clone(o.Reasons), rootsOf(tx, o)...)
	}
	for _, d := range o.Set.Diagnostics {
		st.Messages = append(st.Messages, fmt.Sprintf("%s: %s", d.Severity, d.Message))
	}
	for _, r := range tx.Cache.Owned(o.ID) {
		st.Resources = append(st.Resources, resourceStatus(tx, r, false))
	}
	for _, r := range o.Set.Resources {
		if r.Claim == "" {
			continue
		}
		if shared, ok := tx.FindShared(r.Spec.Kind(), r.Claim); ok {
			st.Resources = append(st.Resources, resourceStatus(tx, shared, true))
		}
	}
	return st
}

// rootsOf says how those stand for whose resources an object waits, where they are not done themselves.
func rootsOf(tx *state.LoopTx, o *state.Object) []string {
	var texts []string
	for _, root := range tx.Roots(o.Blocked) {
		if root == o || root.Phase == state.Done {
			continue
		}
		why := root.Doing
		if why == "" && len(root.Reasons) > 0 {
			why = root.Reasons[0]
		}
		texts = append(texts, fmt.Sprintf("%s is %s: %s", root.Target, root.Phase, why))
	}
	return state.Sorted(texts)
}

func resourceStatus(tx *state.LoopTx, r plan.Observed, shared bool) ResourceStatus {
	name, _ := r.Attrs["name"].(string)
	return ResourceStatus{
		Kind: r.Kind, Name: name, ID: r.ID, Role: strings.TrimPrefix(r.Identity.Name, tx.Kinds().Of(r.Kind).NamePrefix),
		Shared: shared, Status: r.Status, Attrs: r.Attrs,
	}
}

// DriverStatus is how a driver stands.
type DriverStatus struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Objects  int    `json:"objects"`
	Replayed bool   `json:"replayed"` // every source object has been answered since it started
	Guard    *Guard `json:"guard,omitempty"`
}

// Drivers returns how the drivers stand, by name.
func (e *Engine) Drivers() []DriverStatus {
	versions := map[string]string{}
	for _, w := range e.all() {
		if info := w.info.Load(); info != nil {
			versions[w.name] = info.Version
		}
	}
	var list []DriverStatus
	e.state.View(func(tx *state.LoopTx) {
		counts := map[string]int{}
		for _, o := range tx.Objects() {
			counts[o.Request.Driver]++
		}
		for name, d := range tx.Drivers() {
			st := DriverStatus{Name: name, Version: versions[name], Objects: counts[name], Replayed: tx.Heard(d)}
			if d.Guarded {
				st.Guard = &Guard{name, d.Held, d.Allowed}
			}
			list = append(list, st)
		}
	})
	slices.SortFunc(list, func(a, b DriverStatus) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Changes counts what may have changed of all that is reported here, without waiting for a lock.
func (e *Engine) Changes() uint64 { return e.state.Changes() }

// Counts returns how many objects are in each phase.
func (e *Engine) Counts() map[state.Phase]int {
	counts := map[state.Phase]int{}
	e.state.View(func(tx *state.LoopTx) {
		for _, o := range tx.Objects() {
			if o.ID.Driver != state.Shared {
				counts[o.Phase]++
			}
		}
	})
	return counts
}
