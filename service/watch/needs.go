// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kuryr/raven/drivers"
)

// needsIndex is the reverse index of one subscription: which owners need an object.
type needsIndex struct {
	mu       sync.Mutex
	owners   map[Key][]drivers.Need
	names    map[Key]map[Key]bool // needed object → owners
	selected map[string]map[drivers.Need]*selection
	subjects map[string]*subjectNeeds
}

// selection is one need by selector, and who has it.
type selection struct {
	selector labels.Selector
	owners   map[Key]bool
}

// remember replaces the needs of an owner.
func (x *needsIndex) remember(owner Key, needs []drivers.Need) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, need := range x.owners[owner] {
		x.forget(owner, need)
	}
	if len(needs) == 0 {
		delete(x.owners, owner)
		return
	}
	if x.owners == nil {
		x.owners, x.names = map[Key][]drivers.Need{}, map[Key]map[Key]bool{}
		x.selected = map[string]map[drivers.Need]*selection{}
	}
	x.owners[owner] = append([]drivers.Need(nil), needs...)
	for _, need := range needs {
		x.add(owner, need)
	}
}

func (x *needsIndex) add(owner Key, need drivers.Need) {
	if need.Name != "" {
		key := Key{need.Watch, need.Namespace, need.Name}
		if x.names[key] == nil {
			x.names[key] = map[Key]bool{}
		}
		x.names[key][owner] = true
		return
	}
	if need.Selects != (drivers.Subject{}) {
		x.addSubject(owner, need)
		return
	}
	selector, err := labels.Parse(need.Selector)
	if err != nil {
		selector = labels.Nothing() // Answer says Unknown to it
	}
	if x.selected[need.Watch] == nil {
		x.selected[need.Watch] = map[drivers.Need]*selection{}
	}
	s := x.selected[need.Watch][need]
	if s == nil {
		s = &selection{selector: selector, owners: map[Key]bool{}}
		x.selected[need.Watch][need] = s
	}
	s.owners[owner] = true
}

func (x *needsIndex) forget(owner Key, need drivers.Need) {
	if need.Name != "" {
		key := Key{need.Watch, need.Namespace, need.Name}
		delete(x.names[key], owner)
		if len(x.names[key]) == 0 {
			delete(x.names, key)
		}
		return
	}
	if need.Selects != (drivers.Subject{}) {
		x.forgetSubject(owner, need)
		return
	}
	s := x.selected[need.Watch][need]
	if s == nil {
		return
	}
	delete(s.owners, owner)
	if len(s.owners) == 0 {
		delete(x.selected[need.Watch], need)
	}
}

// affected returns who needs an object that was old and is new now; nil is none. changed says whether it changed in
// what the driver reads: if not, only coming into or leaving a selection counts.
func (x *needsIndex) affected(watch string, old, now *entry, changed bool) map[Key]bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.owners) == 0 {
		return nil
	}
	either := now
	if either == nil {
		either = old
	}
	affected := map[Key]bool{}
	if changed {
		maps.Copy(affected, x.names[Key{watch, either.namespace, either.name}])
	}
	for need, s := range x.selected[watch] {
		if need.Namespace != "" && need.Namespace != either.namespace {
			continue
		}
		was := old != nil && s.selector.Matches(old.labels)
		is := now != nil && s.selector.Matches(now.labels)
		if was != is || (is && changed) {
			maps.Copy(affected, s.owners)
		}
	}
	return affected
}

// of returns every owner that needs anything of a watch.
func (x *needsIndex) of(watch string) []Key {
	x.mu.Lock()
	defer x.mu.Unlock()
	var owners []Key
	for owner, needs := range x.owners {
		for _, need := range needs {
			if need.Watch == watch {
				owners = append(owners, owner)
				break
			}
		}
	}
	return owners
}
