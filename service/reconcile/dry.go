package reconcile

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/watch"
	"github.com/kuryr/raven/service/writeback"
)

// Planned is what would be done for one owner.
type Planned struct {
	Driver string      `json:"driver"`
	Object string      `json:"object"`
	Steps  []plan.Step `json:"steps,omitempty"`
	// Waits are changes of which it is not known yet whether they are any: what they refer to is not there.
	Waits []string `json:"waits,omitempty"`
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
	e.dry.Store(true)
	defer e.dry.Store(false)
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
	e.takeShares()
	e.dryFrozen(ctx)
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
				var o *owner
				e.store.do(func() {
					o = e.store.ensureOwner(it, target{w.sources[key.Watch], key.Namespace, key.Name, meta.UID}, e.clock.Now())
				})
				err := e.translate(ctx, w, o, object)
				e.answered(ctx, w, key, nil, err)
				unknown := e.lookup(ctx, o.set)
				mu.Lock()
				defer mu.Unlock()
				metas[o.id] = meta
				for _, err := range unknown {
					problems[o.id] = append(problems[o.id], err.Error())
				}
				if err != nil {
					problems[o.id] = append(problems[o.id], err.Error())
				}
			})
		}
	}
	wg.Wait()
}

func (e *Engine) dryPlans(
	watchers []*watcher, problems map[plan.Owner][]string, metas map[plan.Owner]watch.Meta,
) []Planned {
	byName := map[string]*watcher{}
	for _, w := range watchers {
		byName[w.name] = w
	}
	e.dryOrphans(watchers)
	var owners []*owner
	e.store.do(func() {
		for _, o := range e.store.owners {
			owners = append(owners, o)
		}
	})
	_, frozen, _ := e.takeShares()
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
			p.Steps, p.Waits = apart(computed.Steps)
			p.Held = computed.Held
			p.Problems = append(append(p.Problems, out.conflicts...), out.outputs.contested...)
			if out.withheld != "" {
				p.Problems = append(p.Problems, out.withheld)
			}
			if w := byName[o.item.driver]; w != nil && !o.gone && !out.outputs.partial {
				p.Writes = differing(w.manager, out.outputs, metas[o.id])
			}
		}
		if len(p.Steps)+len(p.Writes)+p.Held+len(p.Problems) > 0 {
			list = append(list, p)
		}
	}
	return list
}

// apart parts steps from updates that cannot be compared yet.
func apart(all []plan.Step) (steps []plan.Step, waits []string) {
	for _, step := range all {
		if step.Op != plan.Update || step.Ready() {
			steps = append(steps, step)
			continue
		}
		for _, wt := range step.Waits {
			waits = append(waits, wt.Message)
		}
	}
	return steps, sorted(waits)
}

// dryOrphans makes owners for what the sweeper would end.
func (e *Engine) dryOrphans(watchers []*watcher) {
	for _, w := range watchers {
		e.orphansOf(w)
		orphans, _ := e.orphansOf(w) // the second look confirms
		for _, id := range orphans {
			e.store.do(func() {
				if e.store.owners[id] == nil {
					e.store.owners[id] = &owner{
						id: id, item: item{driver: w.name}, gone: true,
						target: target{watch: drivers.Watch{Kind: "vanished object"}, name: "with UID " + id.UID, uid: id.UID},
					}
				}
			})
		}
	}
}

// differing lists the keys that would be written on the object.
func differing(manager string, out outputs, meta watch.Meta) []string {
	out.keep(meta, manager)
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
