// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/internal/stacktest"
	"github.com/kuryr/raven/service/plan"
)

// refusing is a transport that makes ports, at 50 ms a request, unless refuse has something against a request.
type refusing struct {
	refuse func(ports []map[string]any) (status int, body string, header []string)

	mu    sync.Mutex
	sizes []int
	times []time.Time
	made  int
}

func (f *refusing) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/auth/tokens") {
		return stacktest.Reply(r, 201, stacktest.TokenBody, "X-Subject-Token", "t1"), nil
	}
	if strings.HasSuffix(r.URL.Path, "/extensions") {
		return stacktest.Reply(r, 200, stacktest.ExtensionsBody), nil
	}
	var doc struct {
		Port  map[string]any   `json:"port"`
		Ports []map[string]any `json:"ports"`
	}
	if r.Body != nil {
		body, _ := io.ReadAll(r.Body)
		_ = r.Body.Close()
		_ = json.Unmarshal(body, &doc)
	}
	ports := doc.Ports
	if ports == nil {
		ports = []map[string]any{doc.Port}
	}
	f.mu.Lock()
	f.sizes = append(f.sizes, len(ports))
	f.times = append(f.times, time.Now())
	f.mu.Unlock()
	select {
	case <-time.After(50 * time.Millisecond):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if status, body, header := f.refuse(ports); status != 0 {
		return stacktest.Reply(r, status, body, header...), nil
	}
	f.made += len(ports)
	text, err := json.Marshal(map[string]any{"port": doc.Port, "ports": doc.Ports})
	return stacktest.Reply(r, 201, string(text)), err
}

// burst creates n ports at once and returns the errors, by number.
func burst(ctx context.Context, c *Client, n int, attrs func(i int) map[string]any) []error {
	errs := make([]error, n)
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { _, errs[i] = c.Create(ctx, drivers.KindPort, stacktest.IdentityOf(i), attrs(i)) })
	}
	wait.Wait()
	return errs
}

// queued creates n ports that wait in order before the first request goes out, so that the batches are the same every
// time. It needs a synctest bubble.
func queued(ctx context.Context, t *testing.T, c *Client, n int, attrs func(i int) map[string]any) []error {
	t.Helper()
	limit := c.service.Limit()
	for range limit {
		if err := c.service.Acquire(ctx); err != nil {
			t.Fatal(err)
		}
	}
	errs := make([]error, n)
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { _, errs[i] = c.Create(ctx, drivers.KindPort, stacktest.IdentityOf(i), attrs(i)) })
		synctest.Wait()
	}
	for range limit {
		c.service.Release()
	}
	wait.Wait()
	return errs
}

func plain(int) map[string]any { return map[string]any{"network_id": "n"} }

func classes(errs []error) map[openstack.Class]int {
	count := map[openstack.Class]int{}
	for _, err := range errs {
		count[openstack.Classify(err)]++
	}
	return count
}

func TestDivide(t *testing.T) {
	const (
		missing = "0b7f1d8a-8a3b-4b11-9ed1-0d2f5d7a8b11"
		there   = "1c7f1d8a-8a3b-4b11-9ed1-0d2f5d7a8b22"
	)
	has := func(ports []map[string]any, key, value string) bool {
		for _, port := range ports {
			if port[key] == value {
				return true
			}
		}
		return false
	}
	one := func(key, value string, which ...int) func(int) map[string]any {
		return func(i int) map[string]any {
			attrs := map[string]any{"network_id": there}
			for _, w := range which {
				if i == w {
					attrs[key] = value
				}
			}
			return attrs
		}
	}
	room := 5
	tests := []struct {
		name     string
		attrs    func(int) map[string]any
		refuse   func(ports []map[string]any) (int, string, []string)
		want     map[openstack.Class]int
		requests int // at most
	}{
		{
			"one is invalid, and the message does not say which: halves", one("name", "bad", 13),
			func(ports []map[string]any) (int, string, []string) {
				if has(ports, "name", "bad") {
					return 400, stacktest.NeutronBody("HTTPBadRequest", "Invalid input for name."), nil
				}
				return 0, "", nil
			},
			map[openstack.Class]int{openstack.ClassNone: 31, openstack.ClassTerminal: 1},
			10,
		},
		{
			"a MAC address in use is named: one more request", one("mac_address", "02:00:00:00:00:07", 13),
			func(ports []map[string]any) (int, string, []string) {
				if has(ports, "mac_address", "02:00:00:00:00:07") {
					return 409, stacktest.NeutronBody(
						"MacAddressInUse",
						"Unable to complete operation for network "+missing+". The mac address 02:00:00:00:00:07 is in use.",
					), nil
				}
				return 0, "", nil
			},
			map[openstack.Class]int{openstack.ClassNone: 31, openstack.ClassExists: 1},
			3,
		},
		{
			"a network that is gone takes all its ports and no other", one("network_id", missing, 3, 4, 5, 20, 21),
			func(ports []map[string]any) (int, string, []string) {
				if has(ports, "network_id", missing) {
					return 404, stacktest.NeutronBody("NetworkNotFound", "Network "+missing+" could not be found."), nil
				}
				return 0, "", nil
			},
			map[openstack.Class]int{openstack.ClassNone: 27, openstack.ClassNotFound: 5},
			4,
		},
		{
			"quota is not divided", plain,
			func(ports []map[string]any) (int, string, []string) {
				return 409, stacktest.NeutronBody("OverQuota", "Quota exceeded for resources: ['port']."), nil
			},
			map[openstack.Class]int{openstack.ClassQuota: 32},
			2,
		},
		{
			"a full subnet is filled to its last address, then given up", one("network_id", there),
			func(ports []map[string]any) (int, string, []string) {
				if len(ports) > room {
					return 409, stacktest.NeutronBody(
						"IpAddressGenerationFailure", "No more IP addresses available on network "+there+".",
					), nil
				}
				room -= len(ports)
				return 0, "", nil
			},
			map[openstack.Class]int{openstack.ClassNone: 5, openstack.ClassSubnetFull: 27},
			9,
		},
		{
			"all are refused for reasons of their own: bounded", plain,
			func(ports []map[string]any) (int, string, []string) {
				return 400, stacktest.NeutronBody("HTTPBadRequest", "no"), nil
			},
			nil, 48,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &refusing{refuse: test.refuse}
				c := connect(t, stacktest.TransportConfig(f))
				errs := queued(t.Context(), t, c, 32, test.attrs)
				got := classes(errs)
				t.Logf("%d requests %v, %v", len(f.sizes), f.sizes, got)
				if test.want != nil && fmt.Sprint(got) != fmt.Sprint(test.want) {
					t.Errorf("got %v, want %v", got, test.want)
				}
				if f.made != got[openstack.ClassNone] {
					t.Errorf("made %d, told %d", f.made, got[openstack.ClassNone])
				}
				if len(f.sizes) > test.requests {
					t.Errorf("%d requests, want at most %d", len(f.sizes), test.requests)
				}
			})
		})
	}
}

func TestThrottledHoldsEverybodyBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := false
		f := &refusing{refuse: func([]map[string]any) (int, string, []string) {
			if !refused {
				refused = true
				return 429, "slow down", []string{"Retry-After", "30"}
			}
			return 0, "", nil
		}}
		c := connect(t, stacktest.TransportConfig(f))
		began := time.Now()
		_, err := c.Create(t.Context(), drivers.KindPort, stacktest.IdentityOf(0), plain(0))
		if openstack.Classify(err) != openstack.ClassThrottled || openstack.RetryAfter(err) != 30*time.Second {
			t.Fatalf("got %v (%v, %v), want throttled for 30 s", err, openstack.Classify(err), openstack.RetryAfter(err))
		}
		for _, err := range burst(t.Context(), c, 40, plain) {
			if err != nil {
				t.Error(err)
			}
		}
		for _, at := range f.times[1:] {
			if wait := at.Sub(began); wait < 30*time.Second {
				t.Errorf("a request after %v", wait)
			}
		}
		// One whose caller does not want to wait that long is told that nothing was sent.
		refused = false
		if _, err := c.Create(
			t.Context(), drivers.KindPort, stacktest.IdentityOf(1), plain(1),
		); openstack.Classify(err) != openstack.ClassThrottled {
			t.Fatalf("got %v, want throttled", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Get(
			ctx, drivers.KindPort, "x",
		); !errors.Is(err, context.DeadlineExceeded) || openstack.Classify(err) != openstack.ClassRetry {
			t.Errorf("got %v (%v)", err, openstack.Classify(err))
		}
	})
}

func TestTooLargeHalvesTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &refusing{refuse: func(ports []map[string]any) (int, string, []string) {
			if len(ports) > 4 {
				return 413, "too large", nil
			}
			return 0, "", nil
		}}
		c := connect(t, stacktest.TransportConfig(f))
		left := make([]int, 100)
		for i := range left {
			left[i] = i
		}
		for range 10 {
			errs := burst(t.Context(), c, len(left), plain)
			var again []int
			for i, err := range errs {
				switch openstack.Classify(err) {
				case openstack.ClassNone:
				case openstack.ClassThrottled:
					again = append(again, left[i])
				default:
					t.Fatal(err)
				}
			}
			if left = again; len(left) == 0 {
				return
			}
		}
		t.Errorf("%d ports still do not fit in a request: %v", len(left), f.sizes)
	})
}

func TestBestEffortIsNoticedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bound int
		f := &refusing{refuse: func(ports []map[string]any) (int, string, []string) {
			for _, port := range ports {
				if port["binding:host_id"] != nil {
					bound++
					return 403, stacktest.NeutronBody(
						"PolicyNotAuthorized", "((rule:create_port and rule:create_port:binding:host_id)) is disallowed by policy",
					), nil
				}
			}
			return 0, "", nil
		}}
		var log bytes.Buffer
		c := connect(t, stacktest.TransportConfig(f))
		c.unsupported.log = slog.New(slog.NewTextHandler(&log, nil))
		attrs := func(int) map[string]any { return map[string]any{"network_id": "n", "binding:host_id": "node"} }
		if _, err := c.Create(t.Context(), drivers.KindPort, stacktest.IdentityOf(0), attrs(0)); err != nil {
			t.Fatal(err)
		}
		for _, err := range burst(t.Context(), c, 40, attrs) {
			if err != nil {
				t.Error(err)
			}
		}
		if bound != 1 {
			t.Errorf("met %d refusals, want 1", bound)
		}
		if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "level=WARN") {
			t.Errorf("logged %q", log.String())
		}
		if got := c.Unsupported(drivers.KindPort); len(got) != 1 || got[0] != "binding:host_id" {
			t.Errorf("unsupported: %v", got)
		}
	})
}

func TestForbiddenForAnotherReasonDropsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &refusing{refuse: func([]map[string]any) (int, string, []string) {
			return 403, stacktest.NeutronBody("PolicyNotAuthorized", "rule:create_port is disallowed by policy"), nil
		}}
		c := connect(t, stacktest.TransportConfig(f))
		_, err := c.Create(
			t.Context(), drivers.KindPort, stacktest.IdentityOf(0), map[string]any{"network_id": "n", "binding:host_id": "node"},
		)
		if openstack.Classify(err) != openstack.ClassForbidden || len(c.Unsupported(drivers.KindPort)) != 0 {
			t.Errorf("got %v, unsupported %v", err, c.Unsupported(drivers.KindPort))
		}
	})
}

func TestCreateGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &refusing{refuse: func([]map[string]any) (int, string, []string) { return 0, "", nil }}
		config := stacktest.TransportConfig(f)
		config.MaxConcurrency = 1
		c := connect(t, config)
		ctx, cancel := context.WithCancel(t.Context())
		results := make(chan error, 2)
		go func() {
			_, err := c.Create(ctx, drivers.KindPort, stacktest.IdentityOf(0), plain(0))
			results <- err
		}()
		synctest.Wait() // the first is under way and holds the only slot
		go func() {
			_, err := c.Create(ctx, drivers.KindPort, stacktest.IdentityOf(1), plain(1))
			results <- err
		}()
		synctest.Wait()
		cancel()
		got := map[openstack.Class]int{}
		for range 2 {
			err := <-results
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			got[openstack.Classify(err)]++
		}
		if got[openstack.ClassAmbiguous] != 1 || got[openstack.ClassRetry] != 1 {
			t.Errorf("got %v, want the one under way ambiguous and the waiting one not", got)
		}
		synctest.Wait()
		if f.made != 0 {
			t.Error("the request was not given up with its only caller")
		}
	})
}

func TestCloseEndsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &refusing{refuse: func([]map[string]any) (int, string, []string) {
			return 429, "slow down", []string{"Retry-After", "3600"}
		}}
		c := connect(t, stacktest.TransportConfig(f))
		if _, err := c.Create(
			t.Context(), drivers.KindPort, stacktest.IdentityOf(1), plain(1),
		); openstack.Classify(err) != openstack.ClassThrottled {
			t.Fatalf("got %v, want throttled", err)
		}
		results := make(chan error, 2)
		go func() {
			_, err := c.Create(t.Context(), drivers.KindPort, stacktest.IdentityOf(0), plain(0))
			results <- err
		}()
		go func() { results <- c.Delete(t.Context(), drivers.KindPort, "x") }()
		synctest.Wait()
		c.connection.Close()
		for range 2 {
			if err := <-results; !errors.Is(err, openstack.ErrClosed) || openstack.Classify(err) != openstack.ClassRetry {
				t.Errorf("got %v (%v)", err, openstack.Classify(err))
			}
		}
	})
}

func TestOnePortGoesAloneAndAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &refusing{refuse: func([]map[string]any) (int, string, []string) { return 0, "", nil }}
		c := connect(t, stacktest.TransportConfig(f))
		began := time.Now()
		got, err := c.Create(t.Context(), drivers.KindPort, stacktest.IdentityOf(0), plain(0))
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 50*time.Millisecond {
			t.Errorf("took %v", took)
		}
		want := plan.Identity{
			Cluster: "c1", Owner: plan.Owner{Driver: "pod", UID: "uid-0"}, Name: "port", Policy: drivers.Delete,
		}
		if got.Identity != want || len(got.Tags) != 4 || got.Description != want.Description() {
			t.Errorf("got %+v", got)
		}
	})
}
