// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/openstack/internal/stacktest"
	"github.com/kuryr/raven/service/openstack/outcome"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
)

// meanwhile is a cloud in which something happens while it is asked: just before it answers a write, an inspection, or
// the first of several reads.
type meanwhile struct {
	t      *testing.T
	happen func()
	polled []plan.Observed
	read   func(try int) plan.Observed
	gets   int
}

// RoundTrip is Keystone and Octavia.
func (m *meanwhile) RoundTrip(r *http.Request) (*http.Response, error) {
	path := strings.TrimPrefix(r.URL.Path, "/v2.0/lbaas/")
	one, whole := strings.CutPrefix(path, "loadbalancers/")
	switch {
	case r.URL.Path == "/v3/auth/tokens":
		token := strings.Replace(stacktest.TokenBody, `"catalog":[`, `"catalog":[{"type":"load-balancer","endpoints":[
			{"interface":"public","region":"R1","region_id":"R1","url":"http://balancing"}]},`, 1)
		return stacktest.Reply(r, http.StatusCreated, token, "X-Subject-Token", "token"), nil
	case r.Method == http.MethodGet && path == "loadbalancers":
		docs := []any{}
		for _, lb := range m.polled {
			docs = append(docs, asDocument(lb))
		}
		return m.reply(r, map[string]any{"loadbalancers": docs})
	case r.Method == http.MethodGet && whole && strings.HasSuffix(one, "/status"):
		m.happen()
		return m.reply(r, map[string]any{"statuses": map[string]any{}}) // what is known is as it was
	case r.Method == http.MethodPut && whole:
		m.happen()
		asked := struct {
			LoadBalancer map[string]any `json:"loadbalancer"`
		}{}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			return nil, err
		}
		doc := asDocument(known)
		maps.Copy(doc, asked.LoadBalancer)
		doc["provisioning_status"] = statusUpdating
		return m.reply(r, map[string]any{"loadbalancer": doc})
	case r.Method == http.MethodDelete && whole:
		m.happen()
		return stacktest.Reply(r, http.StatusNoContent, ""), nil
	case r.Method == http.MethodPut && path == "pools/p/members":
		m.happen()
		return stacktest.Reply(r, http.StatusAccepted, ""), nil
	}
	m.t.Errorf("unexpected request: %s %s", r.Method, r.URL)
	return stacktest.Reply(r, http.StatusNotFound, ""), nil
}

func (m *meanwhile) reply(r *http.Request, doc map[string]any) (*http.Response, error) {
	body, err := json.Marshal(doc)
	return stacktest.Reply(r, http.StatusOK, string(body)), err
}

// Ports implements Networking.
func (m *meanwhile) Ports(context.Context, url.Values) ([]plan.Observed, error) {
	return nil, errors.New("nobody lists ports")
}

// Get implements Networking.
func (m *meanwhile) Get(context.Context, drivers.Kind, string) (plan.Observed, error) {
	return plan.Observed{}, errors.New("nobody reads ports")
}

// Update implements Networking.
func (m *meanwhile) Update(
	_ context.Context, kind drivers.Kind, id string, _ int64, attrs map[string]any,
) (plan.Observed, error) {
	m.happen()
	return plan.Observed{Kind: kind, ID: id, Attrs: attrs}, nil
}

// Delete implements Networking.
func (m *meanwhile) Delete(context.Context, drivers.Kind, string) error {
	return errors.New("nobody deletes ports")
}

// asDocument is a load balancer as the service has it.
func asDocument(lb plan.Observed) map[string]any {
	doc := maps.Clone(lb.Attrs)
	doc["id"], doc["provisioning_status"], doc["project_id"] = lb.ID, lb.Status, "p1"
	tags := []any{}
	for _, tag := range lb.Identity.Tags() {
		tags = append(tags, tag)
	}
	doc["tags"], doc["description"] = tags, lb.Identity.Description()
	return doc
}

// readTimes is a backend whose reads of one load balancer are the cloud's answers in turn.
type readTimes struct {
	*Backend
	cloud *meanwhile
}

func (r readTimes) Get(context.Context, drivers.Kind, string) (plan.Observed, error) {
	r.cloud.gets++
	if r.cloud.gets == 1 {
		r.cloud.happen()
	}
	return r.cloud.read(r.cloud.gets), nil
}

// known is a load balancer as it is known of what the service has.
var known = func() plan.Observed {
	lb := kinds()[drivers.KindLoadBalancer].Observed(asDocument(plan.Observed{
		ID: "1", Status: statusActive,
		Identity: plan.Identity{
			Cluster: "c", Owner: plan.Owner{Driver: "d", UID: "u"}, Name: "lb", Policy: drivers.Delete,
		},
		Attrs: map[string]any{
			"name": "old", "listeners": []any{}, "pools": members("a"),
			"vip_sg_ids": []any{"old"}, "vip_port_id": "vip",
		},
	}))
	lb.Attrs = state.NewCache(plan.NewKinds(Kinds()...)).Keep(lb.Kind, lb.Attrs)
	return lb
}()

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

// mergeBackend is a backend of the loop's that knows of one load balancer.
func mergeBackend(t *testing.T, cloud *meanwhile) *Backend {
	t.Helper()
	cloud.t = t
	client := New(stacktest.Connect(t, stacktest.TransportConfig(cloud)), cloud)
	log := slog.New(slog.DiscardHandler)
	config := reconcile.Config{Cluster: "c", Kinds: plan.NewKinds(Kinds()...)}
	e, err := reconcile.New(config, nil, clock.RealClock{}, log)
	if err != nil {
		t.Fatal(err)
	}
	b := NewBackend(client, nil, e.Env(), Config{ActivationTimeout: time.Hour})
	registration := b.Registration()
	registration.Backend = readTimes{b, cloud}
	if err := e.Register(registration); err != nil {
		t.Fatal(err)
	}
	b.env.State.Update(func(tx *state.Tx) { tx.Cache.Put(known) })
	return b
}

// arrive takes over a load balancer as it is now.
func arrive(b *Backend, lb plan.Observed) { b.env.State.Update(func(tx *state.Tx) { tx.Arrive(lb) }) }

// TestAnswersAreMerged: what is learned of a load balancer while it is asked for a change is not lost when the answer
// comes.
func TestAnswersAreMerged(t *testing.T) {
	part := func(kind plan.PartKind, attrs map[string]any) plan.Step {
		return plan.Step{
			Op: plan.Update, Kind: known.Kind, ID: known.ID, Attrs: attrs,
			Part: &plan.Part{Kind: kind, ID: "vip", Pool: "p"},
		}
	}
	toMembers := func(addresses ...string) map[string]any {
		return map[string]any{"members": members(addresses...)[0].(map[string]any)["members"]}
	}
	for name, c := range map[string]struct {
		step plan.Step
		seen plan.Observed // meanwhile; without an id: it has gone
		want plan.Observed // likewise
	}{
		"members, while its groups are changed": {
			part(Members, toMembers("a", "b")),
			with(known, statusActive, map[string]any{"vip_sg_ids": []any{"new"}}),
			with(known, statusUpdating, map[string]any{"pools": members("a", "b"), "vip_sg_ids": []any{"new"}}),
		},
		"groups, while its members are changed": {
			part(VIPPort, map[string]any{"vip_sg_ids": []any{"new"}}),
			with(known, statusUpdating, map[string]any{"pools": members("b")}),
			with(known, statusUpdating, map[string]any{"pools": members("b"), "vip_sg_ids": []any{"new"}}),
		},
		"its name, while its members are changed": {
			plan.Step{
				Op: plan.Update, Kind: known.Kind, ID: known.ID,
				Attrs: map[string]any{"name": "new", "vip_port_id": "vip"},
			},
			with(known, statusActive, map[string]any{"pools": members("b")}),
			with(known, statusUpdating, map[string]any{"name": "new", "pools": members("b")}),
		},
		"its end, while its members are changed": {
			plan.Step{Op: plan.Delete, Kind: known.Kind, ID: known.ID},
			with(known, statusActive, map[string]any{"pools": members("b")}),
			with(known, "PENDING_DELETE", map[string]any{"pools": members("b")}),
		},
		"members, while it goes": {step: part(Members, toMembers("b"))},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := &meanwhile{}
			b := mergeBackend(t, cloud)
			cloud.happen = func() {
				if c.seen.ID == "" {
					b.env.State.Update(func(tx *state.Tx) { tx.Depart(known.Kind, known.ID) })
				} else {
					arrive(b, c.seen)
				}
			}
			if err := b.change(t.Context(), c.step); err != nil {
				t.Fatal(err)
			}
			b.env.State.View(func(tx *state.Tx) {
				got, _ := tx.Cache.Get(known.Kind, known.ID)
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Error(diff)
				}
				if busy := b.busy[known.ID] != nil; busy != (c.want.ID != "") {
					t.Errorf("busy: %v", busy)
				}
			})
		})
	}
}

// TestPollsAreMerged: what was written while a load balancer, or another one beside it, was looked at counts, and not
// what was seen.
func TestPollsAreMerged(t *testing.T) {
	newer := with(known, statusUpdating, map[string]any{"pools": members("b")})
	pending := []any{map[string]any{"id": "p", "provisioning_status": "PENDING_CREATE"}}
	other := with(known, "PENDING_CREATE", map[string]any{"pools": pending})
	other.ID = "2"
	for name, look := range map[string]func(b *Backend) error{
		"by the poll": func(b *Backend) error {
			_, err := b.poll(t.Context())
			return err
		},
		"after a refusal": func(b *Backend) error {
			refusal := outcome.Refusal{
				Step: plan.Step{Kind: known.Kind, ID: known.ID}, Err: errors.New("it is immutable now"),
			}
			if b.whileBusy(t.Context(), refusal) == nil {
				return errors.New("nothing came of it")
			}
			return nil
		},
		"read again": func(b *Backend) error {
			_, err := b.env.Loop.Reread(t.Context(), known.Kind, known.ID)
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
			b := mergeBackend(t, cloud)
			arrive(b, with(known, statusUpdating, nil))
			arrive(b, other)
			happened := false
			cloud.happen = func() {
				happened = true
				arrive(b, newer)
			}
			if err := look(b); err != nil || !happened {
				t.Fatalf("%v; something has happened meanwhile: %v", err, happened)
			}
			b.env.State.View(func(tx *state.Tx) {
				got, _ := tx.Cache.Get(known.Kind, known.ID)
				if diff := cmp.Diff(newer, got); diff != "" {
					t.Error(diff)
				}
				if b.busy[known.ID] == nil {
					t.Error("it does not count as busy any more")
				}
			})
		})
	}
}

// lists is a loop that counts how often it is asked for further lists.
type lists struct {
	backend.Loop
	requested int
}

func (l *lists) RequestList(time.Duration) { l.requested++ }

// TestNobodyMissesWhatNobodyDesires: a cloud without a load balancing service is told of once, and only where somebody
// desires one.
func TestNobodyMissesWhatNobodyDesires(t *testing.T) {
	r := newRig(t, time.Now())
	var log bytes.Buffer
	loop := &lists{}
	r.env.Log, r.env.Loop = slog.New(slog.NewTextHandler(&log, nil)), loop
	list := func() {
		for range 3 {
			r.update(func(tx *state.Tx) { r.listed(tx, noService{ErrNoBalancing}) })
		}
	}
	list()
	if log.Len() > 0 || loop.requested > 0 {
		t.Errorf("said: %s; %d further checks", &log, loop.requested)
	}
	r.loop.Update(func(tx *state.LoopTx) {
		o := tx.Ensure(state.Request{Driver: "a"}, state.Target{UID: "u"})
		tx.SetDesired(o, drivers.Set{Resources: []drivers.Resource{{Name: "lb", Spec: drivers.LoadBalancer{}}}})
	})
	list()
	if n := strings.Count(log.String(), "level=WARN"); n != 1 || loop.requested > 0 {
		t.Errorf("said %d times: %s; %d further checks", n, &log, loop.requested)
	}
}
