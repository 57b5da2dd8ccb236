// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/ovn"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

func oftenLooking(c *config) {
	quick(c)
	c.DriftInterval, c.SlowRetry, c.AmbiguousWait = 50*time.Millisecond, 50*time.Millisecond, 100*time.Millisecond
}

// TestNoLoadBalancingService concerns only objects that desire load balancers, until there is one: without a restart.
func TestNoLoadBalancingService(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{NoOctavia: true})
	b := script("b", always(shop()))
	r := w.start(with(script("a", always(shopOf(1).set())), b).configured(oftenLooking))
	w.createMap("a", "x")
	w.createMap("b", "y")
	r.stands("a", "x", state.Waiting, "no load balancing service")
	r.stands("b", "y", state.Done, "")
	w.eventually("an Event", func() (bool, string) {
		list, err := w.kube.List(events(), "default")
		return err == nil && strings.Contains(fmt.Sprint(list), "no load balancing service"), fmt.Sprint(list)
	})
	list, err := w.kube.List(events(), "default")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e["type"] != "Normal" && strings.Contains(fmt.Sprint(e), "name:y") {
			t.Errorf("something was said of what wants none: %v", e)
		}
	}
	w.cloud.SetOctavia(true)
	r.settled(2)
	w.one("loadbalancer", "shop")
}

// TestBalancersOfALostService: what belongs to an object that goes while there is no load balancing service is not
// forgotten, whether it goes while Raven runs, or does not run, or has never seen it.
func TestBalancersOfALostService(t *testing.T) {
	t.Parallel()
	own := func(name string, _ *drivers.Needs) (drivers.Set, error) {
		if name == "place" {
			return setOf(exporting(network("home"), "net"), exporting(subnet("home", "10.7.0.0/16"), "sub")), nil
		}
		s := served{ports: []int64{80}}
		s.extra = func(lb *drivers.LoadBalancer) { lb.VIPSubnetID = drivers.FromRole(of("place", "sub")) }
		set := s.set()
		set.Resources = set.Resources[2:]
		return set, nil
	}
	for name, c := range map[string]struct{ restart, unseen bool }{
		"while Raven runs":               {},
		"while it does not":              {restart: true, unseen: true},
		"while it runs, and has started": {restart: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := balancers(t, amphora())
			s := with(script("a", own)).configured(oftenLooking)
			r := w.start(s)
			w.createMap("a", "place")
			w.createMap("a", "x")
			r.settled(2)
			if c.restart {
				r.stop()
			}
			w.cloud.SetOctavia(false)
			if c.unseen {
				w.deleteMap("x")
			}
			if c.restart {
				r = w.start(s)
			}
			w.drifts(2)
			if !c.unseen {
				if c.restart {
					r.stands("a", "x", state.Waiting, "load balancing service")
				}
				w.deleteMap("x")
				w.drifts(2)
				w.eventually("it is waited for", func() (bool, string) {
					all := r.engine.Objects(reconcile.Filter{Driver: "a", Name: "x"})
					return len(all) == 1 && all[0].Deleted && strings.Contains(fmt.Sprint(all[0].Reasons), "load balancing service"),
						fmt.Sprint(all)
				})
			}
			if w.cloud.Count("loadbalancer") != 1 {
				t.Errorf("it went:\n%s", w.dump())
			}
			w.cloud.SetOctavia(true)
			w.none("loadbalancer", "shop")
			r.settled(1)
		})
	}
}

// emptyNorthbound is a northbound database in which nothing is.
type emptyNorthbound struct{ ovn.Database }

func (emptyNorthbound) List(drivers.Kind) ([]plan.Observed, error) { return nil, nil }

// TestCleanupWithoutOctavia says that it did not look for load balancers, and removes all that can go without.
func TestCleanupWithoutOctavia(t *testing.T) {
	t.Parallel()
	w := balancers(t, amphora())
	set := shopOf(1).set()
	set.Resources = append(set.Resources, group("vip"))
	r := w.start(with(script("a", always(set))).configured(quick))
	w.createMap("a", "x")
	r.settled(1)
	r.stop()
	cleanup := func(seen bool, left int, goOn time.Duration) {
		t.Helper()
		c := w.cleanup(emptyNorthbound{}, goOn)
		p, err := c.Plan(t.Context())
		if err != nil || (len(p.Unseen) == 0) != seen {
			t.Errorf("%v, %v", p.Unseen, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if kept, err := c.Run(ctx); err != nil || len(kept) != left {
			t.Errorf("left %v, %v", kept, err)
		}
	}
	w.cloud.SetOctavia(false)
	cleanup(false, 2, 100*time.Millisecond) // the network and the subnet, which the VIP's port uses
	w.none("security_group", "vip")
	w.cloud.SetOctavia(true)
	cleanup(true, 0, patience) // a load balancer takes its time
	if n := w.cloud.Count("loadbalancer") + w.cloud.Count("port"); n > 0 {
		t.Errorf("something is left:\n%s", w.dump())
	}
}
