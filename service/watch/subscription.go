// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kuryr/raven/drivers"
)

// Subscription is one driver's view of the caches. Its methods may be called at any time, by any goroutine.
type Subscription struct {
	manager *Manager
	driver  string
	wake    func(Key, Reason)
	order   []*view
	views   map[string]*view
	needs   needsIndex

	mu     sync.RWMutex // held for reading while wake is called
	closed bool
}

// view is one watch of one subscription: an informer seen through the driver's fields.
type view struct {
	subscription *Subscription
	watch        drivers.Watch
	informer     *informer
	// fields are the driver's fields, normalized; keep are the kept keys, sorted.
	fields, keep []string
	// selectors are those that the objects hold; nil: the watch does not say where. The informer's lock guards them.
	selectors *selectorIndex

	// started is guarded by the informer's lock. It says that the cache holds what the view reads.
	started bool
}

func newView(s *Subscription, w drivers.Watch, keep []string) *view {
	v := &view{subscription: s, watch: w, fields: normalizedFields(w.Fields), keep: normalized(keep)}
	if len(w.Selectors) > 0 {
		v.selectors = newSelectorIndex()
	}
	return v
}

func (v *view) projection() *projection {
	return &projection{
		fields: v.fields, keep: v.keep, apiVersion: v.watch.GVR.GroupVersion().String(), kind: v.watch.Kind,
	}
}

func (v *view) key(e *entry) Key { return Key{v.watch.Name, e.namespace, e.name} }

// wakeup is one call of a subscription's wake, to be made when no lock is held.
type wakeup struct {
	subscription *Subscription
	key          Key
	reason       Reason
}

func deliver(wakeups []wakeup) {
	for _, w := range wakeups {
		w.subscription.deliver(w.key, w.reason)
	}
}

func (s *Subscription) deliver(key Key, reason Reason) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !s.closed {
		s.wake(key, reason)
	}
}

// WaitSynced returns nil once every watch is synced, optional ones that are not served included. Otherwise it returns
// a *SyncError after the configured timeout, at once where waiting is no use (401, 403, 404), or the context's error.
// It may be called again; the watches go on being tried meanwhile.
func (s *Subscription) WaitSynced(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := s.manager.config.Clock.NewTimer(s.manager.config.SyncTimeout)
	defer timer.Stop()
	over := make(chan struct{})
	waiting := make(chan struct{})
	go func() {
		defer close(waiting)
		select {
		case <-timer.C():
			close(over)
		case <-ctx.Done():
		}
	}()
	defer func() { cancel(); <-waiting }()
	var failures []*Error
	for _, v := range s.order {
		failed, err := v.informer.waitSynced(ctx, over, v)
		if err != nil {
			return err
		}
		if failed != nil {
			failures = append(failures, v.error(failed))
		}
	}
	if failures != nil {
		return &SyncError{Failures: failures}
	}
	return nil
}

func (v *view) error(f *failure) *Error {
	return &Error{
		Driver: v.subscription.driver, Watch: v.watch.Name, GVR: v.watch.GVR, Namespace: v.watch.Namespace,
		Source: v.watch.Source, Cause: f.cause, Verbs: f.verbs, FieldSelector: v.watch.FieldSelector, Err: f.err,
	}
}

// Status returns the state of every watch, in the order in which they were declared.
func (s *Subscription) Status() []Status {
	all := make([]Status, 0, len(s.order))
	for _, v := range s.order {
		all = append(all, v.informer.status(v))
	}
	return all
}

// Get returns an object as the driver sees it, and what the core needs to know of it. An object of a source watch stays
// Present as it was last seen while the watch is refused; Status tells that. The object must not be changed.
func (s *Subscription) Get(key Key) (drivers.Object, Meta, State) {
	v := s.views[key.Watch]
	if v == nil {
		return drivers.Object{}, Meta{}, Unknown
	}
	e, state := v.informer.get(v, key.Namespace, key.Name)
	if e == nil {
		return drivers.Object{}, Meta{}, state
	}
	return v.object(e), v.meta(e), state
}

func (v *view) object(e *entry) drivers.Object {
	return drivers.Object{Watch: v.watch.Name, Raw: e.rawFor(v.fields)}
}

func (v *view) meta(e *entry) Meta {
	var created time.Time
	if e.created != 0 {
		created = time.Unix(e.created, 0)
	}
	return Meta{
		Created: created, UID: e.uid, Generation: e.generation, ResourceVersion: e.resourceVersion, Deleting: e.deleting,
		Annotations: e.annotations.pick(v.keep), Labels: e.labels.pick(v.keep), Owned: e.owners(),
	}
}

// Keys returns the keys of every object of a watch, unsorted. The second result says whether that is all there is:
// the cache was filled, and the watch works now. Nothing may be concluded from a key's absence without it.
func (s *Subscription) Keys(watch string) ([]Key, bool) {
	v := s.views[watch]
	if v == nil {
		return nil, false
	}
	var keys []Key
	complete := v.informer.each(v, func(e *entry) { keys = append(keys, v.key(e)) })
	return keys, complete
}

// UIDs returns the keys of every object of a watch by UID; the second result is that of Keys.
func (s *Subscription) UIDs(watch string) (map[string]Key, bool) {
	v := s.views[watch]
	if v == nil {
		return nil, false
	}
	uids := map[string]Key{}
	complete := v.informer.each(v, func(e *entry) { uids[e.uid] = v.key(e) })
	return uids, complete
}

// Answer returns what a need asks for, in the order of namespace and name. It is Unknown while the watch is not
// synced or is refused, for a watch that was not declared, for a namespace outside the watch's own, and for a
// selector that cannot be read. A change after Answer wakes the owner only if the need was remembered before: call
// Remember first.
func (s *Subscription) Answer(need drivers.Need) ([]drivers.Object, State) {
	v := s.views[need.Watch]
	if v == nil || (v.watch.Namespace != "" && need.Namespace != "" && need.Namespace != v.watch.Namespace) {
		return nil, Unknown
	}
	if need.Name != "" {
		e, state := v.informer.answerName(v, need.Namespace, need.Name)
		if e == nil {
			return nil, state
		}
		return []drivers.Object{v.object(e)}, state
	}
	selector, err := labels.Parse(need.Selector)
	if err != nil {
		s.manager.config.Logger.Warn("a need has a selector that cannot be read",
			"driver", s.driver, "watch", need.Watch, "selector", need.Selector, "error", err)
		return nil, Unknown
	}
	if need.Selects != (drivers.Subject{}) {
		subject, err := need.Selects.Parse()
		if err != nil || v.selectors == nil {
			s.manager.config.Logger.Warn("a need cannot be answered: its labels cannot be read, or its watch has no selectors",
				"driver", s.driver, "need", need.String(), "error", err)
			return nil, Unknown
		}
		return v.informer.answerSelects(v, need, selector, subject)
	}
	entries, state := v.informer.answerSelector(v, need.Namespace, selector)
	return v.objects(entries), state
}

// objects returns what the driver sees of entries, in the order of namespace and name.
func (v *view) objects(entries []*entry) []drivers.Object {
	slices.SortFunc(entries, func(a, b *entry) int {
		if c := strings.Compare(a.namespace, b.namespace); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	objects := make([]drivers.Object, 0, len(entries))
	for _, e := range entries {
		objects = append(objects, v.object(e))
	}
	return objects
}

// Remember replaces what an owner needs; nothing forgets it. From then on the owner is woken when such an object
// comes, goes or changes within the driver's fields, and when a watch that it needs becomes known.
func (s *Subscription) Remember(owner Key, needs []drivers.Need) { s.needs.remember(owner, needs) }

// Close ends the subscription: wake is not called any more once it returns, and informers that no other subscription
// uses have ended.
func (s *Subscription) Close() {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return
	}
	for _, i := range s.manager.release(s.order) {
		i.runs.Wait()
	}
}
