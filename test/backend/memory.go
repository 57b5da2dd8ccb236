// SPDX-License-Identifier: Apache-2.0

// Package backend is a backend for tests: it keeps resources of a trivial kind in memory. Nothing of the loop, of
// plan or of the state knows of it: it shows that a new kind needs no change there.
package backend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// KindNote is the kind of the resources.
const KindNote drivers.Kind = "note"

// Note is a resource with a text that can be changed, and a color that cannot.
type Note struct {
	Name  *string `raven:"name"`
	Text  *string `raven:"text"`
	Color *string `raven:"color,immutable"`
}

// Kind implements drivers.Spec.
func (Note) Kind() drivers.Kind { return KindNote }

// Kinds describes the kind.
func Kinds() []plan.Descriptor {
	return []plan.Descriptor{{Kind: KindNote, Rank: 100, Attributes: drivers.SchemaOf(Note{})}}
}

// Memory keeps the notes. It outlives the processes that use it, as a cloud does.
type Memory struct {
	mu          sync.Mutex
	notes       map[string]plan.Observed
	made        int
	log         []plan.Op
	unavailable error
}

// New returns an empty memory.
func New() *Memory { return &Memory{notes: map[string]plan.Observed{}} }

// Notes returns the texts of all notes, by name.
func (m *Memory) Notes() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	texts := map[string]string{}
	for _, o := range m.notes {
		texts[fmt.Sprint(o.Attrs["name"])] = fmt.Sprint(o.Attrs["text"], " ", o.Attrs["color"])
	}
	return texts
}

// Change has an operator change all notes: to another text, or, with remove, to none.
func (m *Memory) Change(text string, remove bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, o := range m.notes {
		if delete(m.notes, id); !remove {
			o.Attrs = maps.Clone(o.Attrs)
			o.Attrs["text"] = text
			m.notes[id] = o
		}
	}
}

// Fail has everything fail from now on; nil: nothing.
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unavailable = err
}

// Steps returns what was applied so far.
func (m *Memory) Steps() []plan.Op {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.log)
}

// memory is the backend of one engine.
type memory struct {
	*Memory
	env backend.Env
}

// Registration returns the backend for an engine.
func (m *Memory) Registration(env backend.Env) *backend.Registration {
	b := memory{m, env}
	return &backend.Registration{
		Backend: b, Name: "the memory", Reason: "Note",
		Remove: func(ctx context.Context, step plan.Step) error { return b.Apply(ctx, step.Identity.Owner, &step) },
	}
}

// Kinds implements backend.Backend.
func (memory) Kinds() []plan.Descriptor { return Kinds() }

// List implements backend.Backend.
func (m memory) List(_ context.Context, cluster string) ([]plan.Observed, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := slices.Collect(maps.Values(m.notes))
	return slices.DeleteFunc(list, func(o plan.Observed) bool { return o.Identity.Cluster != cluster }), m.unavailable
}

// Get implements backend.Backend.
func (m memory) Get(_ context.Context, _ drivers.Kind, id string) (plan.Observed, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o, there := m.notes[id]; there || m.unavailable != nil {
		return o, m.unavailable
	}
	return plan.Observed{}, backend.ErrNotFound
}

// Apply implements backend.Backend.
func (m memory) Apply(_ context.Context, _ plan.Owner, step *plan.Step) error {
	now, err := m.write(step)
	if err != nil {
		return &backend.Failure{Phase: state.Failing, Backoff: true, Err: &backend.StepError{Step: *step, Err: err}}
	}
	m.env.State.Update(func(tx *state.Tx) {
		if step.Op == plan.Delete {
			tx.Depart(step.Kind, step.ID)
		} else {
			tx.Arrive(now)
		}
	})
	return nil
}

func (m memory) write(step *plan.Step) (plan.Observed, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unavailable != nil {
		return plan.Observed{}, m.unavailable
	}
	m.log = append(m.log, step.Op)
	switch step.Op {
	case plan.Create:
		m.made++
		step.ID = fmt.Sprintf("note-%d", m.made)
		m.notes[step.ID] = plan.Observed{
			Kind: step.Kind, ID: step.ID, Identity: step.Identity, Managed: true, Attrs: maps.Clone(step.Attrs),
			Tags: step.Identity.Tags(), Description: step.Identity.Description(),
		}
	case plan.Update:
		o := m.notes[step.ID]
		o.Attrs = maps.Clone(o.Attrs)
		maps.Copy(o.Attrs, step.Attrs)
		m.notes[step.ID] = o
	case plan.Delete:
		delete(m.notes, step.ID)
	default:
		return plan.Observed{}, errors.New("a note has no such step")
	}
	return m.notes[step.ID], nil
}
