package reconcile

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack/octavia"
	"github.com/kuryr/raven/service/plan"
)

// meanwhile is a cloud in which something happens while it is asked.
type meanwhile struct {
	Cloud
	happen func()
	polled []plan.Observed
	read   func(try int) plan.Observed
	gets   int
}

func (m *meanwhile) ChangePart(_ context.Context, _ plan.Observed, step plan.Step) (octavia.Change, error) {
	m.happen()
	return func(lb plan.Observed) plan.Observed {
		lb.Attrs = maps.Clone(lb.Attrs)
		maps.Copy(lb.Attrs, step.Attrs)
		if step.Part.Kind != octavia.VIPPort {
			lb.Status = statusUpdating
		}
		return lb
	}, nil
}

func (m *meanwhile) Update(_ context.Context, kind drivers.Kind, id string, _ int64, attrs map[string]any) (plan.Observed, error) {
	m.happen()
	return plan.Observed{Kind: kind, ID: id, Identity: known.Identity, Managed: true, Attrs: attrs, Status: statusUpdating}, nil
}

func (m *meanwhile) Delete(context.Context, drivers.Kind, string) error {
	m.happen()
	return nil
}

func (m *meanwhile) PollLoadBalancers(context.Context, string, []string) ([]plan.Observed, error) {
	return m.polled, nil
}

func (m *meanwhile) InspectLoadBalancers(_ context.Context, list []plan.Observed) ([]plan.Observed, error) {
	m.happen()
	return list, nil
}

func (m *meanwhile) Get(context.Context, drivers.Kind, string) (plan.Observed, error) {
	m.gets++
	if m.gets == 1 {
		m.happen()
	}
	return m.read(m.gets), nil
}

var known = plan.Observed{
	Kind: drivers.KindLoadBalancer, ID: "1", Managed: true, Status: statusActive, Identity: plan.Identity{Cluster: "c", Name: "lb"},
	Attrs: map[string]any{"name": "old", "listeners": []any{}, "pools": members("a"), "vip_sg_ids": []any{"old"}, "vip_port_id": "vip"},
}

func members(addresses ...string) []any {
	list := make([]any, 0, len(addresses))
	for _, address := range addresses {
		list = append(list, map[string]any{"address": address})
	}
	return []any{map[string]any{"id": "p", "members": list}}
}

// with is a load balancer with other attributes, and another status.
func with(lb plan.Observed, status string, attrs map[string]any) plan.Observed {
	lb.Status, lb.Attrs = status, maps.Clone(lb.Attrs)
	maps.Copy(lb.Attrs, attrs)
	return lb
}

func mergeEngine(cloud *meanwhile) *Engine {
	e := &Engine{cloud: cloud, store: newStore("c", nil, nil), clock: clock.RealClock{}, log: slog.New(slog.DiscardHandler), pollNow: make(chan struct{}, 1)}
	e.config.ActivationTimeout = time.Hour
	e.store.cloud.put(known)
	return e
}

// TestAnswersAreMerged: what is learned of a load balancer while it is asked for a change is not lost when the answer comes.
func TestAnswersAreMerged(t *testing.T) {
	part := func(kind plan.PartKind, attrs map[string]any) plan.Step {
		return plan.Step{Op: plan.Update, Kind: known.Kind, ID: known.ID, Part: &plan.Part{Kind: kind}, Attrs: attrs}
	}
	for name, c := range map[string]struct {
		step plan.Step
		seen plan.Observed // meanwhile; without an id: it has gone
		want plan.Observed // likewise
	}{
		"members, while its groups are changed": {
			part(octavia.Members, map[string]any{"pools": members("a", "b")}),
			with(known, statusActive, map[string]any{"vip_sg_ids": []any{"new"}}),
			with(known, statusUpdating, map[string]any{"pools": members("a", "b"), "vip_sg_ids": []any{"new"}}),
		},
		"groups, while its members are changed": {
			part(octavia.VIPPort, map[string]any{"vip_sg_ids": []any{"new"}}),
			with(known, statusUpdating, map[string]any{"pools": members("b")}),
			with(known, statusUpdating, map[string]any{"pools": members("b"), "vip_sg_ids": []any{"new"}}),
		},
		"its name, while its members are changed": {
			plan.Step{Op: plan.Update, Kind: known.Kind, ID: known.ID, Attrs: map[string]any{"name": "new", "vip_port_id": "vip"}},
			with(known, statusActive, map[string]any{"pools": members("b")}),
			with(known, statusUpdating, map[string]any{"name": "new", "pools": members("b")}),
		},
		"its end, while its members are changed": {
			plan.Step{Op: plan.Delete, Kind: known.Kind, ID: known.ID},
			with(known, statusActive, map[string]any{"pools": members("b")}),
			with(known, "PENDING_DELETE", map[string]any{"pools": members("b")}),
		},
		"members, while it goes": {step: part(octavia.Members, map[string]any{"pools": members("b")})},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := &meanwhile{}
			e := mergeEngine(cloud)
			cloud.happen = func() {
				if c.seen.ID == "" {
					e.depart(known.Kind, known.ID)
				} else {
					e.takeBalancer(c.seen)
				}
			}
			if _, err := e.changeBalancer(t.Context(), &c.step); err != nil {
				t.Fatal(err)
			}
			got, _ := e.store.cloud.get(known.Kind, known.ID)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if busy := e.store.busy[known.ID] != nil; busy != (c.want.ID != "") {
				t.Errorf("busy: %v", busy)
			}
		})
	}
}

// TestLooksAreMerged: what was written while a load balancer, or another one beside it, was looked at counts, and not what was seen.
func TestLooksAreMerged(t *testing.T) {
	newer := with(known, statusUpdating, map[string]any{"pools": members("b")})
	pending := []any{map[string]any{"id": "p", "provisioning_status": "PENDING_CREATE"}}
	other := with(known, "PENDING_CREATE", map[string]any{"pools": pending})
	other.ID = "2"
	for name, look := range map[string]func(e *Engine) error{
		"by the poll": func(e *Engine) error {
			_, err := e.poll(context.Background())
			return err
		},
		"after a refusal": func(e *Engine) error {
			err := e.afterBusy(context.Background(), stepError{step: plan.Step{Kind: known.Kind, ID: known.ID}})
			if err == nil {
				return fmt.Errorf("nothing came of it")
			}
			return nil
		},
		"read again": func(e *Engine) error {
			_, err := e.reread(context.Background(), known.Kind, known.ID)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := &meanwhile{polled: []plan.Observed{known, with(other, statusActive, nil)}}
			cloud.read = func(try int) plan.Observed {
				if try == 1 {
					return known
				}
				return newer
			}
			e := mergeEngine(cloud)
			e.takeBalancer(with(known, statusUpdating, nil))
			e.takeBalancer(other)
			cloud.happen = func() { e.takeBalancer(newer) }
			if err := look(e); err != nil {
				t.Fatal(err)
			}
			got, _ := e.store.cloud.get(known.Kind, known.ID)
			if diff := cmp.Diff(newer, got); diff != "" {
				t.Error(diff)
			}
			if e.store.busy[known.ID] == nil {
				t.Error("it does not count as busy any more")
			}
		})
	}
}

// TestNobodyMissesWhatNobodyWants: a cloud without a load balancing service is told of once, and only where somebody wants one.
func TestNobodyMissesWhatNobodyWants(t *testing.T) {
	e := mergeEngine(&meanwhile{})
	var log bytes.Buffer
	e.log = slog.New(slog.NewTextHandler(&log, nil))
	look := func() {
		for range 3 {
			e.store.do(func() { e.store.recount(e.clock.Now(), octavia.ErrNoBalancing) })
			e.afterObservedBalancers(t.Context(), octavia.ErrNoBalancing)
		}
	}
	look()
	if log.Len() > 0 || len(e.timers.pending) > 0 {
		t.Errorf("said: %s; %d further checks", &log, len(e.timers.pending))
	}
	o := e.store.ensureOwner(item{driver: "a"}, target{uid: "u"}, e.clock.Now())
	e.store.do(func() {
		e.store.adopt(o, drivers.Set{Resources: []drivers.Resource{{Name: "lb", Spec: drivers.LoadBalancer{}}}})
	})
	look()
	if n := strings.Count(log.String(), "level=WARN"); n != 1 || len(e.timers.pending) > 0 {
		t.Errorf("said %d times: %s; %d further checks", n, &log, len(e.timers.pending))
	}
}
