// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"fmt"

	"k8s.io/client-go/tools/cache"
)

// store is what a reflector writes into: the informer's cache, seen by one run. Before a run's first list is done,
// and once a newer run took its place, what it brings is left out.
type store struct {
	informer *informer
	run      *run
}

var _ cache.TransformingStore = store{}

// Transformer lets the reflector trim objects while it streams the first list.
func (s store) Transformer() cache.TransformFunc {
	return func(object any) (any, error) { return newEntry(object, s.run.spec) }
}

// Add implements cache.ReflectorStore.
func (s store) Add(object any) error { return s.put(object) }

// Update implements cache.ReflectorStore.
func (s store) Update(object any) error { return s.put(object) }

// Resync implements cache.ReflectorStore. Nothing is re-delivered: a full reconcile takes all keys from Keys.
func (s store) Resync() error { return nil }

// Bookmark notes that the API server said something.
func (s store) Bookmark(string) error {
	s.informer.mu.Lock()
	defer s.informer.mu.Unlock()
	s.informer.last = s.informer.config.Clock.Now()
	return nil
}

func (s store) put(object any) error {
	e, err := newEntry(object, s.run.spec)
	if err != nil {
		return err
	}
	i := s.informer
	i.mu.Lock()
	i.last = i.config.Clock.Now()
	if i.current != s.run {
		i.mu.Unlock()
		return nil
	}
	wakeups := i.change(i.set(e), e, nil)
	i.mu.Unlock()
	deliver(wakeups)
	return nil
}

// Delete implements cache.ReflectorStore.
func (s store) Delete(object any) error {
	e, err := newEntry(object, s.run.spec)
	if err != nil {
		return err
	}
	i := s.informer
	i.mu.Lock()
	i.last = i.config.Clock.Now()
	if i.current != s.run {
		i.mu.Unlock()
		return nil
	}
	var wakeups []wakeup
	if old := i.unset(e.namespace, e.name); old != nil {
		wakeups = i.change(old, nil, nil)
	}
	i.mu.Unlock()
	deliver(wakeups)
	return nil
}

// Replace implements cache.ReflectorStore: a first list, or a list after a watch that could not go on. What is not in
// it is gone.
func (s store) Replace(objects []any, _ string) error {
	entries := make(map[string]map[string]*entry)
	for _, object := range objects {
		e, err := newEntry(object, s.run.spec)
		if err != nil {
			return fmt.Errorf("taking in a list of %s: %w", resourceText(s.informer.key.gvr), err)
		}
		if entries[e.namespace] == nil {
			entries[e.namespace] = map[string]*entry{}
		}
		entries[e.namespace][e.name] = e
	}
	s.informer.replace(s.run, entries)
	return nil
}

func (i *informer) replace(r *run, entries map[string]map[string]*entry) {
	i.mu.Lock()
	if i.current != nil && i.current.number > r.number {
		i.mu.Unlock()
		return
	}
	if i.current != nil && i.current != r {
		i.current.cancel()
	}
	i.current = r
	i.last = i.config.Clock.Now()
	before := i.usableViews()
	i.absent, i.listing = false, nil
	wakeups := i.diff(entries)
	for _, v := range i.views {
		if !v.started && r.spec.covers(v.projection()) {
			wakeups = i.begin(v, wakeups)
		}
	}
	wakeups = i.nowUsable(before, wakeups)
	i.tell()
	i.mu.Unlock()
	deliver(wakeups)
}

// vanish notes that the resource is not served. To views that allow that, all its objects are gone; the others keep
// what was last seen.
func (i *informer) vanish() {
	i.mu.Lock()
	before := i.usableViews()
	i.absent = true
	var wakeups []wakeup
	for _, v := range i.views {
		if !v.started || !v.watch.Optional {
			continue
		}
		v.started = false // what comes when the resource is served again is new to the view
		for _, objects := range i.objects {
			for _, e := range objects {
				wakeups = v.change(e, nil, wakeups)
			}
		}
	}
	wakeups = i.nowUsable(before, wakeups)
	i.mu.Unlock()
	deliver(wakeups)
}

// diff makes the cache hold exactly the entries. The lock is held.
func (i *informer) diff(entries map[string]map[string]*entry) []wakeup {
	var wakeups []wakeup
	for namespace, objects := range i.objects {
		for name := range objects {
			if entries[namespace][name] == nil {
				wakeups = i.change(i.unset(namespace, name), nil, wakeups)
			}
		}
	}
	for _, objects := range entries {
		for _, e := range objects {
			wakeups = i.change(i.set(e), e, wakeups)
		}
	}
	return wakeups
}

// set puts an entry into the cache and returns what was there. The lock is held.
func (i *informer) set(e *entry) *entry {
	objects := i.objects[e.namespace]
	if objects == nil {
		objects = map[string]*entry{}
		i.objects[e.namespace] = objects
	}
	old := objects[e.name]
	if old == nil {
		i.count++
	}
	objects[e.name] = e
	return old
}

// unset takes an object out of the cache and returns what was there. The lock is held.
func (i *informer) unset(namespace, name string) *entry {
	old := i.objects[namespace][name]
	if old == nil {
		return nil
	}
	i.count--
	delete(i.objects[namespace], name)
	if len(i.objects[namespace]) == 0 {
		delete(i.objects, namespace)
	}
	return old
}

// change adds whom a change concerns; nil is an object that does not exist. The lock is held.
func (i *informer) change(old, now *entry, wakeups []wakeup) []wakeup {
	for _, v := range i.views {
		if v.started {
			wakeups = v.change(old, now, wakeups)
		}
	}
	return wakeups
}

// change adds whom a change concerns:
//
//	old      now      wakes the source    wakes who needs it
//	absent   present  added               by name, by selector
//	present  absent   deleted             by name, by selector
//	present  present  recreated, if the UID differs: as both of the above
//	                  updated, if fields or kept keys differ
//	                                      by name and selector, if fields differ
//	                                      by selector, if labels came to match or ceased to
func (v *view) change(old, now *entry, wakeups []wakeup) []wakeup {
	var reason Reason
	changed := true
	switch {
	case old == nil:
		reason = Added
	case now == nil:
		reason = Deleted
	case old.uid != now.uid:
		reason = Recreated
	default:
		changed = !sameFields(old, now, v.fields)
		if changed || !sameKept(old, now, v.keep) {
			reason = Updated
		}
	}
	s := v.subscription
	if v.watch.Source && reason != "" {
		e := now
		if e == nil {
			e = old
		}
		wakeups = append(wakeups, wakeup{s, v.key(e), reason})
	}
	affected := v.reselect(old, now, changed)
	for owner := range affected {
		wakeups = append(wakeups, wakeup{s, owner, NeedChanged})
	}
	for owner := range s.needs.affected(v.watch.Name, old, now, changed) {
		if affected[owner] {
			continue
		}
		wakeups = append(wakeups, wakeup{s, owner, NeedChanged})
	}
	return wakeups
}

// begin makes a view see the cache, and wakes all its keys and all who need something of it. The lock is held.
func (i *informer) begin(v *view, wakeups []wakeup) []wakeup {
	v.started = true
	for _, objects := range i.objects {
		for _, e := range objects {
			wakeups = v.change(nil, e, wakeups)
		}
	}
	return wakeups
}

// usableViews returns the views from which answers may be drawn. The lock is held.
func (i *informer) usableViews() map[*view]bool {
	usable := map[*view]bool{}
	for _, v := range i.views {
		usable[v] = i.usable(v)
	}
	return usable
}

// nowUsable wakes those whose needs could not be answered before and can be now. The lock is held.
func (i *informer) nowUsable(before map[*view]bool, wakeups []wakeup) []wakeup {
	for _, v := range i.views {
		if before[v] || !i.usable(v) {
			continue
		}
		for _, owner := range v.subscription.needs.of(v.watch.Name) {
			wakeups = append(wakeups, wakeup{v.subscription, owner, NeedSynced})
		}
	}
	return wakeups
}

// tell wakes the waiters. The lock is held.
func (i *informer) tell() {
	close(i.updated)
	i.updated = make(chan struct{})
}
