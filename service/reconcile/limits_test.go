// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

func guests(network string) func(string, *drivers.Needs) (drivers.Set, error) {
	return func(name string, _ *drivers.Needs) (drivers.Set, error) {
		home := of(network, "home")
		return setOf(drivers.Resource{
			Name: "port", Spec: drivers.Port{Name: new(name), NetworkID: drivers.FromRole(home)},
			After: []drivers.Ref{{Role: new(of(network, "rooms"))}},
		}), nil
	}
}

func expandable(most int) drivers.Set {
	s := drivers.Resource{Name: "subnet", Expand: most, Exports: []string{"rooms"}, Spec: drivers.Subnet{
		Name: new("rooms"), NetworkID: drivers.From("network"), IPVersion: new(int64(4)),
		SubnetPoolID: drivers.From("pool"), PrefixLength: new(int64(29)),
	}}
	pool := drivers.Resource{Name: "pool", Spec: drivers.SubnetPool{
		Name: new("pool"), Prefixes: []string{"10.1.0.0/27"}, DefaultPrefixLen: new(int64(29)), MinPrefixLen: new(int64(29)),
	}}
	return setOf(exporting(network("home"), "home"), pool, s, router("home"), attachment())
}

// TestFullSubnets: another subnet with its router interface comes, up to the bound, which is then named. All go with
// the owner.
func TestFullSubnets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	a, b := script("a", always(expandable(3))), script("b", guests("x"))
	r := w.start(with(a, b))
	w.createMap("a", "x")
	r.settled(1)
	for i := range 10 { // five in each
		w.createMap("b", fmt.Sprintf("p%d", i))
	}
	r.settled(11)
	if n := len(w.cloud.Subnets()) - 1; n != 2 {
		t.Errorf("%d subnets, want 2", n)
	}
	r.stop()
	r = w.start(with(a, b))
	for i := range 8 {
		w.createMap("b", fmt.Sprintf("q%d", i))
	}
	var full string
	w.eventually("three wait", func() (bool, string) {
		list := r.engine.Objects(reconcile.Filter{Driver: "b", State: state.Waiting})
		if len(list) == 3 {
			full = list[0].Name
		}
		return len(list) == 3 && r.engine.Counts()[state.Done] == 1+15, fmt.Sprint(r.engine.Counts())
	})
	r.stands("b", full, state.Waiting, "at most 3 subnets: allow it more of them, or larger ones")
	w.eventually("three are there", func() (bool, string) { return len(w.cloud.Subnets())-1 == 3, w.dump() })
	w.eventually("three router interfaces are there", func() (bool, string) {
		interfaces := 0
		for _, p := range w.cloud.Ports() {
			if p["device_owner"] == "network:router_interface" {
				interfaces++
			}
		}
		return interfaces == 3, w.dump()
	})
	for i := range 10 { // those who leave make room
		w.deleteMap(fmt.Sprintf("p%d", i))
	}
	r.settled(9)
	for i := range 8 {
		w.deleteMap(fmt.Sprintf("q%d", i))
	}
	w.deleteMap("x")
	w.none("network", "home")
	w.none("subnetpool", "pool")
}

// TestQuota: who has none waits, goes on when another is deleted or the quota is raised, and delays no other object.
func TestQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{Quotas: map[string]int{"network": 3}})
	own := func(name string, _ *drivers.Needs) (drivers.Set, error) { return setOf(network(name)), nil }
	r := w.start(with(script("a", own), script("b", func(name string, _ *drivers.Needs) (drivers.Set, error) {
		return setOf(group(name)), nil
	})).configured(func(c *config) { c.SlowRetry = 400 * time.Millisecond }))
	waiting := func(n int) {
		t.Helper()
		w.eventually(fmt.Sprintf("%d wait", n), func() (bool, string) {
			list := r.engine.Objects(reconcile.Filter{Driver: "a", State: state.Waiting})
			return len(list) == n, fmt.Sprint(r.engine.Counts())
		})
	}
	for i := range 13 {
		w.createMap("a", fmt.Sprintf("n%d", i))
	}
	waiting(10)
	var have []reconcile.ObjectStatus
	w.eventually("three have theirs", func() (bool, string) {
		have = r.engine.Objects(reconcile.Filter{Driver: "a", State: state.Done})
		return len(have) == 3, fmt.Sprint(r.engine.Counts())
	})
	w.createMap("b", "free")
	r.stands("b", "free", state.Done, "")
	w.deleteMap(have[0].Name)
	waiting(9)
	w.cloud.ResetLog()
	began := time.Now()
	time.Sleep(time.Second)
	if n, took := len(w.writes()), time.Since(began); float64(n) > 30*took.Seconds() {
		t.Errorf("%d tries in %s while there is no quota", n, took)
	}
	w.cloud.SetQuota(w.cloud.ProjectID(simcloud.ProjectKuryr), "network", 100)
	r.settled(13)
}

func TestAPoolThatIsExhausted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	pool := claiming(drivers.Resource{Name: "pool", Spec: drivers.SubnetPool{
		Name: new("pool"), Prefixes: []string{"10.1.0.0/28"}, DefaultPrefixLen: new(int64(29)),
	}}, "pool")
	own := func(name string, _ *drivers.Needs) (drivers.Set, error) {
		return setOf(pool, network(name), drivers.Resource{Name: "subnet", Spec: drivers.Subnet{
			Name: new(name), NetworkID: drivers.From("network"), IPVersion: new(int64(4)), SubnetPoolID: drivers.From("pool"),
			PrefixLength: new(int64(29)),
		}}), nil
	}
	r := w.start(with(script("a", own)))
	for _, name := range []string{"x", "y"} {
		w.createMap("a", name)
	}
	r.settled(2)
	w.createMap("a", "z")
	r.stands("a", "z", state.Waiting, "creating subnet")
	w.deleteMap("x")
	r.settled(2)
}

// TestForeignUsersAreNamed, and the deletion goes on when they have gone.
func TestForeignUsersAreNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	r := w.start(with(script("a", always(setOf(network("shop"), subnet("shop", "10.1.0.0/24"))))))
	w.createMap("a", "x")
	r.settled(1)
	p := w.by("POST", "/ports", map[string]any{"port": map[string]any{
		"network_id": w.one("network", "shop")["id"], "name": "annas",
	}}, 201)["port"].(map[string]any)
	w.deleteMap("x")
	w.eventually("the foreign port is named", func() (bool, string) {
		for _, o := range r.engine.Objects(reconcile.Filter{Driver: "a", State: state.Waiting}) {
			return o.Deleted && len(o.Reasons) > 0 && contains(o.Reasons, `"annas"`), fmt.Sprint(o.Reasons)
		}
		return false, "no object waits"
	})
	w.by("DELETE", "/ports/"+text(p, "id"), nil, 204)
	w.none("network", "shop")
}

// TestAReferenceToWhatIsNotThere is refused for good, at once and without a storm, and heals when the thing comes.
func TestAReferenceToWhatIsNotThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	p := port("web")
	wanting := func(groups ...drivers.Value) drivers.Set {
		spec := p.Spec.(drivers.Port)
		spec.SecurityGroups = groups
		p.Spec = spec
		return setOf(network("shop"), subnet("shop", "10.1.0.0/24"), p)
	}
	missing := drivers.Text("11111111-2222-3333-4444-555555555555")
	a := script("a", always(wanting(missing)))
	r := w.start(with(a))
	w.createMap("a", "x")
	r.stands("a", "x", state.Terminal, "11111111-2222-3333-4444-555555555555")
	a.now(always(wanting()))
	r.engine.Replay("a")
	r.settled(1)
	w.cloud.ResetLog()
	a.now(always(wanting(missing)))
	r.engine.Replay("a")
	r.stands("a", "x", state.Terminal, "11111111-2222-3333-4444-555555555555")
	if log := w.cloud.Log(0); len(log) > 4 {
		t.Errorf("%d requests for one refusal", len(log))
	}
	w.one("port", "web")
}

// TestARefusalThatPlanningAnewDoesNotEnd ends the pass: every update is stale, whatever is read.
func TestARefusalThatPlanningAnewDoesNotEnd(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]simcloud.Rule{
		"stale": {
			Status: 412, Response: `{"NeutronError":{"type":"RevisionNumberConstraintFailed","message":"stale","detail":""}}`,
		},
		"exists": {
			Status: 409, Response: `{"NeutronError":{"type":"IpAddressAlreadyAllocated","message":"taken","detail":""}}`,
		},
		"gone": {Status: 404, Response: `{"NeutronError":{"type":"NetworkNotFound","message":"no such thing","detail":""}}`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, simkube.Options{}, simcloud.Options{})
			a := script("a", always(setOf(network("shop"))))
			r := w.start(with(a).configured(func(c *config) { c.BackoffBase = 150 * time.Millisecond }))
			w.createMap("a", "x")
			r.settled(1)
			fault.Method, fault.Path, fault.Action = "PUT", "networks/[^/]*$", simcloud.ActionStatus
			w.fault(fault)
			a.now(always(setOf(network("renamed"))))
			w.cloud.ResetLog()
			r.engine.Replay("a")
			w.eventually("it is not settled", func() (bool, string) {
				o := r.object("a", "x")
				return o.State == state.Failing || o.State == state.Terminal, string(o.State)
			})
			if log := w.cloud.Log(0); len(log) > 10 {
				t.Errorf("%d requests", len(log))
			}
			w.cloud.ClearFaults()
			if name == "gone" {
				r.engine.Replay("a")
			}
			r.settled(1)
			w.one("network", "renamed")
		})
	}
}

// warnings is a handler of logs that counts the warnings with a message.
type warnings struct {
	slog.Handler
	message string
	n       *atomic.Int32
}

func (w warnings) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (w warnings) Handle(_ context.Context, record slog.Record) error {
	if record.Message == w.message {
		w.n.Add(1)
	}
	return nil
}

func (w warnings) WithAttrs([]slog.Attr) slog.Handler { return w }
func (w warnings) WithGroup(string) slog.Handler      { return w }

// TestAWaitIsWarnedOfOnce, however often its text changes; and anew when the object waits again.
func TestAWaitIsWarnedOfOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	var n atomic.Int32
	s := with(script("a", always(setOf(network("home"))))).configured(soon)
	s.log = slog.New(warnings{message: "waiting for", n: &n})
	r := w.start(s)
	exhausted := func(why string) (id int) {
		id, err := w.cloud.AddFault(simcloud.Rule{
			Method: http.MethodPost, Kind: "network", Action: simcloud.ActionStatus, Status: 409,
			Response: fmt.Sprintf(`{"NeutronError": {"type": "OverQuota", "message": %q, "detail": ""}}`, why),
		})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	first := exhausted("Quota exceeded, first")
	exhausted("Quota exceeded, second")
	w.createMap("a", "x")
	r.stands("a", "x", state.Waiting, "first")
	w.cloud.RemoveFault(first)
	r.stands("a", "x", state.Waiting, "second")
	w.cloud.ClearFaults()
	r.settled(1)
	if got := n.Load(); got != 1 {
		t.Errorf("it was warned of %d times", got)
	}
}
