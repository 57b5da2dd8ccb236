// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// Follow tells of every change of a resource's objects, without HTTP and without copies: f is called for each object
// that there is (Added) and then for each change, in order, in one goroutine that stop ends and waits for, as Close
// does. Events that were forgotten before f got to them are made up for by telling of every object again; only
// deletions are lost then. f must not change the object, nor call stop.
func (a *API) Follow(
	gvr schema.GroupVersionResource, f func(kind apiwatch.EventType, object map[string]any),
) (stop func(), err error) {
	v, err := a.viewOf(gvr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(a.ctx)
	w := &watcher{wake: make(chan struct{}, 1), res: v.res}
	a.mu.Lock()
	v.res.watchers[w] = struct{}{}
	w.initial, _ = v.res.snapshotLocked("", 0)
	w.position = a.version
	a.mu.Unlock()
	ended := make(chan struct{})
	a.tasks.Go(func() {
		defer close(ended)
		defer a.closeWatch(w)
		for _, it := range w.initial {
			f(apiwatch.Added, v.show(it.object))
		}
		w.initial = nil
		for {
			a.follow(w, func(kind apiwatch.EventType, it *item) { f(kind, v.show(it.object)) })
			select {
			case <-ctx.Done():
				return
			case <-w.wake:
			}
		}
	})
	return func() { cancel(); <-ended }, nil
}

// follow tells what changed since the last call, or of everything where that is forgotten.
func (a *API) follow(w *watcher, f func(apiwatch.EventType, *item)) {
	a.mu.RLock()
	events, ok := w.res.sinceLocked(w.position)
	w.position = a.version
	var items []*item
	if !ok {
		items, _ = w.res.snapshotLocked("", 0)
	}
	a.mu.RUnlock()
	for _, it := range items {
		f(apiwatch.Modified, it)
	}
	for _, ev := range events {
		f(apiwatch.EventType(ev.kind), ev.item)
	}
}
