// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/state"
	"github.com/kuryr/raven/service/watch"
)

// translate asks the driver, unless its last answer still stands, and takes over what it says. An error leaves
// everything as it was: a driver without an opinion has not said "nothing".
func (e *Engine) translate(ctx context.Context, w *watcher, o *state.Object, object drivers.Object) error {
	defer traceOf(ctx).add(inTranslate)()
	var (
		epoch  int
		needs  []drivers.Need
		before uint64
		fresh  bool
		set    drivers.Set
	)
	e.state.View(func(tx *state.LoopTx) {
		epoch = tx.Driver(w.name).Epoch
		needs, before, set = o.Needs, o.Input, o.Set
		fresh = o.HasSet && o.Answered == epoch
	})
	// The needs are remembered before they are answered, so that no change in between is missed.
	w.source.Remember(o.Request.Key, needs)
	answers, err := answer(w.source, needs, nil)
	if err != nil {
		return err
	}
	if fresh && before == inputHash(object, needs, answers) {
		return nil
	}
	traceOf(ctx).act()
	set, needs, answers, err = e.ask(ctx, w, o, object, answers)
	if err != nil {
		return err
	}
	if err := set.Validate(*w.info.Load()); err != nil {
		return backend.Permanentf("driver(%s): its answer is not valid: %w", w.name, err)
	}
	if err := e.mayContribute(w.name, set); err != nil {
		return err
	}
	e.lookup(ctx, set) // so that what it leads to is there when others hear of it; what fails is told by converge
	e.state.Update(func(tx *state.LoopTx) {
		if refused := tx.Reserve(w.name, o, set.Size()); refused != nil {
			err = backend.Permanent(refused)
			return
		}
		tx.SetDesired(o, set)
		first := tx.Untranslated(o)
		o.HasSet, o.Answered, o.Needs = true, epoch, needs
		o.Input = inputHash(object, needs, answers)
		if first {
			tx.Release()
		}
	})
	if err != nil {
		return err
	}
	e.say(o, set.Diagnostics)
	return nil
}

// ask calls the driver until its needs are settled.
func (e *Engine) ask(
	ctx context.Context, w *watcher, o *state.Object, object drivers.Object, answers map[drivers.Need][]drivers.Object,
) (drivers.Set, []drivers.Need, map[drivers.Need][]drivers.Object, error) {
	var asked []drivers.Need
	for round := range drivers.MaxRounds {
		needs := drivers.NewNeeds(answers).WithRound(round + 1)
		set, err := w.driver.Translate(ctx, object, needs)
		asked = needs.Asked()
		w.source.Remember(o.Request.Key, asked)
		if err != nil {
			return drivers.Set{}, nil, nil, opinionless(err)
		}
		if !needs.Open() {
			return set, asked, answers, nil
		}
		if answers, err = answer(w.source, asked, answers); err != nil {
			return drivers.Set{}, nil, nil, err
		}
	}
	return drivers.Set{}, nil, nil, backend.Permanentf(
		"driver(%s): its needs did not settle in %d rounds, it last asked for %v", w.name, drivers.MaxRounds, asked)
}

// opinionless tells a driver that cannot answer now, which is asked again, from one that cannot answer for this object.
func opinionless(err error) error {
	for _, passing := range []error{
		drivers.ErrUnavailable, drivers.ErrIsolated, context.DeadlineExceeded, context.Canceled,
	} {
		if errors.Is(err, passing) {
			return err
		}
	}
	return backend.Permanent(err)
}

// answer looks up needs in the caches. A need that cannot be answered is an error, never an absent object.
func answer(
	source Source, needs []drivers.Need, answered map[drivers.Need][]drivers.Object,
) (map[drivers.Need][]drivers.Object, error) {
	answers := make(map[drivers.Need][]drivers.Object, len(needs))
	for _, need := range needs {
		if objects, ok := answered[need]; ok {
			answers[need] = objects
			continue
		}
		objects, known := source.Answer(need)
		if known == watch.Unknown {
			return nil, unknownNeedError{need}
		}
		answers[need] = objects
	}
	return answers, nil
}

// unknownNeedError says that a need cannot be answered yet.
type unknownNeedError struct{ need drivers.Need }

func (u unknownNeedError) Error() string {
	return fmt.Sprintf("it needs %s, and that watch is not synced or not allowed: see the driver's watches in `raven "+
		"status`", u.need)
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

// refusals are reads that were refused a moment ago.
type refusals struct {
	mu     sync.Mutex
	byName map[string]refusal
}

// refusal is a read that was refused.
type refusal struct {
	err   error
	until time.Time
}

// standing returns why a read was refused a moment ago; nil: it was not.
func (r *refusals) standing(name string, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.byName[name]
	if ok && now.Before(last.until) {
		return last.err
	}
	delete(r.byName, name)
	return nil
}

func (r *refusals) note(name string, err error, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byName == nil {
		r.byName = map[string]refusal{}
	}
	r.byName[name] = refusal{err, until}
}

// once reads something that many ask for at the same time. A refusal stands for a little while, so that they do not
// all ask again one after the other.
func (e *Engine) once(name string, read func() error) error {
	if err := e.refused.standing(name, e.clock.Now()); err != nil {
		return err
	}
	_, err, _ := e.single.Do(name, func() (any, error) {
		err := read()
		if err != nil {
			e.refused.note(name, err, e.clock.Now().Add(e.config.SlowRetry/refusalShare))
		}
		return nil, err
	})
	return err
}

// refusalShare is the part of SlowRetry for which a refused read stands.
const refusalShare = 10

// mayContribute refuses contributions that the operator does not allow: they change what belongs to others.
func (e *Engine) mayContribute(driver string, set drivers.Set) error {
	allowed, bounded := e.config.Contributes[driver]
	if !bounded {
		return nil
	}
	for _, c := range set.Contributions {
		if !slices.Contains(allowed, c.Attribute) {
			return backend.Permanentf("driver(%s): contribution %q: it adds to the %s of %s, which [driver:%s] "+
				"allow_contributions does not name",
				driver, c.Name, c.Attribute, c.Target, driver)
		}
	}
	return nil
}
