// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
)

// Manager owns the informers of all drivers. Two drivers with the same watch share one.
type Manager struct {
	config Config

	mu        sync.Mutex
	informers map[informerKey]*informer
	// start is nil before Run.
	start   starter
	stop    context.CancelFunc
	stopped bool

	running sync.WaitGroup
}

// starter runs a function in a goroutine that the Manager waits for, until what it returns is called or Run ends.
type starter func(func(context.Context)) context.CancelFunc

// informerKey is what makes two watches the same.
type informerKey struct {
	gvr                                     schema.GroupVersionResource
	namespace, labelSelector, fieldSelector string
}

// ErrStopped is returned for what is asked of a Manager that was stopped.
var ErrStopped = errors.New("the watches were stopped")

// New returns a Manager. Nothing is watched until Run.
func New(config Config) *Manager {
	return &Manager{config: config.withDefaults(), informers: map[informerKey]*informer{}}
}

// Run starts what was subscribed to and what will be, blocks until the context ends or Stop is called, and returns
// when every informer has ended. It is called once. Subscribing before Run saves replacing informers whose fields
// grow.
func (m *Manager) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := m.begin(ctx, cancel); err != nil {
		return err
	}
	<-ctx.Done()
	m.mu.Lock()
	m.stopped = true
	m.mu.Unlock()
	m.running.Wait()
	return nil
}

func (m *Manager) begin(ctx context.Context, cancel context.CancelFunc) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped || m.start != nil {
		return ErrStopped
	}
	m.stop = cancel
	m.start = func(f func(context.Context)) context.CancelFunc {
		ctx, cancel := context.WithCancel(ctx)
		m.running.Add(1)
		go func() {
			defer m.running.Done()
			defer cancel()
			f(ctx)
		}()
		return cancel
	}
	for _, i := range m.informers {
		i.ensureRun(m.start)
	}
	return nil
}

// Stop ends every informer and waits for them. It may be called at any time, more than once.
func (m *Manager) Stop() {
	m.mu.Lock()
	m.stopped = true
	stop := m.stop
	m.mu.Unlock()
	if stop != nil {
		stop()
	}
	m.running.Wait()
}

// Subscribe makes a driver's watches known. keep are the annotation and label keys that its outputs use: they are
// kept beside the fields that it reads, and a change of them wakes as well.
//
// wake is called for keys of source watches: the object changed within the driver's fields or the kept keys, it came
// or went, or a remembered need changed. It is called from the informers' goroutines and from Subscribe itself,
// possibly before Subscribe returns; it must be cheap, must not block and must not close the subscription. Putting
// the key into a queue is what it is for.
func (m *Manager) Subscribe(
	driver string, watches []drivers.Watch, keep []string, wake func(Key, Reason),
) (*Subscription, error) {
	if err := checkWatches(watches); err != nil {
		return nil, fmt.Errorf("driver %q: %w", driver, err)
	}
	s := &Subscription{manager: m, driver: driver, wake: wake, views: make(map[string]*view, len(watches))}
	for _, w := range watches {
		v := newView(s, w, keep)
		s.order = append(s.order, v)
		s.views[w.Name] = v
	}
	wakeups, err := m.attach(s.order)
	if err != nil {
		return nil, err
	}
	deliver(wakeups)
	return s, nil
}

func (m *Manager) attach(views []*view) ([]wakeup, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return nil, ErrStopped
	}
	var wakeups []wakeup
	for _, v := range views {
		key := informerKey{v.watch.GVR, v.watch.Namespace, v.watch.LabelSelector, v.watch.FieldSelector}
		if m.informers[key] == nil {
			m.informers[key] = newInformer(m.config, key)
		}
		v.informer = m.informers[key]
		wakeups = append(wakeups, v.informer.attach(v)...)
	}
	if m.start == nil {
		return wakeups, nil
	}
	for _, v := range views {
		v.informer.ensureRun(m.start)
	}
	return wakeups, nil
}

// release removes views and returns the informers that are not used any more, told to end.
func (m *Manager) release(views []*view) []*informer {
	m.mu.Lock()
	defer m.mu.Unlock()
	var ended []*informer
	for _, v := range views {
		if v.informer.detach(v) == 0 && m.informers[v.informer.key] == v.informer {
			delete(m.informers, v.informer.key)
			v.informer.stopRuns()
			ended = append(ended, v.informer)
		}
	}
	return ended
}

func checkWatches(watches []drivers.Watch) error {
	seen := map[string]bool{}
	for _, w := range watches {
		switch {
		case w.Name == "":
			return fmt.Errorf("a watch of %s has no name", resourceText(w.GVR))
		case seen[w.Name]:
			return fmt.Errorf("two watches are named %q", w.Name)
		case w.GVR.Resource == "" || w.GVR.Version == "":
			return fmt.Errorf("watch %q names no resource", w.Name)
		}
		if _, err := labels.Parse(w.LabelSelector); err != nil {
			return fmt.Errorf("watch %q: label selector %q: %w", w.Name, w.LabelSelector, err)
		}
		if err := checkSelectors(w); err != nil {
			return err
		}
		seen[w.Name] = true
	}
	return nil
}

// checkSelectors refuses paths to selectors that objects are trimmed of: nothing would ever be selected.
func checkSelectors(w drivers.Watch) error {
	for _, p := range w.Selectors {
		path := strings.ReplaceAll(p.Path, "[]", "")
		kept := len(w.Fields) == 0 || slices.ContainsFunc(w.Fields, func(field string) bool { return within(path, field) })
		if p.Path == "" || p.Namespaces == "" && p.Objects == "" || !kept {
			return fmt.Errorf("watch %q: selectors at %q (%q, %q): the path, one of the two, and a field that leads there "+
				"are needed", w.Name, p.Path, p.Namespaces, p.Objects)
		}
	}
	return nil
}
