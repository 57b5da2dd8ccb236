package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack/neutron"
	"github.com/kuryr/raven/service/plan"
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
	Driver    string     `json:"driver"`
	Kind      string     `json:"kind"`
	Namespace string     `json:"namespace,omitempty"`
	Name      string     `json:"name"`
	UID       string     `json:"uid"`
	State     Phase      `json:"state"`
	Reasons   []string   `json:"reasons,omitempty"`
	Since     time.Time  `json:"since"`
	NextTry   *time.Time `json:"nextTry,omitempty"`
	Tries     int        `json:"tries,omitempty"`
	Deleted   bool       `json:"deleted,omitempty"` // the object is gone, what it had is going
	// HandoverGap is for how many seconds nobody served a Service when it was handed over from one kind of load balancers to the other.
	HandoverGap float64 `json:"handoverGap,omitempty"`
	// Messages are the driver's diagnostics.
	Messages  []string         `json:"messages,omitempty"`
	Resources []ResourceStatus `json:"resources"`
}

// Filter selects objects. Empty fields select everything.
type Filter struct {
	Driver, Kind, Namespace, Name string
	State                         Phase
}

// Objects returns what became of the source objects, ordered by kind, namespace, name and driver.
func (e *Engine) Objects(f Filter) []ObjectStatus {
	s := e.store
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]ObjectStatus, 0, len(s.owners))
	for _, o := range s.owners {
		if !f.selects(o) {
			continue
		}
		list = append(list, s.statusOf(o))
	}
	slices.SortFunc(list, func(a, b ObjectStatus) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.UID, b.UID))
	})
	return list
}

func (f Filter) selects(o *owner) bool {
	match := func(want, have string) bool { return want == "" || want == have }
	namespace := o.target.namespace
	if o.target.watch.Kind == "Namespace" && namespace == "" {
		namespace = o.target.name // a namespace is in itself
	}
	return match(f.Driver, o.item.driver) && match(f.Kind, o.target.watch.Kind) && match(f.Namespace, namespace) &&
		match(f.Name, o.target.name) && match(string(f.State), string(o.phase))
}

func (s *store) statusOf(o *owner) ObjectStatus {
	st := ObjectStatus{
		Driver: o.item.driver, Kind: o.target.watch.Kind, Namespace: o.target.namespace, Name: o.target.name, UID: o.target.uid,
		State: o.phase, Reasons: o.reasons, Since: o.since, Tries: o.tries, Deleted: o.gone,
		HandoverGap: o.gap.Seconds(),
	}
	if o.item.driver == frozenDriver {
		st.Driver = o.id.Driver
	}
	if !o.nextTry.IsZero() {
		next := o.nextTry
		st.NextTry = &next
	}
	if o.doing != "" {
		st.Reasons = append([]string{o.doing}, o.reasons...)
		if o.phase == Done {
			st.State = Pending
		}
	} else if o.phase == Waiting {
		st.Reasons = append(slices.Clone(o.reasons), s.rootsOf(o)...)
	}
	for _, d := range o.set.Diagnostics {
		st.Messages = append(st.Messages, fmt.Sprintf("%s: %s", d.Severity, d.Message))
	}
	for _, r := range s.cloud.owned(o.id) {
		st.Resources = append(st.Resources, resourceStatus(r, false))
	}
	for _, r := range o.set.Resources {
		if r.Claim == "" {
			continue
		}
		if shared, ok := s.find(plan.Owner{Driver: sharedDriver}, r.Spec.Kind(), r.Claim); ok {
			st.Resources = append(st.Resources, resourceStatus(shared, true))
		}
	}
	return st
}

// rootsOf says how those stand for whose resources an owner waits, where they are not done themselves.
func (s *store) rootsOf(o *owner) []string {
	shared := s.owners[plan.Owner{Driver: sharedDriver}]
	roots := map[*owner]bool{}
	for _, key := range o.blocked {
		switch key.what {
		case "claim":
			roots[shared] = true
		case "gone": // which may take long where a provider fails
			if lb := s.cloud.entries[resourceKey{drivers.KindLoadBalancer, key.name}]; lb != nil {
				roots[s.owners[lb.Identity.Owner]] = true
			}
		case "role":
			for e := range s.roles[key.role] {
				root := s.owners[e.owner]
				if root != nil && claimOf(root.set, e.name) != "" {
					root = shared
				}
				roots[root] = true
			}
		}
	}
	var texts []string
	for root := range roots {
		if root == nil || root == o || root.phase == Done {
			continue
		}
		why := root.doing
		if why == "" && len(root.reasons) > 0 {
			why = root.reasons[0]
		}
		texts = append(texts, fmt.Sprintf("%s is %s: %s", root.target, root.phase, why))
	}
	return sorted(texts)
}

func resourceStatus(r plan.Observed, shared bool) ResourceStatus {
	name, _ := r.Attrs["name"].(string)
	return ResourceStatus{
		Kind: r.Kind, Name: name, ID: r.ID, Role: strings.TrimPrefix(r.Identity.Name, neutron.InterfacePrefix), Shared: shared, Status: r.Status, Attrs: r.Attrs,
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
	e.runMu.Lock()
	versions := map[string]string{}
	for name, w := range e.watchers {
		if info := w.info.Load(); info != nil {
			versions[name] = info.Version
		}
	}
	e.runMu.Unlock()
	s := e.store
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[string]int{}
	for _, o := range s.owners {
		counts[o.item.driver]++
	}
	list := make([]DriverStatus, 0, len(s.drivers))
	for name, d := range s.drivers {
		st := DriverStatus{Name: name, Version: versions[name], Objects: counts[name], Replayed: s.heard(d)}
		if d.guarded {
			st.Guard = &Guard{name, d.held, d.allowed}
		}
		list = append(list, st)
	}
	slices.SortFunc(list, func(a, b DriverStatus) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Counts returns how many objects are in each phase.
func (e *Engine) Counts() map[Phase]int {
	s := e.store
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[Phase]int{}
	for _, o := range s.owners {
		if o.id.Driver != sharedDriver {
			counts[o.phase]++
		}
	}
	return counts
}
