package reconcile

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/ovn"
	"github.com/kuryr/raven/service/plan"
)

// database is a northbound database that can be away in the middle of anything.
type database struct {
	Northbound
	rows   []plan.Observed
	away   map[drivers.Kind]error // of lists
	lost   error                  // of single rows
	listed func()                 // once, after a list was made
}

func (d *database) List(kind drivers.Kind) ([]plan.Observed, error) {
	list := slices.DeleteFunc(slices.Clone(d.rows), func(o plan.Observed) bool { return o.Kind != kind })
	if happen := d.listed; happen != nil && kind == drivers.KindOVNLoadBalancer {
		d.listed = nil
		happen()
	}
	return list, d.away[kind]
}

func (d *database) Get(kind drivers.Kind, id string) (plan.Observed, bool, error) {
	i := slices.IndexFunc(d.rows, func(o plan.Observed) bool { return o.Kind == kind && o.ID == id })
	if i < 0 || d.lost != nil {
		return plan.Observed{}, false, d.lost
	}
	return d.rows[i], true, nil
}

// nothing is a cloud with nothing in it.
type nothing struct{ Cloud }

func (nothing) Observe(context.Context, string) ([]plan.Observed, error) { return nil, nil }
func (nothing) ObserveKind(context.Context, drivers.Kind, string) ([]plan.Observed, error) {
	return nil, nil
}

func row(id string) plan.Observed {
	identity := plan.Identity{Cluster: "c", Owner: plan.Owner{Driver: "a", UID: "u"}, Name: "ovn"}
	return plan.Observed{Kind: drivers.KindOVNLoadBalancer, ID: id, Identity: identity, Managed: true, Attrs: map[string]any{"name": "shop"}}
}

func northboundEngine(d *database) *Engine {
	e := mergeEngine(&meanwhile{Cloud: nothing{}})
	e.metrics, e.config.Northbound, e.store.northbound.configured = newMetrics(), d, true
	return e
}

// TestBackAndAwayAgain: the database counts as seen when all of it was read, and not before.
func TestBackAndAwayAgain(t *testing.T) {
	gone := &ovn.AwayError{Err: errors.New("cut")}
	for name, c := range map[string]struct {
		db   database
		want bool
	}{
		"all of it is read":                 {db: database{}, want: true},
		"it cannot be read row by row":      {db: database{lost: gone}, want: true},
		"it goes while it is listed":        {db: database{away: map[drivers.Kind]error{drivers.KindOVNLoadBalancer: gone}}},
		"it goes before anything is listed": {db: database{away: map[drivers.Kind]error{drivers.KindOVNLoadBalancerGroup: gone}}},
	} {
		t.Run(name, func(t *testing.T) {
			d := &c.db
			e := northboundEngine(d)
			e.store.synced = time.Now()
			e.store.cloud.put(row("old"))
			d.rows = []plan.Observed{row("new")}
			o := e.store.ensureOwner(item{driver: "a"}, target{uid: "u"}, e.clock.Now())
			e.store.wait(o, []waitKey{waitNorthbound()})
			e.FollowNorthbound().Back()
			_, has := e.store.cloud.get(drivers.KindOVNLoadBalancer, "new")
			_, had := e.store.cloud.get(drivers.KindOVNLoadBalancer, "old")
			if seen := e.store.northbound.seen; seen != c.want || has != c.want || had == c.want {
				t.Errorf("it counts as seen: %t, the new row is known: %t, the old one still: %t", seen, has, had)
			}
		})
	}
}

// TestToldWhileTheFirstListIsMade: what changes after the database was listed and before that is taken over is not lost.
func TestToldWhileTheFirstListIsMade(t *testing.T) {
	for name, tell := range map[string]func(ovn.Follower){
		"a row has changed": func(f ovn.Follower) { f.Changed([]ovn.Resource{{Kind: drivers.KindOVNLoadBalancer, ID: "new"}}) },
		"it is back":        func(f ovn.Follower) { f.Back() },
	} {
		t.Run(name, func(t *testing.T) {
			d := &database{rows: []plan.Observed{row("old")}}
			e := northboundEngine(d)
			follower := e.FollowNorthbound()
			d.listed = func() {
				d.rows = []plan.Observed{row("new")}
				tell(follower)
			}
			if err := e.Observe(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, has := e.store.cloud.get(drivers.KindOVNLoadBalancer, "new")
			if _, had := e.store.cloud.get(drivers.KindOVNLoadBalancer, "old"); !has || had {
				t.Errorf("the new row is known: %t, the old one still: %t", has, had)
			}
		})
	}
}
