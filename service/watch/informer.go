// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// informer is one cache and the runs that fill it. A run lists and watches with one projection; when a later view
// needs more, a run with a wider projection is begun beside the current one, and takes its place once it has listed:
//
//	            ensureRun            first list done
//	(nothing) ───────────▶ pending ───────────────▶ current ──wider run current, or no view left──▶ ended
type informer struct {
	key    informerKey
	config Config
	log    *slog.Logger

	mu      sync.RWMutex
	views   []*view
	objects map[string]map[string]*entry // namespace → name
	count   int
	current *run // the run whose first list was done last
	newest  *run // the run begun last
	absent  bool // the API server does not serve the resource
	listing *failure
	watches *failure
	last    time.Time // of the last event
	updated chan struct{}

	runs sync.WaitGroup
}

// run is one reflector's life.
type run struct {
	spec   *projection
	number int
	cancel context.CancelFunc
}

func newInformer(config Config, key informerKey) *informer {
	return &informer{
		key: key, config: config, objects: map[string]map[string]*entry{}, updated: make(chan struct{}),
		log: config.Logger.With("resource", resourceText(key.gvr), "namespace", key.namespace),
	}
}

// attach adds a view and returns the keys to wake, which are all if the cache already holds what the view reads.
func (i *informer) attach(v *view) []wakeup {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.views = append(slices.Clone(i.views), v)
	if i.current != nil && i.current.spec.covers(v.projection()) {
		return i.begin(v, nil)
	}
	return nil
}

// detach removes a view and returns how many are left.
func (i *informer) detach(v *view) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.views = slices.DeleteFunc(slices.Clone(i.views), func(other *view) bool { return other == v })
	return len(i.views)
}

// ensureRun begins a run if none that was begun keeps what all views read. The Manager's lock is held.
func (i *informer) ensureRun(start starter) {
	i.mu.Lock()
	defer i.mu.Unlock()
	var want *projection
	for _, v := range i.views {
		if want == nil {
			want = v.projection()
			continue
		}
		want = want.union(v.projection())
	}
	if want == nil || (i.newest != nil && i.newest.spec.covers(want)) {
		return
	}
	r := &run{spec: want}
	if i.newest != nil {
		r.spec = want.union(i.newest.spec)
		r.number = i.newest.number + 1
		if i.newest != i.current {
			i.newest.cancel()
		}
	}
	i.newest = r
	i.runs.Add(1)
	r.cancel = start(func(ctx context.Context) {
		defer i.runs.Done()
		i.keepRunning(ctx, r)
	})
}

// stopRuns tells every run to end.
func (i *informer) stopRuns() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.current != nil {
		i.current.cancel()
	}
	if i.newest != nil {
		i.newest.cancel()
	}
}

// usable says whether answers may be drawn from the cache for a view. A lock is held.
func (i *informer) usable(v *view) bool {
	if i.absent {
		return v.watch.Optional
	}
	return v.started && !i.listing.denied() && !i.watches.denied()
}

// failing is why the watch does not work now; nil when it does. A lock is held.
func (i *informer) failing() *failure {
	switch {
	case i.listing.denied() && i.watches.denied() && i.listing.cause == i.watches.cause:
		both := *i.listing
		both.verbs = normalized(append(slices.Clone(both.verbs), i.watches.verbs...))
		return &both
	case i.listing != nil:
		return i.listing
	}
	return i.watches
}

// waitSynced waits until a view's cache is filled, or it is known why it will not be, or over. The error is the
// context's.
func (i *informer) waitSynced(ctx context.Context, over <-chan struct{}, v *view) (*failure, error) {
	for {
		i.mu.RLock()
		usable, failed, updated := i.usable(v), i.failing(), i.updated
		i.mu.RUnlock()
		if usable {
			return nil, nil
		}
		if failed != nil && failed.cause != Unreachable {
			return failed, nil
		}
		select {
		case <-updated:
		case <-over:
			if failed == nil {
				failed = &failure{cause: Unreachable, err: errNoAnswer}
			}
			timeout := fmt.Errorf("not synced after %s: %w", i.config.SyncTimeout, failed.err)
			return &failure{cause: Unreachable, err: timeout}, nil
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for watch %q of driver %q: %w", v.watch.Name, v.subscription.driver, ctx.Err())
		}
	}
}

func (i *informer) status(v *view) Status {
	i.mu.RLock()
	defer i.mu.RUnlock()
	s := Status{
		Watch: v.watch.Name, GVR: v.watch.GVR, Namespace: v.watch.Namespace, Source: v.watch.Source,
		Optional: v.watch.Optional, Synced: v.started || (i.absent && v.watch.Optional), Absent: i.absent, Objects: i.count,
		LastEvent: i.last,
	}
	if !i.last.IsZero() {
		s.LastEventAge = i.config.Clock.Since(i.last)
	}
	if failed := i.failing(); failed != nil && (!i.absent || !v.watch.Optional) {
		s.Cause, s.Error = failed.cause, v.error(failed).Error()
	}
	return s
}

// get returns an object for Get: a source object is what was last seen of it.
func (i *informer) get(v *view, namespace, name string) (*entry, State) {
	if !v.watch.Source {
		return i.answerName(v, namespace, name)
	}
	i.mu.RLock()
	defer i.mu.RUnlock()
	if e := i.objects[namespace][name]; e != nil && v.started {
		return e, Present
	}
	if v.started || i.usable(v) {
		return nil, Absent
	}
	return nil, Unknown
}

func (i *informer) answerName(v *view, namespace, name string) (*entry, State) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	if !i.usable(v) {
		return nil, Unknown
	}
	if e := i.objects[namespace][name]; e != nil && !i.absent {
		return e, Present
	}
	return nil, Absent
}

func (i *informer) answerSelector(v *view, namespace string, selector labels.Selector) ([]*entry, State) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	if !i.usable(v) {
		return nil, Unknown
	}
	if i.absent {
		return nil, Absent
	}
	var found []*entry
	for ns, objects := range i.objects {
		if namespace != "" && ns != namespace {
			continue
		}
		for _, e := range objects {
			if selector.Matches(e.labels) {
				found = append(found, e)
			}
		}
	}
	if len(found) == 0 {
		return nil, Absent
	}
	return found, Present
}

// each calls f for every object and says whether that is all there is.
func (i *informer) each(v *view, f func(*entry)) bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	if i.absent {
		return v.watch.Optional
	}
	if !v.started {
		return false
	}
	for _, objects := range i.objects {
		for _, e := range objects {
			f(e)
		}
	}
	return i.failing() == nil
}
