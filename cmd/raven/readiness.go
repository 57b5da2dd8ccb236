package main

import (
	"context"
	"time"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/service"
	"github.com/kuryr/raven/service/health"
	"github.com/kuryr/raven/service/host"
)

// readinessInterval is the time between two looks at how the watchers stand.
const readinessInterval = time.Second

// reportReadiness keeps a component per driver: not ready until every object was answered once, degraded while its process is
// down, its watches fail or its replay is held. It ends with ctx, and its components with it.
func (r *runtime) reportReadiness(ctx context.Context, registry *health.Registry) {
	components := map[string]*health.Component{}
	for _, u := range r.units {
		components[u.program.name] = registry.Component("driver " + u.program.name)
	}
	if r.candidate != nil {
		components[leaderComponent] = registry.Component(leaderComponent)
	}
	loop := service.Loop{Clock: clock.RealClock{}, Interval: readinessInterval}
	err := loop.Run(ctx, func(context.Context) error {
		r.readiness(components)
		return nil
	})
	if err != nil {
		r.log.Error("readiness is not reported any more", "error", err)
	}
	for _, c := range components {
		c.Remove()
	}
}

func (r *runtime) readiness(components map[string]*health.Component) {
	replayed := map[string]bool{}
	held := map[string]string{}
	for _, d := range r.engine().Drivers() {
		replayed[d.Name] = d.Replayed
		if d.Guard != nil {
			held[d.Name] = d.Guard.String()
		}
	}
	if r.candidate != nil {
		r.leadership(components[leaderComponent])
	}
	for _, u := range r.units {
		name := u.program.name
		c := components[name]
		status := u.plugin.Status()
		switch {
		case status.State != host.Ready:
			c.Degraded("its process is " + string(status.State) + ": " + status.LastExit)
		case u.replaced.Load():
			c.Degraded(replacedText)
		case held[name] != "":
			c.Degraded(held[name])
		case u.failing() != "":
			c.Degraded(u.failing())
		case !replayed[name]:
			c.NotReady("it has not answered for every object yet")
		default:
			c.Ready()
		}
	}
}

// failing says which of the unit's watches does not work now, and why.
func (u *unit) failing() string {
	for _, w := range u.source.Status() {
		if w.Error != "" {
			return "watch " + w.Watch + ": " + w.Error
		}
	}
	return ""
}
