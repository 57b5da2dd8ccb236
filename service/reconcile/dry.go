package reconcile

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/watch"
	"github.com/kuryr/raven/service/writeback"
)

// Planned is what would be done for one owner.
type Planned struct {
	Driver string      `json:"driver"`
	Object string      `json:"object"`
	Steps  []plan.Step `json:"steps,omitempty"`
	// Writes are the annotation and label keys that would be written on the object now; empty where they wait for steps.
	Writes []string `json:"writes,omitempty"`
	// Held counts deletions that the replay guard, or a missing opinion, would hold back.
	Held int `json:"held,omitempty"`
	// Problems say why there is no plan, or only a part of one.
	Problems []string `json:"problems,omitempty"`
}

// DryRun works out what Run would do now, and writes nothing. The engine must have observed and have its watchers; it must
// not be running.
func (e *Engine) DryRun(ctx context.Context) ([]Planned, error) {
	e.runMu.Lock()
	watchers := make([]*watcher, 0, len(e.watchers))
	for _, w := range e.watchers {
		watchers = append(watchers, w)
	}
	e.runMu.Unlock()
	slices.SortFunc(watchers, func(a, b *watcher) int { return cmp.Compare(a.name, b.name) })

	problems := map[plan.Owner][]string{}
	metas := map[plan.Owner]watch.Meta{}
	for _, w := range watchers {
		e.dryTranslate(ctx, w, problems, metas)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e.reconcileDryShared()
	return e.dryPlans(watchers, problems, metas), nil
}

// dryTranslate asks a driver about all its source objects, many at once, so that they travel in batches.
func (e *Engine) dryTranslate(
	ctx context.Context, w *watcher, problems map[plan.Owner][]string, metas map[plan.Owner]watch.Meta,
) {
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		slots = make(chan struct{}, 256)
	)
	for name := range w.sources {
		keys, _ := w.source.Keys(name)
		for _, key := range keys {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				object, meta, state := w.source.Get(key)
				if state != watch.Present {
					return
				}
				it := item{w.name, key}
				e.store.mu.Lock()
				o := e.store.ensureOwner(it, target{w.sources[key.Watch], key.Namespace, key.Name, meta.UID}, e.clock.Now())
				e.store.mu.Unlock()
				err := e.translate(ctx, w, o, object)
				e.answered(w, key, err)
				mu.Lock()
				defer mu.Unlock()
				metas[o.id] = meta
				if err != nil {
					problems[o.id] = append(problems[o.id], err.Error())
				}
			})
		}
	}
	wg.Wait()
}

// reconcileDryShared gives the shared owner its Set.
func (e *Engine) reconcileDryShared() {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	id := plan.Owner{Driver: sharedDriver}
	o := &owner{id: id, item: item{driver: sharedDriver}, hasSet: true, target: target{name: "resources"}}
	o.target.watch.Kind = "Shared"
	o.set, _ = e.store.sharedSet()
	e.store.owners[id] = o
}

func (e *Engine) dryPlans(
	watchers []*watcher, problems map[plan.Owner][]string, metas map[plan.Owner]watch.Meta,
) []Planned {
	byName := map[string]*watcher{}
	for _, w := range watchers {
		byName[w.name] = w
	}
	e.dryOrphans(watchers)
	e.store.mu.Lock()
	owners := make([]*owner, 0, len(e.store.owners))
	for _, o := range e.store.owners {
		owners = append(owners, o)
	}
	_, frozen := e.store.sharedSet()
	e.store.mu.Unlock()
	slices.SortFunc(owners, func(a, b *owner) int {
		return cmp.Or(cmp.Compare(a.item.driver, b.item.driver), cmp.Compare(a.target.String(), b.target.String()))
	})
	var list []Planned
	for _, o := range owners {
		p := Planned{Driver: o.item.driver, Object: o.target.String(), Problems: problems[o.id]}
		if o.hasSet || o.gone {
			var still map[string]string
			if o.id.Driver == sharedDriver {
				still = frozen
			}
			computed, out := e.plan(o, still)
			p.Steps, p.Held = computed.Steps, computed.Held
			p.Problems = append(p.Problems, out.conflicts...)
			if w := byName[o.item.driver]; w != nil && !o.gone && len(out.outputs.missing) == 0 {
				p.Writes = differing(w.manager, out.outputs, metas[o.id])
			}
		}
		if len(p.Steps)+len(p.Writes)+p.Held+len(p.Problems) > 0 {
			list = append(list, p)
		}
	}
	return list
}

// dryOrphans makes owners for what the sweeper would end.
func (e *Engine) dryOrphans(watchers []*watcher) {
	for _, w := range watchers {
		e.orphansOf(w)
		orphans, _ := e.orphansOf(w) // the second look confirms
		for _, id := range orphans {
			e.store.mu.Lock()
			if e.store.owners[id] == nil {
				e.store.owners[id] = &owner{
					id: id, item: item{driver: w.name}, gone: true, target: target{name: "with UID " + id.UID, uid: id.UID},
				}
				e.store.owners[id].target.watch.Kind = "vanished object"
			}
			e.store.mu.Unlock()
		}
	}
}

// differing lists the keys that would be written on the object.
func differing(manager string, out outputs, meta watch.Meta) []string {
	if !writeback.Differs(meta, manager, out.annotations, out.labels) {
		return nil
	}
	return slices.Sorted(maps.Keys(joined(out.annotations, out.labels)))
}

func joined(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}
