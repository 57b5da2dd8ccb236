// SPDX-License-Identifier: Apache-2.0

package ovn_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/ovn"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/test/sim/northbound"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 2 * time.Minute

// rig is a real northbound database with a connection to it.
type rig struct {
	*testing.T
	server *northbound.Server
	*ovn.Northbound
	seen *follower
}

func start(t *testing.T, change ...func(*northbound.Config)) *northbound.Server {
	t.Helper()
	if err := northbound.Available(); err != nil {
		t.Skip(err)
	}
	c := northbound.Config{Dir: t.TempDir()}
	for _, f := range change {
		f(&c)
	}
	server, err := northbound.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Kill)
	return server
}

func newRig(t *testing.T) *rig {
	t.Helper()
	server := start(t)
	return connect(t, server, ovn.Config{Endpoints: []string{server.Unix()}})
}

func connect(t *testing.T, server *northbound.Server, c ovn.Config) *rig {
	t.Helper()
	c.Cluster = "c1"
	c.BackoffMin, c.BackoffMax = 20*time.Millisecond, 200*time.Millisecond
	n, err := ovn.Open(t.Context(), c,
		slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := n.WaitConnected(ctx); err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, server: server, Northbound: n, seen: &follower{}}
	n.Follow(r.seen)
	return r
}

// follower counts what it is told.
type follower struct {
	mu      sync.Mutex
	changed []ovn.Resource
	arrived []string
	back    int
}

func (f *follower) Changed(list []ovn.Resource) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changed = append(f.changed, list...)
}

func (f *follower) Arrived(rows []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.arrived = append(f.arrived, rows...)
}

func (f *follower) Back() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.back++
}

func (f *follower) hasChanged(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.changed, func(r ovn.Resource) bool { return r.ID == id })
}

func (f *follower) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changed, f.arrived, f.back = nil, nil, 0
}

// until waits for something to become true.
func (r *rig) until(what string, f func() bool) {
	r.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if f() {
			return
		}
	}
	r.Fatalf("not within %s: %s", patience, what)
}

// ctl runs ovn-nbctl.
func (r *rig) ctl(args ...string) string {
	r.Helper()
	out, err := r.server.Ctl(r.Context(), args...)
	if err != nil {
		r.Fatal(err)
	}
	return out
}

// column reads one column of a table: the values of all rows, sorted.
func (r *rig) column(table, column string) []string {
	r.Helper()
	out := r.ctl("--bare", "--no-headings", "--columns="+column, "list", table)
	var values []string
	for line := range strings.SplitSeq(out, "\n") {
		if line = strings.TrimSpace(line); line != "" {
			values = append(values, line)
		}
	}
	slices.Sort(values)
	return values
}

func identity(owner, uid, name string) plan.Identity {
	return plan.Identity{Cluster: "c1", Owner: plan.Owner{Driver: owner, UID: uid}, Name: name, Policy: drivers.Delete}
}

func vip(protocol, address string, port int64, affinity int64, backends ...any) map[string]any {
	doc := map[string]any{"protocol": protocol, "address": address, "port": port, "backends": backends}
	if affinity > 0 {
		doc["affinity_timeout"] = affinity
	}
	return doc
}

func backend(address string, port int64) any {
	return map[string]any{"address": address, "port": port}
}

// group makes a group that serves on the given networks.
func (r *rig) group(networks ...any) string {
	r.Helper()
	o, err := r.Create(r.Context(), drivers.KindOVNLoadBalancerGroup, identity(plan.Shared, "", "service-balancers"),
		map[string]any{"name": "raven services", "networks": networks})
	if err != nil {
		r.Fatal(err)
	}
	return o.ID
}

// balancer makes a load balancer.
func (r *rig) balancer(uid, group string, vips ...any) plan.Observed {
	r.Helper()
	o, err := r.Create(r.Context(), drivers.KindOVNLoadBalancer, identity("service-proxy", uid, "lb"),
		map[string]any{"name": "web/" + uid, "group_id": group, "vips": vips})
	if err != nil {
		r.Fatal(err)
	}
	return o
}

func (r *rig) committed() int64 { return r.Status().Transactions["committed"] }

// uuidOf finds the row of a name whose external ids have a word.
func (r *rig) uuidOf(name, word string) string {
	r.Helper()
	for line := range strings.SplitSeq(r.ctl("--format=csv", "--no-headings", "--columns=_uuid,name,external_ids",
		"list", "Load_Balancer"), "\n") {
		if strings.Contains(line, name) && strings.Contains(line, word) {
			return line[:36]
		}
	}
	r.Fatalf("no row of Raven's has the name %s", name)
	return ""
}
