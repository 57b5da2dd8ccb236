package reconcile

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/watch"
)

// errNoOpinion marks an answer that a driver could not give now. What exists stays as it is.
var errNoOpinion = errors.New("no opinion")

// terminalError is an error that another try cannot mend: only a new object, driver or configuration can.
type terminalError struct{ err error }

func (t terminalError) Error() string { return t.err.Error() }
func (t terminalError) Unwrap() error { return t.err }

// reconcileKey makes one pass over a key: the owners of earlier objects of that name are ended, the present one is made so.
func (e *Engine) reconcileKey(ctx context.Context, w *watcher, key watch.Key) result {
	started := e.clock.Now()
	defer func() { e.metrics.pass(w.name, e.clock.Since(started)) }()

	object, meta, state := w.source.Get(key)
	if state == watch.Unknown {
		return result{again: time.Second}
	}
	it := item{w.name, key}
	var total result
	for _, o := range e.predecessors(it, meta.UID, state) {
		total = worse(total, e.end(ctx, w, o))
	}
	if state == watch.Absent {
		e.answered(w, key, nil)
		return total
	}

	e.store.mu.Lock()
	o := e.store.ensureOwner(it, target{w.sources[key.Watch], key.Namespace, key.Name, meta.UID}, e.clock.Now())
	e.store.mu.Unlock()
	err := e.translate(ctx, w, o, object)
	e.answered(w, key, err)
	if err != nil {
		return worse(total, e.settleErrors(o, []error{err}))
	}
	return worse(total, e.converge(ctx, w, o, meta))
}

func worse(a, b result) result {
	if b.backoff || (!a.backoff && b.again > 0 && (a.again == 0 || b.again < a.again)) {
		return b
	}
	return a
}

// predecessors lists the owners of a key whose object is gone, or has been followed by another of the same name.
func (e *Engine) predecessors(it item, uid string, state watch.State) []*owner {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	var list []*owner
	for id := range e.store.byItem[it] {
		if state == watch.Absent || id.UID != uid {
			o := e.store.owners[id]
			o.gone = true
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b *owner) int { return compareText(a.id.UID, b.id.UID) })
	return list
}

// end takes away all that an owner has, because its source object is gone.
func (e *Engine) end(ctx context.Context, w *watcher, o *owner) result {
	e.store.mu.Lock()
	woken := e.store.adopt(o, drivers.Set{})
	e.store.mu.Unlock()
	e.wakeAll(woken)
	if w != nil {
		w.source.Remember(o.item.key, nil)
	}
	return e.converge(ctx, w, o, watch.Meta{})
}

// translate asks the driver, unless its last answer still stands, and takes over what it says.
func (e *Engine) translate(ctx context.Context, w *watcher, o *owner, object drivers.Object) error {
	e.store.mu.Lock()
	epoch := e.store.drivers[w.name].epoch
	needs, before := o.needs, o.input
	fresh := o.hasSet && o.good == epoch
	e.store.mu.Unlock()

	answers, err := answer(w.source, needs, nil)
	if err != nil {
		return err
	}
	if fresh && before == inputHash(object, needs, answers) {
		return nil
	}
	set, needs, answers, err := e.ask(ctx, w, o, object, answers)
	if err != nil {
		return err
	}
	if err := set.Validate(w.info); err != nil {
		return terminalError{fmt.Errorf("driver(%s): its answer is not valid: %w", w.name, err)}
	}
	if err := e.lookup(ctx, set); err != nil {
		return err
	}
	e.store.mu.Lock()
	woken := e.store.adopt(o, set)
	o.hasSet, o.good, o.needs = true, epoch, needs
	o.input = inputHash(object, needs, answers)
	e.store.mu.Unlock()
	e.wakeAll(woken)
	e.say(o, set.Diagnostics)
	return nil
}

// ask calls the driver until its needs are settled.
func (e *Engine) ask(
	ctx context.Context, w *watcher, o *owner, object drivers.Object, answers map[drivers.Need][]drivers.Object,
) (drivers.Set, []drivers.Need, map[drivers.Need][]drivers.Object, error) {
	var asked []drivers.Need
	for round := range drivers.MaxRounds {
		needs := drivers.NewNeeds(answers).WithRound(round + 1)
		set, err := w.driver.Translate(ctx, object, needs)
		asked = needs.Asked()
		w.source.Remember(o.item.key, asked)
		if err != nil {
			return drivers.Set{}, nil, nil, fmt.Errorf("%w: %w", errNoOpinion, err)
		}
		if !needs.Open() {
			return set, asked, answers, nil
		}
		if answers, err = answer(w.source, asked, answers); err != nil {
			return drivers.Set{}, nil, nil, err
		}
	}
	return drivers.Set{}, nil, nil, terminalError{fmt.Errorf(
		"driver(%s): its needs did not settle in %d rounds, it last asked for %v", w.name, drivers.MaxRounds, asked)}
}

// answer looks up needs in the caches. A need that cannot be answered is an error, never an absent object.
func answer(
	source Source, needs []drivers.Need, known map[drivers.Need][]drivers.Object,
) (map[drivers.Need][]drivers.Object, error) {
	answers := make(map[drivers.Need][]drivers.Object, len(needs))
	for _, need := range needs {
		if objects, ok := known[need]; ok {
			answers[need] = objects
			continue
		}
		objects, state := source.Answer(need)
		if state == watch.Unknown {
			return nil, unknownNeedError{need}
		}
		answers[need] = objects
	}
	return answers, nil
}

// unknownNeedError says that a need cannot be answered yet.
type unknownNeedError struct{ need drivers.Need }

func (u unknownNeedError) Error() string {
	return fmt.Sprintf("it needs %s, and that watch is not synced or not allowed: see the driver's watches in `raven status`", u.need)
}

func inputHash(object drivers.Object, needs []drivers.Need, answers map[drivers.Need][]drivers.Object) uint64 {
	h := fnv.New64a()
	field := func(b []byte) {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(b)))
		_, _ = h.Write(n[:])
		_, _ = h.Write(b)
	}
	field(object.Raw)
	for _, need := range needs {
		_, _ = io.WriteString(h, need.String())
		for _, o := range answers[need] {
			field(o.Raw)
		}
	}
	return h.Sum64()
}

// answered notes that a key of a replay has been answered, and ends the epoch with the last one. An object that its driver can
// not translate counts as answered: without a Set nothing of it is ended. A driver that is not there has answered nothing.
func (e *Engine) answered(w *watcher, key watch.Key, err error) {
	if errors.Is(err, drivers.ErrUnavailable) {
		return
	}
	e.store.mu.Lock()
	d := e.store.drivers[w.name]
	open := d.open[key]
	delete(d.open, key)
	e.store.mu.Unlock()
	if open {
		e.finishEpoch(w.name)
	}
}

// lookup makes sure that every resource which an operator named is known.
func (e *Engine) lookup(ctx context.Context, set drivers.Set) error {
	for _, r := range set.Resources {
		l, ok := r.Spec.(drivers.Lookup)
		if !ok {
			continue
		}
		e.store.mu.Lock()
		_, known := e.store.lookups[l]
		e.store.mu.Unlock()
		if known {
			continue
		}
		found, err := e.cloud.Lookup(ctx, l.Of, l.ID)
		if err != nil {
			return fmt.Errorf("looking up the configured %s %q: %w", l.Of, l.ID, err)
		}
		e.store.mu.Lock()
		e.store.lookups[l] = found
		e.store.mu.Unlock()
	}
	return nil
}

// reconcileShared makes one pass over the claimed resources.
func (e *Engine) reconcileShared(ctx context.Context) result {
	e.store.mu.Lock()
	id := plan.Owner{Driver: sharedDriver}
	o := e.store.owners[id]
	if o == nil {
		o = &owner{id: id, item: item{driver: sharedDriver}, target: target{name: "shared resources"}, since: e.clock.Now()}
		o.target.watch.Kind = "Cluster"
		e.store.owners[id] = o
	}
	set, frozen := e.store.sharedSet()
	o.set = set
	e.store.mu.Unlock()
	return e.convergeWith(ctx, nil, o, watch.Meta{}, frozen)
}
