// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// softly is a Set with a port in a group of its own, and in the exported groups of these ConfigMaps as far as they are
// there.
func softly(maps ...string) drivers.Set {
	groups := []drivers.Value{drivers.From("group")}
	for _, name := range maps {
		groups = append(groups, drivers.Soft(of(name, "joined")))
	}
	p := port("web")
	spec, _ := p.Spec.(drivers.Port)
	spec.SecurityGroups = groups
	p.Spec = spec
	return setOf(network("shop"), subnet("shop", "10.1.0.0/24"), group("own"), p)
}

// joined exports a group without default rules by the name of its ConfigMap.
func joined(name string, _ *drivers.Needs) (drivers.Set, error) {
	return setOf(exporting(bareGroup(name), "joined")), nil
}

func waitingSoftly(d time.Duration) func(*config) {
	return func(c *config) { c.SoftWait = d }
}

// asked lists what was asked of ports and groups, in order.
func (w *world) asked(method, kind string) (bodies []string) {
	for _, r := range w.cloud.Log(0) {
		if r.Method == method && r.Kind == kind {
			bodies = append(bodies, r.Body)
		}
	}
	return bodies
}

// TestSoftReferencesAreWaitedFor by a port that is yet to be made: it is made once, with the group.
func TestSoftReferencesAreWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	a, b := script("a", always(softly("g"))), script("b", joined)
	r := w.start(with(a, b).configured(waitingSoftly(time.Hour)))
	w.createMap("a", "x")
	r.stands("a", "x", state.Waiting, "joined of ConfigMap default/g")
	if ports := w.named("port", "web"); len(ports) != 0 {
		t.Errorf("the port did not wait: %v", ports)
	}
	w.createMap("b", "g")
	r.settled(2)
	w.hasGroups("web", "g own")
	if n := len(w.asked(http.MethodPut, "port")); n != 0 {
		t.Errorf("the port was changed %d times after it was made", n)
	}
}

// TestSoftReferencesAreLeftOut after a time, with an Event; the port joins when the group is there, and leaves it
// before that is deleted.
func TestSoftReferencesAreLeftOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	a, b := script("a", always(softly("g", "h"))), script("b", joined)
	r := w.start(with(a, b).configured(waitingSoftly(50 * time.Millisecond)))
	w.createMap("a", "x")
	w.hasGroups("web", "own")
	r.stands("a", "x", state.Waiting,
		`security_groups of port "port" waits for the id of the joined of ConfigMap default/g`)
	w.eventually("an Event says it", func() (bool, string) {
		list, err := w.kube.List(events(), "default")
		said := fmt.Sprint(list, err)
		return strings.Count(said, "MissingReference") == 1, said
	})
	if n := len(w.asked(http.MethodPost, "port")); n != 1 {
		t.Errorf("the port was made %d times", n)
	}
	w.createMap("b", "g")
	w.hasGroups("web", "g own")
	w.createMap("b", "h")
	r.settled(3)
	w.hasGroups("web", "g h own")

	// The group goes: the port leaves it before.
	id := text(w.one("security_group", "g"), "id")
	w.cloud.ResetLog()
	w.deleteMap("g")
	w.none("security_group", "g")
	w.hasGroups("web", "h own")
	var order []string
	for _, req := range w.cloud.Log(0) {
		if req.Method == http.MethodPut && req.Kind == "port" || req.Method == http.MethodDelete &&
			strings.HasSuffix(req.Path, id) {
			order = append(order, fmt.Sprint(req.Method, " ", req.Kind, " ", req.Status))
		}
	}
	if !slices.Equal(order, []string{"PUT port 200", "DELETE security_group 204"}) {
		t.Errorf("requests in this order: %v", order)
	}
}

// TestSoftReferencesOutliveARestart in which who exports the groups has not answered: the port stays in them, and
// nothing is written.
func TestSoftReferencesOutliveARestart(t *testing.T) {
	t.Parallel()
	for name, claim := range map[string]string{"own": "", "claimed": "everybody's"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, simkube.Options{}, simcloud.Options{})
			says := func(name string, needs *drivers.Needs) (drivers.Set, error) {
				set, err := joined(name, needs)
				set.Resources[0].Claim = claim
				return set, err
			}
			a, b := script("a", always(softly("g"))), script("b", says)
			s := with(a, b).configured(waitingSoftly(time.Millisecond))
			r := w.start(s)
			w.createMap("b", "g")
			w.createMap("a", "x")
			r.settled(2)
			w.hasGroups("web", "g own")
			r.stop()
			w.cloud.ResetLog()
			b.now(func(string, *drivers.Needs) (drivers.Set, error) { return drivers.Set{}, drivers.ErrUnavailable })
			r = w.start(s)
			r.stands("a", "x", state.Waiting, "joined of ConfigMap default/g")
			time.Sleep(50 * time.Millisecond) // so that a write that must not come had its time
			b.now(says)
			r.settled(2)
			w.hasGroups("web", "g own")
			if n := w.cloud.Stats().Writes; n != 0 {
				t.Errorf("a restart wrote %d times, of ports: %v", n, w.asked(http.MethodPut, "port"))
			}
			// What is not exported any more is left, once everybody has answered.
			b.now(always(setOf()))
			r.engine.Replay("b")
			w.hasGroups("web", "own")
		})
	}
}

// TestSoftReferencesToALookupOutliveARestart in which the lookup is not known: its driver has not answered, or it
// cannot be read.
func TestSoftReferencesToALookupOutliveARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	w.by("POST", "/security-groups", doc("security_group", "name", "g"), 201)
	says := always(setOf(exporting(lookedUp(drivers.KindSecurityGroup, "g"), "joined")))
	a, b := script("a", always(softly("g"))), script("b", says)
	s := with(a, b).configured(waitingSoftly(time.Millisecond))
	r := w.start(s)
	w.createMap("b", "g")
	w.createMap("a", "x")
	r.settled(2)
	w.hasGroups("web", "g own")
	r.stop()
	w.cloud.ResetLog()
	b.now(func(string, *drivers.Needs) (drivers.Set, error) { return drivers.Set{}, drivers.ErrUnavailable })
	w.fault(simcloud.Rule{
		Method: "GET", Path: "/v2.0/security-groups", Query: "name=g", Action: simcloud.ActionStatus, Status: 503,
	})
	r = w.start(s)
	r.stands("a", "x", state.Waiting, "joined of ConfigMap default/g")
	b.now(says)
	r.stands("b", "g", state.Failing, `looking up the configured security_group "g"`)
	asked := a.asked()
	r.engine.Replay("a") // the port is planned again, with all that have answered
	w.eventually("a is asked again", func() (bool, string) { return a.asked() > asked, "" })
	r.stands("a", "x", state.Waiting, "joined of ConfigMap default/g")
	w.cloud.ClearFaults()
	r.settled(2)
	w.hasGroups("web", "g own")
	if n := w.cloud.Stats().Writes; n != 0 {
		t.Errorf("a restart wrote %d times, of ports: %v", n, w.asked(http.MethodPut, "port"))
	}
	b.now(always(setOf()))
	r.engine.Replay("b")
	w.hasGroups("web", "own")
}

// TestSoftReferenceThatLeadsTwoWays, since two drivers export the role: the port that is there keeps its groups.
func TestSoftReferenceThatLeadsTwoWays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	other := script("c", always(setOf()))
	other.matching = "for=b"
	a, b := script("a", always(softly("g"))), script("b", joined)
	r := w.start(with(a, b, other).configured(waitingSoftly(time.Millisecond)))
	w.createMap("b", "g")
	w.createMap("a", "x")
	r.settled(3)
	w.hasGroups("web", "g own")
	w.cloud.ResetLog()
	other.now(joined)
	r.engine.Replay("c")
	r.stands("a", "x", state.Waiting, "exported more than once")
	other.now(always(setOf()))
	r.engine.Replay("c")
	r.settled(3)
	w.hasGroups("web", "g own")
	if n := len(w.asked(http.MethodPut, "port")); n != 0 {
		t.Errorf("the port was changed %d times", n)
	}
}

// TestSoftReferenceToWhatIsNotUsable: a port stays in a group that has got a rule of others until that is deleted.
func TestSoftReferenceToWhatIsNotUsable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	a, b := script("a", always(softly("g"))), script("b", joined)
	r := w.start(with(a, b).configured(waitingSoftly(time.Millisecond)))
	w.createMap("b", "g")
	w.createMap("a", "x")
	r.settled(2)
	w.hasGroups("web", "g own")
	w.fault(simcloud.Rule{
		Method: http.MethodDelete, Kind: "security_group_rule", Action: simcloud.ActionStatus, Status: 500,
	})
	w.by(http.MethodPost, "/security-group-rules", map[string]any{"security_group_rule": map[string]any{
		"security_group_id": w.one("security_group", "g")["id"], "direction": "egress", "ethertype": "IPv4",
	}}, http.StatusCreated)
	w.cloud.ResetLog()
	if err := r.engine.Observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.stands("a", "x", state.Waiting, "joined of ConfigMap default/g")
	w.cloud.ClearFaults()
	r.settled(2)
	w.hasGroups("web", "g own")
	if n := len(w.asked(http.MethodPut, "port")); n != 0 {
		t.Errorf("the port was changed %d times", n)
	}
	if o := r.engine.Objects(reconcile.Filter{Driver: "a"}); len(o) != 1 || o[0].State != state.Done {
		t.Errorf("objects are %v", o)
	}
}
