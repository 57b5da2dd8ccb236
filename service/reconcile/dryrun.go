// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
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
	// Held counts deletions that the mass-deletion guard, or a missing opinion, would hold back.
	Held int `json:"held,omitempty"`
	// Problems say why there is no plan, or only a part of one.
	Problems []string `json:"problems,omitempty"`
}

// DryRun works out what Run would do now, and writes nothing. The engine must have observed and have its watchers; it
// must not be running.
func (e *Engine) DryRun(ctx context.Context) ([]Planned, error) {
	e.dry.Store(true)
	defer e.dry.Store(false)
	watchers := e.all()
	problems := map[plan.Owner][]string{}
	metas := map[plan.Owner]watch.Meta{}
	for _, w := range watchers {
		e.dryTranslate(ctx, w, problems, metas)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e.state.Update(func(tx *state.LoopTx) { tx.TakeShares() })
	e.dryDisabled(ctx)
	return e.dryPlans(watchers, problems, metas), nil
}

// dryTranslate asks a driver about all its source objects, many at once, so that they travel in batches.
func (e *Engine) dryTranslate(
	ctx context.Context, w *watcher, problems map[plan.Owner][]string, metas map[plan.Owner]watch.Meta,
) {
	var (
		mu      sync.Mutex
		wg      sync.WaitGroup
		workers = make(chan struct{}, 256)
	)
	for name := range w.sources {
		keys, _ := w.source.Keys(name)
		for _, key := range keys {
			workers <- struct{}{}
			wg.Go(func() {
				defer func() { <-workers }()
				object, meta, known := w.source.Get(key)
				if known != watch.Present {
					return
				}
				o := e.ensure(w, key, meta)
				err := e.translate(ctx, w, o, object)
				e.answered(ctx, w, key, nil, err)
				unknown := e.lookup(ctx, o.Set)
				mu.Lock()
				defer mu.Unlock()
				metas[o.ID] = meta
				for _, err := range unknown {
					problems[o.ID] = append(problems[o.ID], err.Error())
				}
				if err != nil {
					problems[o.ID] = append(problems[o.ID], err.Error())
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
	var (
		objects []*state.Object
		fixed   map[string]string
	)
	e.state.Update(func(tx *state.LoopTx) {
		objects = slices.Collect(maps.Values(tx.Objects()))
		_, fixed = tx.TakeShares()
	})
	slices.SortFunc(objects, func(a, b *state.Object) int {
		return cmp.Or(cmp.Compare(a.Request.Driver, b.Request.Driver), cmp.Compare(a.Target.String(), b.Target.String()))
	})
	var list []Planned
	for _, o := range objects {
		p := Planned{Driver: o.Request.Driver, Object: o.Target.String(), Problems: problems[o.ID]}
		if o.HasSet || o.Gone {
			var still map[string]string
			if o.ID.Driver == state.Shared {
				still = fixed
			}
			computed, out := e.plan(o, still)
			p.Steps, p.Waits = apart(computed.Steps)
			p.Held = computed.Held
			p.Problems = slices.Concat(p.Problems, out.conflicts, out.outputs.Contested, out.withheld)
			if w := byName[o.Request.Driver]; w != nil && !o.Gone && !out.outputs.Partial {
				p.Writes = differing(w.manager, out.outputs, metas[o.ID])
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
	return steps, state.Sorted(waits)
}

// dryOrphans makes owners for what the garbage collector would end.
func (e *Engine) dryOrphans(watchers []*watcher) {
	for _, w := range watchers {
		e.orphansOf(w)
		orphans, _ := e.orphansOf(w) // the second pass confirms
		for _, id := range orphans {
			e.state.Update(func(tx *state.LoopTx) {
				tx.EnsureGone(id, state.Request{Driver: w.name, Key: leftKey(id)}, drivers.Watch{Kind: vanished})
			})
		}
	}
}

// differing lists the keys that would be written on the object.
func differing(manager string, out state.Outputs, meta watch.Meta) []string {
	out.Keep(meta, manager)
	if !writeback.Differs(meta, manager, out.Annotations, out.Labels) {
		return nil
	}
	return slices.Sorted(maps.Keys(joined(out.Annotations, out.Labels)))
}

func joined(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}
