package reconcile

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/watch"
)

// terminalError is an error that another try cannot mend: only a new object, driver or configuration can.
type terminalError struct{ err error }

func (t terminalError) Error() string { return t.err.Error() }
func (t terminalError) Unwrap() error { return t.err }

// translate asks the driver, unless its last answer still stands, and takes over what it says. An error leaves everything as
// it was: a driver without an opinion has not said "nothing".
func (e *Engine) translate(ctx context.Context, w *watcher, o *owner, object drivers.Object) error {
	var (
		epoch  int
		needs  []drivers.Need
		before uint64
		fresh  bool
		set    drivers.Set
	)
	e.store.do(func() {
		epoch = e.store.drivers[w.name].epoch
		needs, before, set = o.needs, o.input, o.set
		fresh = o.hasSet && o.good == epoch
	})
	// The needs are remembered before they are answered, so that no change in between is missed.
	w.source.Remember(o.item.key, needs)
	answers, err := answer(w.source, needs, nil)
	if err != nil {
		return err
	}
	if fresh && before == inputHash(object, needs, answers) {
		return nil
	}
	set, needs, answers, err = e.ask(ctx, w, o, object, answers)
	if err != nil {
		return err
	}
	if err := set.Validate(*w.info.Load()); err != nil {
		return terminalError{fmt.Errorf("driver(%s): its answer is not valid: %w", w.name, err)}
	}
	if err := e.mayContribute(w.name, set); err != nil {
		return err
	}
	if err := e.hold(w, o, set.Size()); err != nil {
		return err
	}
	e.lookup(ctx, set) // so that what it leads to is there when others hear of it; what fails is told by converge
	var woken []item
	e.store.do(func() {
		woken = e.store.adopt(o, set)
		first := e.store.silent(o)
		o.hasSet, o.good, o.needs = true, epoch, needs
		o.input = inputHash(object, needs, answers)
		if first {
			woken = append(woken, e.store.released()...)
		}
	})
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
			return drivers.Set{}, nil, nil, opinionless(err)
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

// opinionless tells a driver that cannot answer now, which is asked again, from one that cannot answer for this object.
func opinionless(err error) error {
	for _, passing := range []error{drivers.ErrUnavailable, drivers.ErrIsolated, context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, passing) {
			return err
		}
	}
	return terminalError{err}
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

// once reads something that many ask for at the same time. A refusal stands for a little while, so that they do not all ask
// again one after the other.
func (e *Engine) once(name string, read func() error) error {
	var stands error
	e.store.do(func() {
		if r, ok := e.store.refused[name]; ok && e.clock.Now().Before(r.until) {
			stands = r.err
		} else if ok {
			delete(e.store.refused, name)
		}
	})
	if stands != nil {
		return stands
	}
	_, err, _ := e.single.Do(name, func() (any, error) {
		err := read()
		if err != nil {
			until := e.clock.Now().Add(e.config.SlowRetry / refusalShare)
			e.store.do(func() { e.store.refused[name] = refusal{err, until} })
		}
		return nil, err
	})
	return err
}

// refusalShare is the part of SlowRetry for which a refused read stands.
const refusalShare = 10
