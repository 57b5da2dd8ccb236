// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
	"github.com/kuryr/raven/test/backend"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// noted is a driver's answer with one note.
func noted(text, color string) func(string, *drivers.Needs) (drivers.Set, error) {
	return func(name string, _ *drivers.Needs) (drivers.Set, error) {
		return setOf(drivers.Resource{
			Name: "note", Spec: backend.Note{Name: new(name), Text: new(text), Color: new(color)},
		}), nil
	}
}

// notes is a world with a backend that nothing in the loop knows of.
type notes struct {
	*world
	memory *backend.Memory
	driver *scripted
}

func newNotes(t *testing.T) *notes {
	t.Helper()
	d := script("a", noted("hello", "red"))
	d.kinds = append(d.kinds, backend.KindNote)
	return &notes{newWorld(t, simkube.Options{}, simcloud.Options{}), backend.New(), d}
}

func (n *notes) run() *raven {
	n.t.Helper()
	return n.start(with(n.driver).backed(n.memory).configured(func(c *config) {
		c.DriftInterval, c.SlowRetry, c.AmbiguousWait = 50*time.Millisecond, 50*time.Millisecond, 100*time.Millisecond
	}))
}

func (n *notes) reads(want map[string]string) {
	n.t.Helper()
	n.eventually(fmt.Sprint("notes ", want), func() (bool, string) {
		got := n.memory.Notes()
		return maps.Equal(got, want), fmt.Sprint(got)
	})
}

// TestAFourthBackend goes through create, update, replacement, drift, restart and delete with a kind that neither the
// loop nor plan nor the state names.
func TestAFourthBackend(t *testing.T) {
	t.Parallel()
	n := newNotes(t)
	r := n.run()
	n.createMap("a", "x")
	r.settled(1)
	n.reads(map[string]string{"x": "hello red"})
	n.driver.now(noted("goodbye", "red"))
	r.engine.Replay("a")
	n.reads(map[string]string{"x": "goodbye red"})
	n.driver.now(noted("goodbye", "blue"))
	r.engine.Replay("a")
	n.reads(map[string]string{"x": "goodbye blue"})
	if diff := cmp.Diff([]plan.Op{plan.Create, plan.Update, plan.Delete, plan.Create}, n.memory.Steps()); diff != "" {
		t.Error(diff)
	}
	n.memory.Change("scribble", false)
	n.reads(map[string]string{"x": "goodbye blue"})
	n.memory.Change("", true)
	n.reads(map[string]string{"x": "goodbye blue"})
	r.settled(1)
	r.stop()
	before := n.memory.Steps()
	r = n.run()
	r.settled(1)
	if after := n.memory.Steps(); !slices.Equal(before, after) {
		t.Errorf("a restart wrote %v", after[len(before):])
	}
	n.deleteMap("x")
	n.reads(map[string]string{})
	r.settled(0)
	for _, status := range r.engine.Objects(reconcile.Filter{}) {
		if status.Driver != state.Shared {
			t.Errorf("left: %+v", status)
		}
	}
}

// TestAFourthBackendThatCannotBeListed: an error is never an empty list: nothing is deleted, what concerns the
// backend waits and says why, and all else goes on.
func TestAFourthBackendThatCannotBeListed(t *testing.T) {
	t.Parallel()
	n := newNotes(t)
	r := n.run()
	n.createMap("a", "x")
	r.settled(1)
	n.memory.Fail(errors.New("the memory is out for lunch"))
	if err := r.engine.Observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.updateMap("x")
	r.stands("a", "x", state.Waiting, "waiting for the memory: the memory is out for lunch")
	n.driver.now(always(shop()))
	n.createMap("a", "y")
	r.stands("a", "y", state.Done, "")
	n.deleteMap("x")
	n.eventually("x waits", func() (bool, string) {
		all := r.engine.Objects(reconcile.Filter{Driver: "a", Name: "x"})
		return len(all) == 1 && all[0].Deleted && contains(all[0].Reasons, "out for lunch"), fmt.Sprint(all)
	})
	n.reads(map[string]string{"x": "hello red"})
	n.memory.Fail(nil)
	n.reads(map[string]string{})
	r.settled(1)
}

// TestABackendThatWasNeverListed: until a backend was listed once Raven does not know what a driver's answers end of
// it, so that the mass-deletion guard has to wait for it: deletions that come to light later are counted.
func TestABackendThatWasNeverListed(t *testing.T) {
	t.Parallel()
	n := newNotes(t)
	r := n.run()
	names := []string{"r", "s", "t", "u", "v", "w", "x", "y", "z"}
	for _, name := range names {
		n.createMap("a", name)
	}
	r.settled(len(names))
	r.stop()
	n.memory.Fail(errors.New("the memory is out for lunch"))
	n.driver.now(always(drivers.Set{}))
	r = n.start(with(n.driver).backed(n.memory).configured(func(c *config) {
		c.DriftInterval, c.SlowRetry, c.AmbiguousWait = 50*time.Millisecond, 50*time.Millisecond, 100*time.Millisecond
		c.MaxReplayDeletes, c.MaxReplayDeleteShare = 3, 0.5
	}))
	n.eventually("all are answered", func() (bool, string) { return r.engine.Replayed(), "" })
	if held := r.engine.Guards(); len(held) > 0 {
		t.Errorf("the guard holds %v of what no list has shown", held)
	}
	n.memory.Fail(nil)
	n.eventually("the guard holds", func() (bool, string) {
		held := r.engine.Guards()
		return len(held) == 1 && held[0].Held == len(names), fmt.Sprint(held)
	})
	if got := n.memory.Notes(); len(got) != len(names) {
		t.Errorf("left: %v", got)
	}
}
