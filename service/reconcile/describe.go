// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"maps"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/state"
	"github.com/kuryr/raven/service/watch"
)

// Description is all that is known of one source object of one driver.
type Description struct {
	ObjectStatus
	// Kubernetes is what the object carries of what Raven writes; absent if the object is gone.
	Kubernetes *Carried `json:"kubernetes,omitempty"`
	// Needs are the other objects that its translation depends on.
	Needs []NeedStatus `json:"needs,omitempty"`
	// Wants are the resources that the driver wants for it and that are not there.
	Wants []WantStatus `json:"wants,omitempty"`
	// Reconciles and Events are the last ones, the latest first: as far as this process remembers.
	Reconciles []Reconciled `json:"reconciles,omitempty"`
	Events     []Told       `json:"events,omitempty"`
	// Page is the address of the object's page, where the daemon serves one.
	Page string `json:"page,omitempty"`
}

// Carried is what a source object carries in the cluster, as the cache has it.
type Carried struct {
	Annotations map[string]string `json:"annotations,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	// Addresses are those of status.loadBalancer.ingress.
	Addresses []string `json:"addresses,omitempty"`
	Deleting  bool     `json:"deleting,omitempty"`
}

// NeedStatus is an object, or a selection of objects, that a translation asked for.
type NeedStatus struct {
	Watch     string `json:"watch"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	Selector  string `json:"selector,omitempty"`
	State     string `json:"state"`   // present, absent or unknown: the watch is not synced, or not allowed
	Objects   int    `json:"objects"` // that it names
}

// WantStatus is a resource that does not exist yet.
type WantStatus struct {
	Kind string `json:"kind"`
	Role string `json:"role"` // its logical name
}

// Describe returns all that is known of the source objects that a filter selects, in the order of Objects.
func (e *Engine) Describe(f Filter) []Description {
	list := []Description{}
	asked := map[string]askedFor{}
	e.state.View(func(tx *state.LoopTx) {
		for _, o := range tx.Objects() {
			if f.selects(o) && o.ID.Driver != state.Shared {
				st := statusOf(tx, o, e.clock.Now())
				list = append(list, Description{ObjectStatus: st, Wants: wantsOf(o, st)})
				d := &list[len(list)-1]
				d.Reconciles, d.Events = e.history.of(o.ID)
				asked[d.key()] = askedFor{o.Request, o.Needs}
			}
		}
	})
	slices.SortFunc(list, func(a, b Description) int { return strings.Compare(a.key(), b.key()) })
	for i := range list {
		e.describeSource(&list[i], asked[list[i].key()])
	}
	return list
}

// askedFor is what a translation asked for, and for which key.
type askedFor struct {
	state.Request
	needs []drivers.Need
}

func (d *Description) key() string {
	return strings.Join([]string{d.Kind, d.Namespace, d.Name, d.Driver, d.UID}, "/")
}

// wantsOf are the resources of an object's Set that are not among those that exist.
func wantsOf(o *state.Object, st ObjectStatus) (list []WantStatus) {
	there := map[WantStatus]bool{}
	for _, r := range st.Resources {
		there[WantStatus{string(r.Kind), r.Role}] = true
	}
	for _, r := range o.Set.Resources {
		want := WantStatus{string(r.Spec.Kind()), r.Name}
		if r.Claim != "" {
			want.Role = r.Claim
		}
		if !there[want] && r.Spec.Kind() != drivers.KindLookup {
			list = append(list, want)
		}
	}
	return list
}

// describeSource adds what the driver's watches say.
func (e *Engine) describeSource(d *Description, asked askedFor) {
	e.runMu.Lock()
	w := e.watchers[asked.Driver]
	e.runMu.Unlock()
	if w == nil {
		return
	}
	if _, meta, known := w.source.Get(asked.Key); known == watch.Present && meta.UID == d.UID {
		c := &Carried{Annotations: maps.Clone(meta.Annotations), Labels: maps.Clone(meta.Labels), Deleting: meta.Deleting}
		c.Addresses = strings.Fields(c.Annotations[watch.KeepIngress])
		delete(c.Annotations, watch.KeepIngress)
		d.Kubernetes = c
	}
	for _, need := range asked.needs {
		objects, known := w.source.Answer(need)
		d.Needs = append(d.Needs, NeedStatus{
			Watch: need.Watch, Namespace: need.Namespace, Name: need.Name, Selector: need.Selector,
			State: known.String(), Objects: len(objects),
		})
	}
}
