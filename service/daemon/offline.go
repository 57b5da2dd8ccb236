// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/watch"
	"github.com/kuryr/raven/service/writeback"
)

// The names that stand for a cluster and a project where there is none.
const (
	offlineCluster = "offline"
	offlineProject = "(none)"
)

// PlanOffline plans what would be made of objects if they were all of a cluster, in a cloud where nothing of it exists.
func (l *Settings) PlanOffline(ctx context.Context, objects []*unstructured.Unstructured) (_ DryRun, err error) {
	log := slog.New(slog.DiscardHandler) // what matters stands in the plan
	names := make([]string, 0, len(l.Programs))
	for _, p := range l.Programs {
		names = append(names, p.Name)
	}
	engine, err := newOfflineEngine(names, log)
	if err != nil {
		return DryRun{}, err
	}
	if err := engine.Observe(ctx); err != nil {
		return DryRun{}, err
	}
	watches := map[string][]drivers.Watch{}
	for _, p := range l.Programs {
		plugin, launched := l.Launch(ctx, p, log)
		if launched != nil {
			return DryRun{}, launched
		}
		defer func() { err = errors.Join(err, plugin.Stop(context.WithoutCancel(ctx))) }()
		if err := p.Authority.checkWatches(p.Name, plugin.Watches()); err != nil {
			return DryRun{}, err
		}
		watches[p.Name] = plugin.Watches()
		source, err := newFileSource(plugin.Watches(), objects)
		if err != nil {
			return DryRun{}, err
		}
		if err := engine.Add(p.Name, plugin, source); err != nil { //nolint:contextcheck // the engine does not run
			return DryRun{}, err
		}
	}
	planned, err := engine.DryRun(ctx)
	if err != nil {
		return DryRun{}, err
	}
	unread, err := Account(watches, objects)
	return DryRun{
		Cluster: offlineCluster, Project: offlineProject, Objects: planned, Unread: unread,
		Unchanged: unchanged(objects, planned, unread),
	}, err
}

// unchanged are the objects of which neither a change nor a reason is told.
func unchanged(objects []*unstructured.Unstructured, planned []reconcile.Planned, unread []Unread) []string {
	told := map[string]bool{}
	for _, p := range planned {
		told[p.Object] = true
	}
	for _, u := range unread {
		told[u.Object] = true
	}
	var list []string
	for _, o := range objects {
		if text := ObjectText(o); !told[text] {
			list = append(list, text)
		}
	}
	return list
}

// fileSource shows a driver the objects of files as a cluster would that holds them and nothing else.
type fileSource struct {
	watches []drivers.Watch
	all     []map[string]any
	objects map[watch.Key]*unstructured.Unstructured
}

func newFileSource(watches []drivers.Watch, objects []*unstructured.Unstructured) (*fileSource, error) {
	s := &fileSource{watches: watches, objects: map[watch.Key]*unstructured.Unstructured{}}
	for _, o := range objects {
		if o.GetUID() == "" {
			o.SetUID(types.UID("file-" + nameOfFile(o)))
		}
		s.all = append(s.all, o.Object)
		for _, w := range watches {
			matches, err := drivers.Matches(w, o.Object)
			if err != nil {
				return nil, err
			}
			if matches {
				s.objects[watch.Key{Watch: w.Name, Namespace: o.GetNamespace(), Name: o.GetName()}] = o
			}
		}
	}
	return s, nil
}

// Get implements reconcile.Source.
func (s *fileSource) Get(key watch.Key) (drivers.Object, watch.Meta, watch.State) {
	o := s.objects[key]
	if o == nil {
		return drivers.Object{}, watch.Meta{}, watch.Absent
	}
	for _, w := range s.watches {
		if w.Name != key.Watch {
			continue
		}
		if object, err := w.Object(o.Object); err == nil {
			return object, watch.Meta{
				UID: string(o.GetUID()), Deleting: o.GetDeletionTimestamp() != nil, Annotations: o.GetAnnotations(),
				Labels: o.GetLabels(),
			}, watch.Present
		}
	}
	return drivers.Object{}, watch.Meta{}, watch.Unknown
}

// Keys implements reconcile.Source.
func (s *fileSource) Keys(name string) ([]watch.Key, bool) {
	var keys []watch.Key
	for key := range s.objects {
		if key.Watch == name {
			keys = append(keys, key)
		}
	}
	return keys, true
}

// Answer implements reconcile.Source.
func (s *fileSource) Answer(need drivers.Need) ([]drivers.Object, watch.State) {
	found, err := drivers.Answer(s.watches, need, s.all)
	switch {
	case err != nil:
		return nil, watch.Unknown
	case len(found) == 0:
		return nil, watch.Absent
	}
	return found, watch.Present
}

// Remember implements reconcile.Source.
func (*fileSource) Remember(watch.Key, []drivers.Need) {}

// emptyCloud is a cloud where nothing of the cluster exists, and all that an operator names.
type emptyCloud struct{ kinds *plan.Kinds }

// Kinds implements backend.Backend.
func (c emptyCloud) Kinds() []plan.Descriptor { return c.kinds.List() }

// List implements backend.Backend.
func (emptyCloud) List(context.Context, string) ([]plan.Observed, error) { return nil, nil }

// Get implements backend.Backend.
func (emptyCloud) Get(context.Context, drivers.Kind, string) (plan.Observed, error) {
	return plan.Observed{}, errOffline
}

// Apply implements backend.Backend.
func (emptyCloud) Apply(context.Context, plan.Owner, *plan.Step) error { return errOffline }

func (emptyCloud) lookup(_ context.Context, kind drivers.Kind, idOrName string) (plan.Observed, error) {
	return plan.Observed{Kind: kind, ID: idOrName, Attrs: map[string]any{"id": idOrName, "name": idOrName}}, nil
}

var errOffline = errors.New("there is no cloud: this is a plan from files")

// noWriteback writes nothing anywhere.
type noWriteback struct{}

// Apply implements reconcile.Writeback.
func (noWriteback) Apply(context.Context, writeback.Target, string, map[string]string, map[string]string) error {
	return nil
}

// ApplyIngress implements reconcile.Writeback.
func (noWriteback) ApplyIngress(context.Context, writeback.Target, string, []string) error {
	return nil
}

// Event implements reconcile.Writeback.
func (noWriteback) Event(writeback.Target, drivers.Severity, string, string) {}

// nameOfFile is what tells an object without a UID from others.
func nameOfFile(o *unstructured.Unstructured) string {
	return fmt.Sprintf("%s-%s-%s", o.GetKind(), o.GetNamespace(), o.GetName())
}
