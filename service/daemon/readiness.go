// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/service"
	"github.com/kuryr/raven/service/health"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
)

const (
	// readinessInterval is the time between two looks at how the watchers stand.
	readinessInterval = time.Second
	// stalledAfter is how long a look may take before systemd's watchdog is not answered any more. A look waits for every
	// lock of the core and for nothing outside, so that one that does not end is a core that hangs.
	stalledAfter = 20 * time.Second
)

// stillAfter is how long a queue of the core that holds work may end nothing while no request to the cloud is under
// way. Within that a pass may wait for its driver, and for the API server where it writes: both have bounds.
func stillAfter(translate time.Duration) time.Duration { return 2*translate + 4*RequestTimeout }

// reportReadiness keeps a component per driver: not ready until every object was answered once, degraded while its
// process is down, its watches fail or its replay is held. It tells systemd the same in a sentence, and that the core
// turns. It ends with ctx, and its components with it.
func (r *runtime) reportReadiness(ctx context.Context, registry *health.Registry, notify *service.Notifier,
	progress *service.Progress,
) {
	beat := progress.Watch("core", stalledAfter)
	defer beat.End()
	components := map[string]*health.Component{}
	for _, w := range r.watchers {
		components[w.Name()] = registry.Component("driver " + w.Name())
	}
	if r.candidate != nil {
		components[leaderComponent] = registry.Component(leaderComponent)
	}
	if r.hasOVN() {
		components[ovnComponent] = registry.Component(ovnComponent)
	}
	works := &works{
		progress: progress, within: stillAfter(r.loaded.Values.Duration(OptionGroup, "translate_timeout")),
		byName: map[string]*service.Work{},
	}
	defer works.end()
	loop := service.Loop{Clock: clock.RealClock{}, Name: "readiness", Logger: r.log, Interval: readinessInterval}
	err := loop.Run(ctx, func(context.Context) error {
		r.readiness(components)
		r.reportLinks(registry)
		notify.Status("%s", r.sentence(registry.Reports()))
		works.look(r.engine().Work(), r.cloud.Busy())
		beat.Turn()
		return nil
	})
	if err != nil {
		r.log.Error("reporting readiness ended", "error", err)
	}
	for _, c := range components {
		c.Remove()
	}
}

// works are the engine's queues and loops as the watchdog sees them.
type works struct {
	progress *service.Progress
	within   time.Duration
	byName   map[string]*service.Work
}

func (w *works) look(list []reconcile.Work, busy bool) {
	for _, one := range list {
		if w.byName[one.Name] == nil {
			w.byName[one.Name] = w.progress.Work(one.Name, w.within)
		}
		w.byName[one.Name].Look(one.Held, one.Ended, busy)
	}
}

func (w *works) end() {
	for _, one := range w.byName {
		one.End()
	}
}

func (r *runtime) readiness(components map[string]*health.Component) {
	drivers := map[string]reconcile.DriverStatus{}
	for _, d := range r.engine().Drivers() {
		drivers[d.Name] = d
	}
	if r.candidate != nil {
		r.leadership(components[leaderComponent])
	}
	if c := components[ovnComponent]; c != nil {
		r.reportOVN(c)
	}
	for _, w := range r.watchers {
		w.Health(components[w.Name()], drivers[w.Name()])
	}
}

// sentence says how all stand, for systemctl status.
func (r *runtime) sentence(reports []health.Report) string {
	counts := r.engine().Counts()
	total := 0
	var parts []string
	for _, phase := range []state.Phase{state.Done, state.Pending, state.Waiting, state.Failing, state.Terminal} {
		if n := counts[phase]; n > 0 {
			total += n
			parts = append(parts, fmt.Sprintf("%d %s", n, phase))
		}
	}
	text := fmt.Sprintf("%d drivers, %d objects", len(r.watchers), total)
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	for _, report := range reports {
		if report.State != health.Ready {
			text += fmt.Sprintf("; %s is %s: %s", report.Name, report.State, report.Reason)
		}
	}
	return text
}
