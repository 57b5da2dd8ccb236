// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/internal/stacktest"
	sim "github.com/kuryr/raven/test/sim/openstack"
)

// TestAHostThatMayNotBeSetIsRefusedOnce: in a burst, one request of one port meets the refusal; where it may be set,
// nothing is lost.
func TestAHostThatMayNotBeSetIsRefusedOnce(t *testing.T) {
	const ports = 200
	for _, test := range []struct {
		name    string
		user    string
		refused int
		bound   int // ports with a host
	}{
		{"a member", sim.UserKuryr, 1, 0},
		{"an administrator", sim.UserKuryrAdmin, 0, ports},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, setup := startSim(t, sim.Options{Profile: sim.Flat(5 * time.Millisecond)})
			network, _ := place(t, setup, "10.0.0.0/16")
			c := connect(t, stacktest.SimConfig(s, test.user))
			s.ResetLog()
			attrs := func(i int) map[string]any {
				return map[string]any{
					"network_id": network.ID, "mac_address": MAC(stacktest.IdentityOf(i)), "binding:host_id": "node-1",
				}
			}
			for _, err := range many(t.Context(), c, ports, attrs) {
				if err != nil {
					t.Error(err)
				}
			}
			refused, items, requests := 0, 0, 0
			for _, r := range s.Log(0) {
				if r.Method != http.MethodPost || r.Kind != "port" {
					continue
				}
				requests++
				if r.Status == http.StatusForbidden {
					refused, items = refused+1, items+r.Items
				}
			}
			if refused != test.refused || items != test.refused {
				t.Errorf("%d requests of %d ports were refused, want %d of one port", refused, items, test.refused)
			}
			if requests > ports/2 {
				t.Errorf("%d requests: they are not made together", requests)
			}
			bound := 0
			for _, port := range s.Ports() {
				if port["binding:host_id"] == "node-1" {
					bound++
				}
			}
			if bound != test.bound {
				t.Errorf("%d ports have a host, want %d", bound, test.bound)
			}
		})
	}
}

// TestAProbeWithoutAnAnswer: one that says nothing of the host is followed by another; after a few of them the rest go
// together.
func TestAProbeWithoutAnAnswer(t *testing.T) {
	forbidden := stacktest.NeutronBody("PolicyNotAuthorized", "rule:create_port:binding:host_id is disallowed by policy")
	quota := stacktest.NeutronBody("OverQuota", "Quota exceeded for resources: ['port'].")
	for _, test := range []struct {
		name     string
		full     int   // how many requests meet the quota
		refused  []int // how many ports were in the requests that met the policy
		requests int   // at most
		made     int
	}{
		{"the first fails", 1, []int{1}, 20, 59},
		{"every one fails", 1000, nil, 15, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var refused []int
				requests := 0
				f := &refusing{refuse: func(ports []map[string]any) (int, string, []string) {
					requests++
					switch {
					case requests <= test.full:
						return 409, quota, nil
					case ports[0]["binding:host_id"] != nil:
						refused = append(refused, len(ports))
						return 403, forbidden, nil
					}
					return 0, "", nil
				}}
				c := connect(t, stacktest.TransportConfig(f))
				errs := queued(t.Context(), t, c, 60, onNode)
				t.Logf("requests of %v ports", f.sizes)
				if diff := cmp.Diff(test.refused, refused); diff != "" {
					t.Errorf("refused were requests of so many ports: %s", diff)
				}
				if got := classes(errs)[openstack.ClassNone]; got != test.made || requests > test.requests {
					t.Errorf("%d ports by %d requests, want %d by at most %d", got, requests, test.made, test.requests)
				}
			})
		})
	}
}

// TestAProbeThatHangs: no request waits for it for long, and one that is given up makes way for the next.
func TestAProbeThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first sync.Once
		m := newModel(0, func(int) time.Duration {
			took := 50 * time.Millisecond
			first.Do(func() { took = time.Hour })
			return took
		})
		c := connect(t, stacktest.TransportConfig(m))
		began := time.Now()
		hanging := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			_, err := c.Create(ctx, drivers.KindPort, stacktest.IdentityOf(100), onNode(0))
			hanging <- err
		}()
		synctest.Wait()
		for i, err := range burst(t.Context(), c, 40, onNode) {
			if err != nil {
				t.Errorf("port %d: %v", i, err)
			}
		}
		if took := time.Since(began); took > 2*probePatience {
			t.Errorf("the others took %v", took)
		}
		cancel()
		if err := <-hanging; openstack.Classify(err) != openstack.ClassAmbiguous {
			t.Errorf("the probe: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		m := newModel(0, func(int) time.Duration { return time.Second })
		c := connect(t, stacktest.TransportConfig(m))
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 1)
		go func() {
			_, err := c.Create(ctx, drivers.KindPort, stacktest.IdentityOf(0), onNode(0))
			errs <- err
		}()
		synctest.Wait()
		next := make(chan error, 1)
		go func() {
			_, err := c.Create(t.Context(), drivers.KindPort, stacktest.IdentityOf(1), onNode(1))
			next <- err
		}()
		synctest.Wait()
		if fmt.Sprint(m.sizes) != "[1]" {
			t.Fatalf("the second does not wait: %v", m.sizes)
		}
		cancel()
		if err := <-errs; openstack.Classify(err) != openstack.ClassAmbiguous {
			t.Errorf("the first: %v", err)
		}
		synctest.Wait()
		if fmt.Sprint(m.sizes) != "[1 1]" {
			t.Errorf("the second still waits for one that was given up: %v", m.sizes)
		}
		if err := <-next; err != nil {
			t.Error(err)
		}
	})
}
