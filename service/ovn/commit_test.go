// SPDX-License-Identifier: Apache-2.0

package ovn

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/ovn/nbdb"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/test/sim/northbound"
)

func open(t *testing.T) *Northbound {
	t.Helper()
	if err := northbound.Available(); err != nil {
		t.Skip(err)
	}
	server, err := northbound.Start(t.Context(), northbound.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Kill)
	config := Config{Cluster: "c1", Endpoints: []string{server.Unix()}, Timeout: 2 * time.Minute}
	n, err := Open(t.Context(), config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	if err := n.WaitConnected(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestOneVIPTwiceInOneTransaction: who is first in it has the VIP.
func TestOneVIPTwiceInOneTransaction(t *testing.T) {
	n := open(t)
	g, err := n.Create(t.Context(), drivers.KindOVNLoadBalancerGroup,
		plan.Identity{Cluster: "c1", Owner: plan.Owner{Driver: plan.Shared}, Name: "g"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	attrs := map[string]any{
		"group_id": g.ID, "vips": []any{map[string]any{"protocol": "TCP", "address": "10.0.0.1", "port": int64(80)}},
	}
	var wg, asked sync.WaitGroup
	n.mu.Lock() // what is asked for waits, and goes together
	for i := range 10 {
		asked.Add(1)
		wg.Go(func() {
			identity := plan.Identity{Cluster: "c1", Owner: plan.Owner{Driver: "x", UID: fmt.Sprint(i)}, Name: "lb"}
			want := &balancer{identity: identity}
			if err := want.take(attrs); err != nil {
				t.Error(err)
			}
			c := &change{
				ctx: t.Context(), build: func(b *rowIndex, tx *transaction) error { return tx.balancer(b, want) },
				done: make(chan error, 1),
			}
			n.changes <- c
			asked.Done()
			if err := <-c.done; err != nil {
				t.Error(err)
			}
		})
	}
	asked.Wait()
	n.mu.Unlock()
	wg.Wait()
	list, err := n.List(drivers.KindOVNLoadBalancer)
	if err != nil || len(list) != 10 {
		t.Fatalf("%d are there, error %v, want 10", len(list), err)
	}
	served := 0
	for _, o := range list {
		vips, _ := o.Attrs["vips"].([]any)
		served += len(vips)
	}
	if served != 1 {
		t.Errorf("%d load balancers have the VIP, want one", served)
	}
}

// TestTheHolderOfAVIPHasAName: who is told that another one has the VIP is told its name, also where both are written
// together.
func TestTheHolderOfAVIPHasAName(t *testing.T) {
	tx := &transaction{taking: map[string]taker{}}
	conflicts := make([]*ConflictError, 2)
	for i := range conflicts {
		want := wanting(i)
		conflicts[i] = tx.leaveOut(newRowIndex("c1"), want)
	}
	if c := conflicts[1]; conflicts[0] != nil || c == nil || c.Name != "web/0" {
		t.Errorf("conflicts %v, want one, with web/0", conflicts)
	}
}

// TestAVIPThatTwoHaveIsKeptByOne: where two have a VIP already, and are written together, one of them keeps it.
func TestAVIPThatTwoHaveIsKeptByOne(t *testing.T) {
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		b := newRowIndex("c1")
		for i := range order {
			for part, r := range wanting(i).rows(true) {
				uuid := rowUUID(drivers.KindOVNLoadBalancer, wanting(i).identity, part)
				b.balancer(uuid,
					&nbdb.LoadBalancer{
						UUID: uuid, Name: r.name, Protocol: &r.proto, Vips: r.vips, Options: r.options, ExternalIDs: r.ids,
					}, newDirtySet())
			}
		}
		tx := &transaction{taking: map[string]taker{}}
		served := 0
		for _, i := range order {
			want := wanting(i)
			_ = tx.leaveOut(b, want) // what it says is for the one who is left out
			served += len(want.vips)
		}
		if served != 1 {
			t.Errorf("in the order %v it is served %d times, want once", order, served)
		}
	}
}

// wanting is a load balancer that wants the one VIP that all want.
func wanting(i int) *balancer {
	v := vip{protocol: "tcp", at: netip.MustParseAddrPort("10.0.0.1:80")}
	return &balancer{
		identity: plan.Identity{
			Cluster: "c1", Owner: plan.Owner{Driver: "x", UID: fmt.Sprint(i)}, Name: "lb", Policy: drivers.Delete,
		},
		title: fmt.Sprint("web/", i), group: "g", vips: map[string]vip{"tcp 10.0.0.1:80": v},
	}
}

func TestOutdated(t *testing.T) {
	for _, version := range []string{"22.09.1-20.25.0-67.6", "22.12.0-20.27.0-69.8"} {
		if got := outdated(version); !strings.Contains(got, "23.03") {
			t.Errorf("%s: %q", version, got)
		}
	}
	for _, version := range []string{"23.03.1-20.27.0-70.6", "24.09.0-20.37.0-77.0", "", "main"} {
		if got := outdated(version); got != "" {
			t.Errorf("%q: %q, want nothing", version, got)
		}
	}
}

// TestARefusalMeetsOnlyWhoDeservesIt: a change that the database refuses takes along none of those that were sent
// with it.
func TestARefusalMeetsOnlyWhoDeservesIt(t *testing.T) {
	n := open(t)
	n.mu.Lock() // what is asked for waits, and goes together
	var wg sync.WaitGroup
	errs := make([]error, 20)
	for i := range errs {
		identity := plan.Identity{Cluster: "c1", Owner: plan.Owner{Driver: "x", UID: fmt.Sprint(i)}, Name: "lb"}
		c := &change{
			ctx: t.Context(), resource: Resource{drivers.KindOVNLoadBalancer, ID(drivers.KindOVNLoadBalancer, identity)},
			done: make(chan error, 1),
		}
		c.build = func(_ *rowIndex, tx *transaction) error {
			b := &balancer{identity: identity}
			columns := b.rows(true)[noPart].columns(nil)
			if i == 7 {
				columns["protocol"] = ovsdb.OvsSet{GoSet: []any{"icmp"}} // the schema has no such
			}
			tx.insert(nbdb.LoadBalancerTable, rowUUID(drivers.KindOVNLoadBalancer, identity, noPart), columns)
			return nil
		}
		n.changes <- c
		wg.Go(func() { errs[i] = <-c.done })
	}
	n.mu.Unlock()
	wg.Wait()
	for i, err := range errs {
		if refused := (*refusedError)(nil); errors.As(err, &refused) != (i == 7) {
			t.Errorf("%d: error %v", i, err)
		}
	}
	list, err := n.List(drivers.KindOVNLoadBalancer)
	if err != nil || len(list) != 19 {
		t.Errorf("%d are there, error %v, want 19", len(list), err)
	}
}

// TestManyLargeChangesAreSeveralTransactions: what together has more text than a transaction should have goes in
// several.
func TestManyLargeChangesAreSeveralTransactions(t *testing.T) {
	n := open(t)
	var wg sync.WaitGroup
	const changes, each = 8, mostBytes / 3
	n.mu.Lock() // what is asked for waits, and goes together
	for i := range changes {
		identity := plan.Identity{Cluster: "c1", Owner: plan.Owner{Driver: "x", UID: fmt.Sprint(i)}, Name: "lb"}
		b := &balancer{identity: identity, title: strings.Repeat("x", each)}
		c := &change{ctx: t.Context(), done: make(chan error, 1), build: func(_ *rowIndex, tx *transaction) error {
			r := b.rows(true)[noPart]
			r.ids["note"] = b.title
			tx.insert(nbdb.LoadBalancerTable, rowUUID(drivers.KindOVNLoadBalancer, identity, noPart), r.columns(nil))
			return nil
		}}
		n.changes <- c
		wg.Go(func() {
			if err := <-c.done; err != nil {
				t.Error(err)
			}
		})
	}
	n.mu.Unlock()
	wg.Wait()
	if got := n.Status().Transactions["committed"]; got < 2 || got >= changes {
		t.Errorf("%d transactions for %d changes of a third of the bound each, want some", got, changes)
	}
}
