// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// DefaultSpacing is the spacing of a periodic task that names none, and the longest time between two checks for tasks
// that are due.
const DefaultSpacing = time.Minute

// PeriodicTask is something to do every now and then.
type PeriodicTask struct {
	Name string
	// Spacing lies between two runs: 0 is DefaultSpacing, a negative one disables the task.
	Spacing time.Duration
	// Immediately runs the task at the first check instead of one spacing later.
	Immediately bool
	// Disabled leaves the task out.
	Disabled bool
	// External tasks are left out where PeriodicConfig says that another process runs them.
	External bool
	Run      func(context.Context) error
}

// PeriodicConfig is what PeriodicTasks needs. The zero value works.
type PeriodicConfig struct {
	Clock  clock.Clock  // nil: the real one
	Logger *slog.Logger // nil: slog.Default()
	// SkipExternal leaves External tasks out (oslo.service's run_external_periodic_tasks = false).
	SkipExternal bool
	// Random draws from [0, 1) for the jitter; nil is the real thing.
	Random func() float64
}

// PeriodicTasks runs each of its tasks when it is due, one after the other. A run is followed by the next one at the
// next multiple of the spacing, so that a late run does not move those that follow, plus a random share of up to a
// twentieth of it in whole seconds, so that tasks do not run in step.
//
// It is for users of this package. Raven does not use it: its periodic work (drift checks, garbage collection) must not
// wait for one another, and is also asked for between two intervals.
type PeriodicTasks struct {
	config PeriodicConfig

	mu    sync.Mutex // guards tasks, not their runs
	tasks []*periodic
}

type periodic struct {
	PeriodicTask
	last time.Time // zero: at once
}

// NewPeriodicTasks returns these tasks, see Add. An error names a task that cannot be one.
func NewPeriodicTasks(c PeriodicConfig, tasks ...PeriodicTask) (*PeriodicTasks, error) {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Random == nil {
		c.Random = rand.Float64
	}
	c.Logger = orDefault(c.Logger)
	p := &PeriodicTasks{config: c}
	var errs []error
	for _, t := range tasks {
		_, err := p.Add(t)
		errs = append(errs, err)
	}
	return p, errors.Join(errs...)
}

// Add adds a task, also while others run. It returns whether the task is enabled.
func (p *PeriodicTasks) Add(t PeriodicTask) (bool, error) {
	switch {
	case t.Name == "" || t.Run == nil:
		return false, fmt.Errorf("periodic task %q: it needs a name and a function", t.Name)
	case t.Spacing < 0:
		p.config.Logger.Info("leaving a periodic task out because its spacing is negative", "task", t.Name)
		return false, nil
	case t.Disabled:
		p.config.Logger.Info("leaving a periodic task out because it is disabled", "task", t.Name)
		return false, nil
	case t.Spacing == 0:
		t.Spacing = DefaultSpacing
	}
	added := &periodic{PeriodicTask: t}
	if !t.Immediately {
		added.last = p.config.Clock.Now()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tasks = append(p.tasks, added)
	return true, nil
}

// RunDue runs the tasks that are due, in order, and returns how long it is to the next one. An error or a panic of a
// task is logged, or with raise ends the pass and is returned.
func (p *PeriodicTasks) RunDue(ctx context.Context, raise bool) (time.Duration, error) {
	p.mu.Lock()
	tasks := slices.Clone(p.tasks)
	p.mu.Unlock()
	idle := DefaultSpacing
	for _, t := range tasks {
		if t.External && p.config.SkipExternal {
			continue
		}
		if left := p.left(t); left > 0 {
			idle = min(idle, left)
			continue
		}
		t.last = p.boundary(t)
		p.config.Logger.Debug("running a periodic task", "task", t.Name)
		err := Guard(func() error { return t.Run(ctx) })
		switch {
		case err == nil:
		case raise || ctx.Err() != nil:
			return 0, fmt.Errorf("periodic task %q: %w", t.Name, err)
		default:
			p.config.Logger.Error("a periodic task failed", slog.String("task", t.Name), errAttr(err), stackAttr(err))
		}
		idle = min(idle, max(p.left(t), 0))
	}
	return idle, nil
}

// left is how long it is until the task is due.
func (p *PeriodicTasks) left(t *periodic) time.Duration {
	if t.last.IsZero() {
		return 0
	}
	return t.last.Add(t.Spacing).Sub(p.config.Clock.Now())
}

// boundary is the last multiple of the spacing since the last run, plus the jitter.
func (p *PeriodicTasks) boundary(t *periodic) time.Time {
	now := p.config.Clock.Now()
	if t.last.IsZero() {
		return now
	}
	jitter := time.Duration(float64(t.Spacing) * p.config.Random() / 20).Truncate(time.Second)
	return now.Add(-(now.Sub(t.last) % t.Spacing)).Add(jitter)
}

// Run runs the tasks until ctx ends. It may run once at a time.
func (p *PeriodicTasks) Run(ctx context.Context) error {
	return Dynamic{Clock: p.config.Clock, Name: "periodic tasks", Logger: p.config.Logger, Max: DefaultSpacing}.Run(ctx,
		func(ctx context.Context) (time.Duration, error) {
			idle, err := p.RunDue(ctx, false)
			if ctx.Err() != nil {
				return 0, ctx.Err() // what a task said of it is no failure
			}
			return idle, err
		})
}
