// SPDX-License-Identifier: Apache-2.0

// Package health answers whether the program lives, is ready, what it counts and what it is doing, over HTTP.
// It must never report a program as dead that is merely waiting, or a restart would undo the waiting.
package health

import (
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// State is the state of a component.
type State string

// The states of a component. Degraded counts as ready, so that a probe keeps the program in service; only Failed,
// which means that nothing but a restart helps, counts as dead.
const (
	Ready    State = "ready"
	Degraded State = "degraded"
	NotReady State = "not ready"
	Failed   State = "failed"
)

// Report is what a component last reported.
type Report struct {
	Name   string    `json:"name"`
	State  State     `json:"state"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since"` // of the state, not of the reason
}

// Registry holds the components' reports.
type Registry struct {
	clock clock.PassiveClock

	mu      sync.Mutex // guards reports
	reports map[string]Report
}

// NewRegistry returns a registry without components, which is not ready.
func NewRegistry(clk clock.PassiveClock) *Registry {
	return &Registry{clock: clk, reports: map[string]Report{}}
}

// Component returns the component of that name; at first it is not ready because it is starting.
func (r *Registry) Component(name string) *Component {
	now := r.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.reports[name]; !known {
		r.reports[name] = Report{Name: name, State: NotReady, Reason: "starting", Since: now}
	}
	return &Component{registry: r, name: name}
}

// Reports returns the last report of each component, sorted by name.
func (r *Registry) Reports() []Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	reports := make([]Report, 0, len(r.reports))
	for _, report := range r.reports {
		reports = append(reports, report)
	}
	slices.SortFunc(reports, func(a, b Report) int { return strings.Compare(a.Name, b.Name) })
	return reports
}

// Component reports the state of one part of the program. Its methods may be called at any time, by any goroutine; a
// reason is one sentence for people, without secrets.
type Component struct {
	registry *Registry
	name     string
}

// Ready reports that all is well.
func (c *Component) Ready() { c.report(Ready, "") }

// ReadyAs reports that all is well, with a note on what the component does.
func (c *Component) ReadyAs(note string) { c.report(Ready, note) }

// Degraded reports that the component works, but not as it should.
func (c *Component) Degraded(reason string) { c.report(Degraded, reason) }

// NotReady reports that the component waits for something, for example for a first sync.
func (c *Component) NotReady(reason string) { c.report(NotReady, reason) }

// Failed reports that the component will not recover by itself: /livez fails, so that the program is restarted.
func (c *Component) Failed(reason string) { c.report(Failed, reason) }

// Remove forgets the component, for example of a driver that a reload has disabled.
func (c *Component) Remove() {
	c.registry.mu.Lock()
	defer c.registry.mu.Unlock()
	delete(c.registry.reports, c.name)
}

func (c *Component) report(state State, reason string) {
	now := c.registry.clock.Now()
	c.registry.mu.Lock()
	defer c.registry.mu.Unlock()
	report := Report{Name: c.name, State: state, Reason: reason, Since: now}
	if before := c.registry.reports[c.name]; before.State == state {
		report.Since = before.Since
	}
	c.registry.reports[c.name] = report
}
