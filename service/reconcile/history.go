// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"sync"
	"time"
	"unicode/utf8"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

const (
	// historySize is how many reconciles, and how many Events, of all objects together are remembered.
	historySize = 4096
	// shownHistory is how many of them are shown of one object.
	shownHistory = 10
	// maxWhy bounds what is remembered of a reason, in bytes.
	maxWhy = 400
)

// Reconciled is one reconcile of an object that did something, or did not end well.
type Reconciled struct {
	Ended   time.Time   `json:"ended"`
	Outcome state.Phase `json:"outcome"`
	// Seconds is how long it took in all; the phases are parts of it.
	Seconds          float64 `json:"seconds"`
	TranslateSeconds float64 `json:"translateSeconds"`
	PlanSeconds      float64 `json:"planSeconds"`
	ApplySeconds     float64 `json:"applySeconds"`
	WriteBackSeconds float64 `json:"writeBackSeconds"`
	Steps            int     `json:"steps"` // that were applied, or tried
	Why              string  `json:"why,omitempty"`
}

// Told is an Event that Raven recorded on an object.
type Told struct {
	Time    time.Time `json:"time"`
	Type    string    `json:"type"` // Normal or Warning
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
}

// ring holds the last items of all objects.
type ring[T any] struct {
	items []owned[T]
	next  int
}

type owned[T any] struct {
	id   plan.Owner
	item T
}

func (r *ring[T]) add(id plan.Owner, item T) {
	if len(r.items) < historySize {
		r.items = append(r.items, owned[T]{id, item})
		return
	}
	r.items[r.next] = owned[T]{id, item}
	r.next = (r.next + 1) % historySize
}

// of returns the last items of an object, the latest first.
func (r *ring[T]) of(id plan.Owner) []T {
	var list []T
	for i := range r.items {
		at := (r.next - 1 - i + 2*len(r.items)) % len(r.items)
		if r.items[at].id == id {
			if list = append(list, r.items[at].item); len(list) == shownHistory {
				break
			}
		}
	}
	return list
}

// history is what happened of late, for people.
type history struct {
	mu         sync.Mutex
	reconciles ring[Reconciled]
	told       ring[Told]
}

func (h *history) reconciled(id plan.Owner, r Reconciled) {
	r.Why = cutText(r.Why, maxWhy)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reconciles.add(id, r)
}

func (h *history) tell(id plan.Owner, t Told) {
	t.Message = cutText(t.Message, maxWhy)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told.add(id, t)
}

func (h *history) of(id plan.Owner) ([]Reconciled, []Told) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reconciles.of(id), h.told.of(id)
}

// cutText shortens a text to at most so many bytes, between two characters.
func cutText(text string, size int) string {
	if len(text) <= size {
		return text
	}
	for size > 0 && !utf8.RuneStart(text[size]) {
		size--
	}
	return text[:size] + "…"
}

// trace measures one reconcile. It is used by one goroutine at a time; a nil one measures nothing.
type trace struct {
	clock clock.PassiveClock
	seen  Reconciled
	acted bool // the driver was asked, or something was written
}

type traceKey struct{}

// traceOf returns what measures the reconcile of a context; nil: nothing does.
func traceOf(ctx context.Context) *trace {
	t, _ := ctx.Value(traceKey{}).(*trace)
	return t
}

// add measures a part of the reconcile until its result is called.
func (t *trace) add(part func(*Reconciled) *float64) (end func()) {
	if t == nil {
		return func() {}
	}
	began := t.clock.Now()
	return func() { *part(&t.seen) += t.clock.Since(began).Seconds() }
}

func (t *trace) steps(n int) {
	if t != nil {
		t.seen.Steps += n
	}
}

func (t *trace) act() {
	if t != nil {
		t.acted = true
	}
}

// The parts of a reconcile.
func inTranslate(r *Reconciled) *float64 { return &r.TranslateSeconds }
func inPlan(r *Reconciled) *float64      { return &r.PlanSeconds }
func inApply(r *Reconciled) *float64     { return &r.ApplySeconds }
func inWriteBack(r *Reconciled) *float64 { return &r.WriteBackSeconds }
func inAll(r *Reconciled) *float64       { return &r.Seconds }

// traced reconciles an object and remembers how that went, unless nothing was to be done.
func (e *Engine) traced(ctx context.Context, o *state.Object, do func(context.Context) result) result {
	t := &trace{clock: e.clock}
	end := t.add(inAll)
	r := do(context.WithValue(ctx, traceKey{}, t))
	end()
	e.state.View(func(*state.LoopTx) {
		t.seen.Outcome = o.Phase
		if len(o.Reasons) > 0 {
			t.seen.Why = o.Reasons[0]
		}
	})
	if t.acted || t.seen.Steps > 0 || t.seen.Outcome != state.Done {
		t.seen.Ended = e.clock.Now()
		e.history.reconciled(o.ID, t.seen)
	}
	return r
}

// eventType is the type of the Event that a diagnostic becomes.
func eventType(severity drivers.Severity) string {
	if severity == drivers.Warning || severity == drivers.Error {
		return "Warning"
	}
	return "Normal"
}
