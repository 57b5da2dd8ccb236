// SPDX-License-Identifier: Apache-2.0

package ovn_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
	ravenbackend "github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/ovn"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// database is a northbound database that can be unavailable in the middle of anything.
type database struct {
	rows        []plan.Observed
	unavailable map[drivers.Kind]error // of lists
	lost        error                  // of single rows
	refused     error                  // of writes
	listed      func()                 // once, after a list was made
}

func (d *database) List(kind drivers.Kind) ([]plan.Observed, error) {
	list := slices.DeleteFunc(slices.Clone(d.rows), func(o plan.Observed) bool { return o.Kind != kind })
	if happen := d.listed; happen != nil && kind == kindBalancer {
		d.listed = nil
		happen()
	}
	return list, d.unavailable[kind]
}

func (d *database) Get(kind drivers.Kind, id string) (plan.Observed, bool, error) {
	i := slices.IndexFunc(d.rows, func(o plan.Observed) bool { return o.Kind == kind && o.ID == id })
	if i < 0 || d.lost != nil {
		return plan.Observed{}, false, d.lost
	}
	return d.rows[i], true, nil
}

func (d *database) Create(
	_ context.Context, kind drivers.Kind, identity plan.Identity, attrs map[string]any,
) (plan.Observed, error) {
	if d.refused != nil {
		return plan.Observed{}, d.refused
	}
	return plan.Observed{Kind: kind, ID: ovn.ID(kind, identity), Identity: identity, Managed: true, Attrs: attrs}, nil
}

func (d *database) Update(_ context.Context, kind drivers.Kind, id string, _ map[string]any) (plan.Observed, error) {
	now, _, err := d.Get(kind, id)
	return now, errors.Join(err, d.refused)
}

func (*database) Templates() bool { return true }

func (d *database) Delete(context.Context, drivers.Kind, string) error { return d.refused }

// rows is a loop around a backend: it lists, and notes what it is asked.
type rows struct {
	*testing.T
	*ravenbackend.Registration
	follower ovn.Follower
	state    *state.Loop
	woken    []state.Request
	lists    int // that were asked for
	drifted  int
}

func newRows(t *testing.T, d ovn.Database) *rows {
	t.Helper()
	r := &rows{T: t}
	r.state = state.New(state.Config{
		Cluster: "c", Drivers: []string{"a"}, Kinds: plan.NewKinds(ovn.Kinds()...), Clock: clock.RealClock{},
		Deliver: func(requests []state.Request) { r.woken = append(r.woken, requests...) },
	})
	b := ovn.NewBackend(d, ravenbackend.Env{
		State: r.state.State, Loop: r, Clock: clock.RealClock{}, Cluster: "c",
		Timing: ravenbackend.Timing{SlowRetry: time.Minute},
	})
	r.Registration, r.follower = b.Registration(), b.Follower()
	hooks := r.Hooks
	hooks.Backend, hooks.Kinds = r.Name, []drivers.Kind{kindGroup, kindBalancer}
	if err := r.state.Register(hooks); err != nil {
		t.Fatal(err)
	}
	return r
}

// observe lists as the loop does.
func (r *rows) observe() {
	r.Helper()
	var begun uint64
	r.state.View(func(tx *state.LoopTx) { begun = tx.Cache.Sequence() })
	list, err := r.List(r.Context(), "c")
	r.take(list, err, begun)
}

// take takes a list over as the loop does.
func (r *rows) take(list []plan.Observed, err error, begun uint64) {
	r.state.Update(func(tx *state.LoopTx) {
		tx.SetListed(kindBalancer, err, false)
		tx.Observe(func(drivers.Kind) bool { return err == nil }, list, begun)
		r.Listed(tx.Tx, err)
	})
}

func (r *rows) known(id string) (known bool) {
	r.state.View(func(tx *state.LoopTx) { _, known = tx.Cache.Get(kindBalancer, id) })
	return known
}

// RequestList implements backend.Loop.
func (r *rows) RequestList(time.Duration) { r.lists++ }

// Reread implements backend.Loop.
func (r *rows) Reread(ctx context.Context, kind drivers.Kind, id string) (bool, error) {
	now, err := r.Get(ctx, kind, id)
	gone := errors.Is(err, ravenbackend.ErrNotFound)
	if err != nil && !gone {
		return false, err
	}
	r.state.Update(func(tx *state.LoopTx) {
		if gone {
			tx.Depart(kind, id)
		} else {
			tx.Arrive(now)
		}
	})
	return gone, nil
}

// Adopt implements backend.Loop.
func (*rows) Adopt(context.Context, plan.Step) (bool, error) { return false, nil }

// Source implements backend.Loop.
func (*rows) Source(plan.Owner) (drivers.Object, string) { return drivers.Object{}, "" }

func (*rows) Annotations(func(string, map[string]string)) bool { return true }

// Drifted implements backend.Loop.
func (r *rows) Drifted(changes []state.Drift) { r.drifted += len(changes) }

func balancerRow(id string) plan.Observed {
	identity := plan.Identity{Cluster: "c", Owner: plan.Owner{Driver: "a", UID: "u"}, Name: "ovn"}
	attrs := map[string]any{"name": "shop"}
	return plan.Observed{Kind: kindBalancer, ID: id, Identity: identity, Managed: true, Attrs: attrs}
}

// TestBackAndUnavailableAgain: the database counts as available when all of it was read, and not before; one that was
// never listed is listed then, and counts with that.
func TestBackAndUnavailableAgain(t *testing.T) {
	gone := &ovn.UnavailableError{Err: errors.New("cut")}
	for name, c := range map[string]struct {
		db   database
		want bool
	}{
		"all of it is read":             {db: database{}, want: true},
		"it cannot be read row by row":  {db: database{lost: gone}, want: true},
		"it is lost while it is listed": {db: database{unavailable: map[drivers.Kind]error{kindBalancer: gone}}},
		"it is lost before that":        {db: database{unavailable: map[drivers.Kind]error{kindGroup: gone}}},
	} {
		for _, before := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				d := &database{unavailable: map[drivers.Kind]error{kindGroup: gone}}
				if before {
					d.unavailable = nil
				}
				r := newRows(t, d)
				d.rows = []plan.Observed{balancerRow("old")}
				r.observe()
				d.unavailable = map[drivers.Kind]error{kindGroup: gone}
				r.observe()
				*d = c.db
				d.rows = []plan.Observed{balancerRow("new")}
				r.state.Update(func(tx *state.LoopTx) {
					o := tx.Ensure(state.Request{Driver: "a"}, state.Target{UID: "u"})
					tx.Wait(o, []state.Key{state.ByBackend(r.Name)}, nil)
				})
				r.woken = nil
				r.follower.Back()
				var available error
				r.state.View(func(tx *state.LoopTx) { available = tx.Unavailable(kindBalancer) })
				if r.known("new") != c.want || r.known("old") != (before && !c.want) {
					t.Errorf("the new row is known: %t, the old one still: %t", r.known("new"), r.known("old"))
				}
				if listed := c.want && !before; (available == nil) != (c.want && before) || (r.lists == 1) != listed {
					t.Errorf("it is unavailable for %v, and %d lists are asked for", available, r.lists)
				}
				// What was never listed before is no drift.
				if (len(r.woken) > 0) != c.want || (r.drifted > 0) != (c.want && before) {
					t.Errorf("%d are woken, %d have drifted", len(r.woken), r.drifted)
				}
			})
		}
	}
}

// TestToldWhileTheFirstListIsMade: what changes after the database was listed and before that is taken over is not
// lost.
func TestToldWhileTheFirstListIsMade(t *testing.T) {
	for name, tell := range map[string]func(ovn.Follower){
		"a row has changed": func(f ovn.Follower) { f.Changed([]ovn.Resource{{Kind: kindBalancer, ID: "new"}}) },
		"it is back":        func(f ovn.Follower) { f.Back() },
	} {
		t.Run(name, func(t *testing.T) {
			d := &database{rows: []plan.Observed{balancerRow("old")}}
			r := newRows(t, d)
			d.listed = func() {
				d.rows = []plan.Observed{balancerRow("new")}
				tell(r.follower)
			}
			r.observe()
			if !r.known("new") || r.known("old") {
				t.Errorf("the new row is known: %t, the old one still: %t", r.known("new"), r.known("old"))
			}
		})
	}
}

// TestBackWhileItIsListed: a database that comes back after it could not be listed, and before that is noted, does not
// stay unavailable.
func TestBackWhileItIsListed(t *testing.T) {
	d := &database{}
	r := newRows(t, d)
	r.observe()
	d.unavailable = map[drivers.Kind]error{kindBalancer: &ovn.UnavailableError{Err: errors.New("cut")}}
	var begun uint64
	r.state.View(func(tx *state.LoopTx) { begun = tx.Cache.Sequence() })
	_, err := r.List(t.Context(), "c")
	d.unavailable, d.rows = nil, []plan.Observed{balancerRow("new")}
	r.follower.Back()
	r.take(nil, err, begun)
	r.state.View(func(tx *state.LoopTx) {
		if err := tx.Unavailable(kindBalancer); err != nil {
			t.Errorf("unavailable: %v", err)
		}
	})
	if !r.known("new") {
		t.Error("the row is not known")
	}
}

// TestRefusedByTheDatabase: what an error of the database means for the object. Who waits for several rows of Neutron's
// goes on when any of them has come, for another one may never come.
func TestRefusedByTheDatabase(t *testing.T) {
	slow := time.Minute
	for name, c := range map[string]struct {
		err  error
		want ravenbackend.Failure
	}{
		"unavailable": {&ovn.UnavailableError{Err: errors.New("cut")}, ravenbackend.Failure{
			Phase: state.Waiting, RequeueAfter: slow, Quiet: true,
			Wait: []state.Key{state.ByBackend("OVN's northbound database")},
		}},
		"rows are missing": {&ovn.MissingError{Rows: []string{"neutron-a", "neutron-b"}}, ravenbackend.Failure{
			Phase: state.Waiting, RequeueAfter: slow, Quiet: true,
			Wait: []state.Key{{What: "row", Name: "neutron-a"}, {What: "row", Name: "neutron-b"}},
		}},
		"a VIP is taken": {&ovn.ConflictError{Holder: "other"}, ravenbackend.Failure{
			Phase: state.Waiting, RequeueAfter: slow, Wait: []state.Key{state.ByGone("other")},
		}},
		"invalid": {&ovn.InvalidError{Reason: "no"}, ravenbackend.Failure{Phase: state.Terminal}},
		"gone": {&ovn.GoneError{ID: "old"}, ravenbackend.Failure{
			Phase: state.Failing, Backoff: true, Replan: true,
		}},
		"everything else": {errors.New("odd"), ravenbackend.Failure{Phase: state.Failing, Backoff: true}},
	} {
		t.Run(name, func(t *testing.T) {
			d := &database{rows: []plan.Observed{balancerRow("old")}}
			r := newRows(t, d)
			r.observe()
			d.rows, d.refused = nil, c.err
			step := plan.Step{Op: plan.Update, Kind: kindBalancer, ID: "old", Identity: balancerRow("old").Identity}
			if name != "gone" {
				d.rows = []plan.Observed{balancerRow("old")}
			}
			var f *ravenbackend.Failure
			if err := r.Apply(t.Context(), step.Identity.Owner, &step); !errors.As(err, &f) || !errors.Is(err, c.err) {
				t.Fatalf("got %v", err)
			}
			got := *f
			got.Err = nil
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if r.known("old") == (name == "gone") {
				t.Errorf("what it was about is known: %t", r.known("old"))
			}
		})
	}
}

// TestNoDatabase: there is nothing, and who desires something there is told why it cannot be.
func TestNoDatabase(t *testing.T) {
	r := newRows(t, nil)
	r.observe()
	r.state.View(func(tx *state.LoopTx) {
		if !tx.Listed(kindBalancer) {
			t.Error("it counts as not listed")
		}
	})
	step := plan.Step{Op: plan.Create, Kind: kindBalancer, Identity: balancerRow("").Identity}
	var f *ravenbackend.Failure
	err := r.Apply(t.Context(), step.Identity.Owner, &step)
	if !errors.As(err, &f) || f.Phase != state.Terminal || f.RequeueAfter > 0 {
		t.Errorf("got %v", err)
	}
	if _, err := r.Get(t.Context(), kindGroup, "g"); !errors.As(err, &f) || f.Phase != state.Terminal {
		t.Errorf("got %v", err)
	}
}
