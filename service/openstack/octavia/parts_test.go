// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/internal/stacktest"
	"github.com/kuryr/raven/service/plan"
	sim "github.com/kuryr/raven/test/sim/openstack"
)

func wholeBalancer(subnet, provider string) map[string]any {
	algorithm := map[string]string{"ovn": "SOURCE_IP_PORT"}[provider]
	if algorithm == "" {
		algorithm = "ROUND_ROBIN"
	}
	name := "shop:TCP:80"
	return drivers.Attributes(drivers.LoadBalancer{
		Name: new("shop"), VIPSubnetID: drivers.Text(subnet), VIPAddress: new("10.0.0.99"), Provider: new(provider),
		Listeners: []drivers.Listener{{Name: name, Protocol: new("TCP"), ProtocolPort: new(int64(80)), DefaultPool: name}},
		Pools: []drivers.Pool{{
			Name: name, Protocol: new("TCP"), LBAlgorithm: new(algorithm), SessionPersistence: &drivers.SessionPersistence{},
			HealthMonitor: &drivers.HealthMonitor{}, Members: []drivers.Member{
				{Address: "10.0.0.4", ProtocolPort: new(int64(80)), SubnetID: drivers.Text(subnet), Weight: new(int64(1))},
				{Address: "10.0.0.5", ProtocolPort: new(int64(80)), SubnetID: drivers.Text(subnet), Weight: new(int64(1))},
			},
		}},
	})
}

// settledList lists the one load balancer there is.
func settledList(t *testing.T, c *Client) plan.Observed {
	t.Helper()
	list, err := c.List(t.Context(), "c1")
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	return list[0]
}

// TestBalancerIsTheSameHoweverItIsRead: the answer to a create, a list, one that is read, and a search are all what the
// plan wants.
func TestBalancerIsTheSameHoweverItIsRead(t *testing.T) {
	for _, provider := range []string{"amphora", "ovn"} {
		t.Run(provider, func(t *testing.T) {
			s, c := startSim(t, sim.Options{})
			_, at := place(t, c, "10.0.0.0/24")
			subnet := at.ID
			attrs := wholeBalancer(subnet, provider)
			made := must(t, c, "lb", attrs)
			read, err := c.Get(t.Context(), made.ID)
			if err != nil {
				t.Fatal(err)
			}
			searched, err := c.ListIdentity(t.Context(), stacktest.Named("lb"))
			if err != nil || len(searched) != 1 {
				t.Fatalf("%v, %v", searched, err)
			}
			for how, o := range map[string]plan.Observed{
				"made": made, "listed": settledList(t, c), "read": read, "searched": searched[0],
			} {
				o = Settled(o)
				o.Status = "ACTIVE"
				p := plan.NewKinds(Kinds()...).Compute(plan.Input{
					Desired:  []plan.Desired{{Kind: drivers.KindLoadBalancer, Identity: stacktest.Named("lb"), Attrs: attrs}},
					Observed: []plan.Observed{o}, Prune: true,
				})
				if len(p.Steps) > 0 {
					t.Errorf("as %s it differs: %+v", how, p.Steps[0])
				}
			}
			if n := s.Count("loadbalancer"); n != 1 {
				t.Errorf("%d load balancers", n)
			}
		})
	}
}

// TestMembersAreListedOnlyWhenTheyMayHaveChanged.
func TestMembersAreListedOnlyWhenTheyMayHaveChanged(t *testing.T) {
	s, c := startSim(t, sim.Options{})
	_, at := place(t, c, "10.0.0.0/24")
	subnet := at.ID
	must(t, c, "lb", wholeBalancer(subnet, "amphora"))
	for range 3 { // until it is known to stand still
		settledList(t, c)
	}
	s.ResetLog()
	lb := settledList(t, c)
	for _, r := range s.Log(0) {
		if strings.HasSuffix(r.Path, "/members") {
			t.Errorf("its members were listed again: %s", r.Path)
		}
	}
	pool, _ := listAt(lb.Attrs, "pools")[0].(map[string]any)
	if len(listAt(pool, "members")) != 2 {
		t.Errorf("want two members: %v", pool)
	}
	path := "/lbaas/pools/" + textOf(pool, "id") + "/members"
	if status, doc := s.Call(
		sim.UserKuryr, sim.ProjectKuryr, http.MethodPut, path, map[string]any{"members": []any{}},
	); status >= 300 {
		t.Fatalf("%d %v", status, doc)
	}
	pool, _ = listAt(settledList(t, c).Attrs, "pools")[0].(map[string]any)
	if len(listAt(pool, "members")) != 0 {
		t.Errorf("another client removed them: %v", pool)
	}
}

// TestOneThatIsReadLeavesTheOthersKnown: reading one load balancer costs no list of the members of others.
func TestOneThatIsReadLeavesTheOthersKnown(t *testing.T) {
	s, c := startSim(t, sim.Options{})
	_, at := place(t, c, "10.0.0.0/24")
	pools := map[string]string{}
	for i := range 3 {
		attrs := wholeBalancer(at.ID, "amphora")
		attrs["vip_address"] = fmt.Sprintf("10.0.0.%d", 90+i)
		lb := must(t, c, fmt.Sprint("lb", i), attrs)
		pool, _ := listAt(lb.Attrs, "pools")[0].(map[string]any)
		pools[lb.ID] = textOf(pool, "id")
	}
	list := func() []plan.Observed {
		list, err := c.List(t.Context(), "c1")
		if err != nil || len(list) != 3 {
			t.Fatalf("%v, %v", list, err)
		}
		return list
	}
	for range 3 { // until they are known to stand still
		list()
	}
	one := list()[0].ID
	if _, err := c.Get(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	s.ResetLog()
	for range 3 {
		list()
	}
	var listed []string
	for _, r := range s.Log(0) {
		if strings.HasSuffix(r.Path, "/members") {
			listed = append(listed, r.Path)
		}
	}
	want := "/v2.0/lbaas/pools/" + pools[one] + "/members"
	if fmt.Sprint(listed) != fmt.Sprint([]string{want}) {
		t.Errorf("the members were listed of %v, want %s", listed, want)
	}
}

func TestChangeParts(t *testing.T) {
	s, c := startSim(t, sim.Options{})
	_, at := place(t, c, "10.0.0.0/24")
	subnet := at.ID
	attrs := wholeBalancer(subnet, "amphora")
	listeners, pools := attrs["listeners"], attrs["pools"]
	delete(attrs, "listeners")
	delete(attrs, "pools")
	lb := must(t, c, "lb", attrs)
	attrs["listeners"], attrs["pools"] = listeners, pools
	for range 10 {
		lb = Settled(lb)
		lb.Status = "ACTIVE"
		p := plan.NewKinds(Kinds()...).Compute(plan.Input{
			Desired:  []plan.Desired{{Kind: drivers.KindLoadBalancer, Identity: stacktest.Named("lb"), Attrs: attrs}},
			Observed: []plan.Observed{lb}, Prune: true,
		})
		if len(p.Steps) == 0 {
			break
		}
		settledList(t, c) // the simulation's providers have done their work by the next request
		change, err := c.ChangePart(t.Context(), lb, p.Steps[0])
		if err != nil {
			t.Fatalf("%+v: %v", p.Steps[0], err)
		}
		lb = change(lb)
	}
	if s.Count("listener") != 1 || s.Count("pool") != 1 || s.Count("member") != 2 {
		t.Errorf("it is not whole:\n%s", s.Dump(sim.DumpOptions{}))
	}
	now := settledList(t, c)
	if now.ID != lb.ID {
		t.Errorf("it is another one")
	}
}

// TestSomeMembers: a change of some members leaves the others, also where the API does not know the word for it, which
// is asked for once.
func TestSomeMembers(t *testing.T) {
	for name, o := range map[string]sim.Options{"new": {}, "old": {NoAdditiveMembers: true}} {
		t.Run(name, func(t *testing.T) {
			s, c := startSim(t, o)
			_, at := place(t, c, "10.0.0.0/24")
			attrs := wholeBalancer(at.ID, "amphora")
			must(t, c, "lb", attrs)
			pool, _ := listAt(attrs, "pools")[0].(map[string]any)
			s.ResetLog()
			for i := range 3 {
				pool["members"] = append(listAt(pool, "members"), map[string]any{
					"address": fmt.Sprintf("10.0.0.%d", 20+i), "protocol_port": int64(80), "subnet_id": at.ID, "weight": int64(1),
				})
				lb := settledList(t, c)
				p := plan.NewKinds(Kinds()...).Compute(plan.Input{
					Desired:  []plan.Desired{{Kind: drivers.KindLoadBalancer, Identity: stacktest.Named("lb"), Attrs: attrs}},
					Observed: []plan.Observed{lb}, Prune: true,
				})
				if len(p.Steps) != 1 || p.Steps[0].Attrs["additive"] != true {
					t.Fatalf("want one step that adds: %+v", p.Steps)
				}
				change, err := c.ChangePart(t.Context(), lb, p.Steps[0])
				if err != nil {
					t.Fatal(err)
				}
				known, _ := listAt(change(lb).Attrs, "pools")[0].(map[string]any)
				if n := s.Count("member"); n != 3+i || len(listAt(known, "members")) != 3+i {
					t.Errorf("%d members, %d known", n, len(listAt(known, "members")))
				}
			}
			asked := 0
			for _, r := range s.Log(0) {
				if r.Kind == "version" {
					asked++
				}
			}
			if asked > 1 {
				t.Errorf("asked for the versions %d times", asked)
			}
		})
	}
}

// TestWhatIsBusyIsLookedAtWhileAllSlotsAreTaken: creates of load balancers take as long as their provider does, and
// polls meanwhile do not wait for them.
func TestWhatIsBusyIsLookedAtWhileAllSlotsAreTaken(t *testing.T) {
	s := stacktest.StartSim(t, sim.Options{})
	config := stacktest.SimConfig(s, sim.UserKuryr)
	config.MaxConcurrency = 1
	c := connect(t, config)
	_, subnet := place(t, c, "10.0.0.0/24")
	lb := must(t, c, "lb", map[string]any{"vip_subnet_id": subnet.ID})
	if _, err := s.AddFault(
		sim.Rule{Method: http.MethodPost, Kind: "loadbalancer", Action: sim.ActionTimeout},
	); err != nil {
		t.Fatal(err)
	}
	creating, cancel := context.WithCancel(t.Context())
	made := make(chan error, 1)
	go func() {
		_, err := c.Create(creating, stacktest.Named("slow"), map[string]any{"vip_subnet_id": subnet.ID})
		made <- err
	}()
	defer func() {
		cancel()
		if err := <-made; err == nil {
			t.Error("the create was not slow: this test shows nothing")
		}
	}()
	for deadline := time.Now().Add(2 * time.Minute); s.Faults()[0].Acted == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the create is not under way")
		}
	}
	looking, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	found, err := c.Poll(looking, "c1", []string{lb.ID})
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	if _, err := c.Inspect(looking, found); err != nil {
		t.Fatal(err)
	}
}

// counting is a transport that counts the requests under way.
type counting struct {
	http.RoundTripper
	now atomic.Int64
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.now.Add(1)
	defer c.now.Add(-1)
	return c.RoundTripper.RoundTrip(r)
}

// TestPollsAreFew: those who poll without a slot wait for each other, however many were refused at once.
func TestPollsAreFew(t *testing.T) {
	s := stacktest.StartSim(t, sim.Options{})
	inFlight := &counting{RoundTripper: http.DefaultTransport}
	config := stacktest.SimConfig(s, sim.UserKuryr)
	config.Transport = inFlight
	c := connect(t, config)
	_, subnet := place(t, c, "10.0.0.0/24")
	lb := must(t, c, "lb", map[string]any{"vip_subnet_id": subnet.ID})
	if _, err := s.AddFault(sim.Rule{Method: http.MethodGet, Path: "/status$", Action: sim.ActionTimeout}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var looking sync.WaitGroup
	defer looking.Wait()
	defer cancel()
	for range 4 * openstack.MaxPolls {
		looking.Go(func() {
			if _, err := c.Inspect(ctx, []plan.Observed{lb}); err == nil {
				t.Error("it was answered: this test shows nothing")
			}
		})
	}
	most := int64(0)
	for end := time.Now().Add(100 * time.Millisecond); most < openstack.MaxPolls ||
		time.Now().Before(end); time.Sleep(time.Millisecond) {
		most = max(most, inFlight.now.Load())
	}
	if most != openstack.MaxPolls {
		t.Errorf("%d polls at a time, want %d", most, openstack.MaxPolls)
	}
}
