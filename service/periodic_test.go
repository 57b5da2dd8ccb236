// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kuryr/raven/service"
	"github.com/kuryr/raven/test/harness"
)

// periods is a set of periodic tasks whose runs are written down as "name@second".
type periods struct {
	*journal
	clock *clocktesting.FakeClock
	log   *harness.Buffer
	tasks *service.PeriodicTasks
}

func newPeriods(t *testing.T, c service.PeriodicConfig, tasks ...service.PeriodicTask) *periods {
	t.Helper()
	p := &periods{journal: &journal{}, clock: clocktesting.NewFakeClock(time.Unix(0, 0)), log: &harness.Buffer{}}
	c.Clock, c.Logger = p.clock, slog.New(slog.NewTextHandler(p.log, nil))
	if c.Random == nil {
		c.Random = func() float64 { return 0 }
	}
	for i, task := range tasks {
		if run := task.Run; run == nil {
			tasks[i].Run = func(context.Context) error { p.ran(task.Name); return nil }
		}
	}
	var err error
	if p.tasks, err = service.NewPeriodicTasks(c, tasks...); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *periods) ran(name string) {
	p.add("%s@%d", name, int(p.clock.Since(time.Unix(0, 0)).Seconds()))
}

// look lets the time pass second by second and looks at each, as a scheduler that is never late does.
func (p *periods) look(t *testing.T, seconds int) {
	t.Helper()
	for range seconds {
		if _, err := p.tasks.RunDue(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		p.clock.Step(time.Second)
	}
}

func TestPeriodicTasks(t *testing.T) {
	for name, tc := range map[string]struct {
		config service.PeriodicConfig
		task   service.PeriodicTask
		want   []string
	}{
		"spacing": {task: service.PeriodicTask{Spacing: 30 * time.Second}, want: []string{"x@30", "x@60", "x@90"}},
		"immediately": {
			task: service.PeriodicTask{Spacing: 50 * time.Second, Immediately: true}, want: []string{"x@0", "x@50"},
		},
		"default spacing":    {task: service.PeriodicTask{}, want: []string{"x@60"}},
		"a negative spacing": {task: service.PeriodicTask{Spacing: -1}},
		"disabled":           {task: service.PeriodicTask{Spacing: time.Second, Disabled: true}},
		"external":           {task: service.PeriodicTask{Spacing: 50 * time.Second, External: true}, want: []string{"x@50"}},
		"run by others": {
			config: service.PeriodicConfig{SkipExternal: true}, task: service.PeriodicTask{Spacing: time.Second, External: true},
		},
		"jitter": { // each boundary moves by 40/20*0.6 = 1.2 seconds, in whole ones
			config: service.PeriodicConfig{Random: func() float64 { return 0.6 }},
			task:   service.PeriodicTask{Spacing: 40 * time.Second}, want: []string{"x@40", "x@81"},
		},
		"no jitter below 20 seconds": {
			config: service.PeriodicConfig{Random: func() float64 { return 0.99 }},
			task:   service.PeriodicTask{Spacing: 19 * time.Second}, want: []string{"x@19", "x@38", "x@57", "x@76", "x@95"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.task.Name = "x"
			p := newPeriods(t, tc.config, tc.task)
			p.look(t, 100)
			if diff := cmp.Diff(tc.want, p.all()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestALateRunMovesNothing: runs stay on multiples of the spacing.
func TestALateRunMovesNothing(t *testing.T) {
	p := newPeriods(t, service.PeriodicConfig{}, service.PeriodicTask{Name: "x", Spacing: 30 * time.Second})
	p.clock.Step(47 * time.Second)
	p.look(t, 60)
	if diff := cmp.Diff([]string{"x@47", "x@60", "x@90"}, p.all()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPeriodicFailures(t *testing.T) {
	broken := errors.New("broken")
	p := newPeriods(
		t, service.PeriodicConfig{},
		service.PeriodicTask{Name: "bad", Immediately: true, Run: func(context.Context) error { return broken }},
		service.PeriodicTask{Name: "worse", Immediately: true, Run: func(context.Context) error { panic("terrified") }},
		service.PeriodicTask{Name: "good", Immediately: true, Spacing: 20 * time.Second},
	)
	idle, err := p.tasks.RunDue(t.Context(), false)
	if err != nil || idle != 20*time.Second {
		t.Errorf("%s, %v", idle, err)
	}
	if text := p.log.String(); !p.has("good@0") || !strings.Contains(text, "broken") ||
		!strings.Contains(text, "periodic_test.go") {
		t.Errorf("%v\n%s", p.all(), text)
	}
	p.clock.Step(time.Hour)
	if _, err := p.tasks.RunDue(t.Context(), true); !errors.Is(err, broken) || p.count("good@3600") != 0 {
		t.Errorf("raised: %v", err)
	}
	if _, err := service.NewPeriodicTasks(service.PeriodicConfig{}, service.PeriodicTask{Name: "empty"}); err == nil {
		t.Error("a task without a function is none")
	}
}

func TestPeriodicTasksRun(t *testing.T) {
	p := newPeriods(t, service.PeriodicConfig{}, service.PeriodicTask{Name: "x", Spacing: 7 * time.Second})
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- p.tasks.Run(ctx) }()
	for second := range 29 {
		if second == 15 {
			if enabled, err := p.tasks.Add(service.PeriodicTask{
				Name: "late", Spacing: 5 * time.Second, Run: func(context.Context) error { p.ran("late"); return nil },
			}); !enabled || err != nil {
				t.Fatal(enabled, err)
			}
		}
		eventually(t, fmt.Sprint("the loop waits at ", second), p.clock.HasWaiters)
		p.clock.Step(time.Second)
	}
	cancel()
	if err := <-result; err != nil {
		t.Error(err)
	}
	// The loop does not look before what it knew to be due.
	if diff := cmp.Diff([]string{"x@7", "x@14", "x@21", "late@21", "late@25", "x@28"}, p.all()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
