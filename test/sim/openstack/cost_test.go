// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/kuryr/raven/test/sim/openstack"
)

// TestLabLikeFitsTheMeasurements: within 5 % of what a real Neutron took.
func TestLabLikeFitsTheMeasurements(t *testing.T) {
	p := openstack.LabLike(1, 0)
	tests := []struct {
		method, kind string
		items        int
		seconds      float64
	}{
		{"POST", "port", 1, 0.403},
		{"POST", "port", 10, 2.970},
		{"POST", "port", 50, 19.771},
		{"POST", "port", 100, 53.316},
		{"POST", "network", 1, 0.304},
		{"POST", "subnet", 1, 0.570},
		{"POST", "router", 1, 0.211},
		{"PUT", "add_router_interface", 1, 1.762},
		{"PUT", "remove_router_interface", 1, 0.972},
		{"POST", "security_group", 1, 0.100},
		{"POST", "security_group_rule", 20, 1.378},
		{"GET", "port", 1, 0.039},
		{"GET", "port", 100, 0.209},
		{"PUT", "port", 1, 0.232},
		{"DELETE", "port", 1, 0.232},
		{"PUT", "tag", 1, 0.031},
		{"POST", "token", 1, 0.047},
	}
	for _, tt := range tests {
		got := p.Price(tt.method, tt.kind, tt.items, 0).Seconds()
		if math.Abs(got-tt.seconds) > 0.05*tt.seconds {
			t.Errorf("%s %s of %d costs %.3f s, measured %.3f s", tt.method, tt.kind, tt.items, got, tt.seconds)
		}
	}
	// two clients: singles 2.9 ports/s, bulks of 20 5.0 ports/s
	for n, rate := range map[int]float64{1: 2.9, 20: 5.0} {
		got := float64(2*n) / p.Price("POST", "port", n, 1).Seconds()
		if math.Abs(got-rate) > 0.1*rate {
			t.Errorf("two workers make %.2f ports/s in bulks of %d, measured %.2f", got, n, rate)
		}
	}
	best, batch := p.BestThroughput("port")
	if best < 5 || best > 6 || batch < 5 || batch > 25 {
		t.Errorf("at best %.2f ports/s in bulks of %d", best, batch)
	}
	if fast, _ := openstack.LabLike(10, 0).BestThroughput("port"); math.Abs(fast-10*best) > 0.01*fast {
		t.Errorf("ten times as fast is %.2f ports/s, not %.2f", fast, 10*best)
	}
}

// TestLabProvidersFitTheMeasurements: request and work together, within 15 % of what real providers took.
func TestLabProvidersFitTheMeasurements(t *testing.T) {
	api := openstack.LabLike(1, 0)
	for _, tt := range []struct {
		provider                          openstack.Provider
		bare, full, ten, hundred, removed float64 // seconds; ten and hundred are members replaced by as many others
	}{
		{openstack.LabAmphora(1), 3.112, 7.792, 4.042, 31.998, 2.228},
		{openstack.LabOVN(1), 0.800, 5.212, 7.589, 77.693, 0.709},
	} {
		w := tt.provider.Work
		children := 2*w.Listener + 2*w.Pool + 10*w.Member
		for what, times := range map[string][2]float64{
			"a bare load balancer": {tt.bare, (api.Price("POST", "loadbalancer", 1, 0) + w.Create).Seconds()},
			"a full create":        {tt.full, (api.Price("POST", "loadbalancer", 1, 0) + w.Create + children).Seconds()},
			"10 members replaced":  {tt.ten, (api.Price("PUT", "member_batch", 10, 0) + w.Update + 20*w.Member).Seconds()},
			"100 members replaced": {tt.hundred, (api.Price("PUT", "member_batch", 100, 0) + w.Update + 200*w.Member).Seconds()},
			"a cascading delete":   {tt.removed, (api.Price("DELETE", "loadbalancer", 1, 0) + w.Delete).Seconds()},
		} {
			if measured, got := times[0], times[1]; math.Abs(got-measured) > 0.15*measured {
				t.Errorf("%s: %s takes %.2f s, measured %.2f s", tt.provider.Name, what, got, measured)
			}
		}
	}
}

// TestWorkersBound: four requests of 20 ms on two workers take two turns.
func TestWorkersBound(t *testing.T) {
	const turn = 50 * time.Millisecond
	w := dial(t,
		openstack.Options{
			Profile: &openstack.Profile{Workers: 2, Costs: map[string]openstack.Cost{"POST network": {Base: turn}}},
		})
	begin := time.Now()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if status, _, err := w.do("POST", "/networks", attrs{"network": attrs{}}); status != 201 || err != nil {
				t.Errorf("%d, %v", status, err)
			}
		})
	}
	wg.Wait()
	if took := time.Since(begin); took < 2*turn {
		t.Errorf("four took %s, two turns are %s", took, 2*turn)
	}
}

func TestFlatIsForNeutronOnly(t *testing.T) {
	p := openstack.Flat(50 * time.Millisecond)
	for kind, want := range map[string]time.Duration{
		"port": 50 * time.Millisecond, "tag": 50 * time.Millisecond, "token": 0,
	} {
		if got := p.Price("POST", kind, 100, 3); got != want {
			t.Errorf("%s costs %s, want %s", kind, got, want)
		}
	}
}

// BenchmarkTenThousandPorts: lists by tag, by network and by address among 10,000 ports, and the making of one more.
func BenchmarkTenThousandPorts(b *testing.B) {
	c := openstack.New(openstack.Options{})
	call := func(method, path string, body any) attrs {
		status, doc := c.Call(openstack.UserKuryr, openstack.ProjectKuryr, method, path, body)
		if status > 299 {
			b.Fatalf("%s %s: %d %v", method, path, status, doc)
		}
		return doc
	}
	var nets []string
	for i := range 100 {
		n := call("POST", "/networks", attrs{"network": attrs{"name": fmt.Sprint(i)}})["network"].(attrs)["id"].(string)
		call("POST", "/subnets",
			attrs{"subnet": attrs{"network_id": n, "ip_version": 4, "cidr": fmt.Sprintf("10.%d.0.0/16", i)}})
		nets = append(nets, n)
		for j := range 10 {
			many := []attrs{}
			for k := range 10 {
				many = append(many,
					attrs{"network_id": n, "name": "p", "tags": []string{"cluster=x", fmt.Sprintf("owner=%d-%d-%d", i, j, k)}})
			}
			call("POST", "/ports", attrs{"ports": many})
		}
	}
	for name, path := range map[string]string{
		"by-tag": "/ports?tags=cluster%3Dx,owner%3D50-5-5", "by-network": "/ports?network_id=" + nets[3],
		"by-address":   "/ports?fixed_ips=ip_address%3D10.7.0.9",
		"page-of-1000": "/ports?limit=1000&tags=cluster%3Dx",
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if len(call("GET", path, nil)["ports"].([]any)) == 0 {
					b.Fatal("nothing found")
				}
			}
		})
	}
	b.Run("create", func(b *testing.B) {
		for b.Loop() {
			call("POST", "/ports", attrs{"port": attrs{"network_id": nets[0], "tags": []string{"a", "b"}}})
		}
	})
}
