// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testclock "k8s.io/utils/clock/testing"

	"github.com/kuryr/raven/test/sim/openstack"
)

// wire is a member's connection to a served cloud.
type wire struct {
	t     *testing.T
	c     *openstack.Cloud
	token string
	http  *http.Client
}

func dial(t *testing.T, o openstack.Options) *wire {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	w := &wire{t: t, c: start(t, o), http: &http.Client{Transport: transport, Timeout: 20 * time.Second}}
	auth := attrs{"auth": attrs{
		"identity": attrs{
			"methods": []string{"password"},
			"password": attrs{
				"user": attrs{"name": openstack.UserKuryr, "domain": attrs{"id": "default"}, "password": "secret"},
			},
		},
		"scope": attrs{"project": attrs{"name": openstack.ProjectKuryr, "domain": attrs{"id": "default"}}},
	}}
	status, header, _, err := w.send(t.Context(), "POST", w.c.AuthURL()+"/auth/tokens", auth)
	if err != nil || status != http.StatusCreated {
		t.Fatalf("logging in: %d, %v", status, err)
	}
	w.token = header.Get("X-Subject-Token")
	w.c.ResetLog()
	return w
}

// send returns an error for a cut connection, and for a body cut short.
func (w *wire) send(ctx context.Context, method, url string, body any) (int, http.Header, attrs, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return 0, nil, nil, err
	}
	if body == nil {
		raw = nil
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(raw))
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header.Set("X-Auth-Token", w.token)
	resp, err := w.http.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, resp.Header, nil, err
	}
	var doc attrs
	if len(got) > 0 {
		err = json.Unmarshal(got, &doc)
	}
	return resp.StatusCode, resp.Header, doc, err
}

func (w *wire) do(method, path string, body any) (int, http.Header, error) {
	status, header, _, err := w.send(w.t.Context(), method, w.c.NetworkURL()+"/v2.0"+path, body)
	return status, header, err
}

func (w *wire) rule(r openstack.Rule) {
	w.t.Helper()
	if _, err := w.c.AddFault(r); err != nil {
		w.t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestFaults(t *testing.T) {
	network := func(name string) attrs { return attrs{"network": attrs{"name": name}} }
	tests := []struct {
		name    string
		rule    openstack.Rule
		status  int // 0: an error
		applied bool
	}{
		{"status", openstack.Rule{Action: "status", Status: 503, Headers: map[string]string{"Retry-After": "7"}}, 503, false},
		{"cut", openstack.Rule{Action: "cut"}, 0, false},
		{"apply then cut", openstack.Rule{Action: "apply-cut"}, 0, true},
		{"apply then a gateway's timeout", openstack.Rule{Action: "apply-status", Status: 504}, 504, true},
		{"delay", openstack.Rule{Action: "delay", Delay: openstack.Duration(time.Millisecond)}, 201, true},
		{"truncated", openstack.Rule{Action: "truncate"}, 0, true},
		{"apply late", openstack.Rule{Action: "apply-late", Delay: openstack.Duration(time.Millisecond)}, 0, true},
		{"by body", openstack.Rule{Action: "cut", Body: "victim"}, 0, false},
		{"by another body", openstack.Rule{Action: "cut", Body: "nobody"}, 201, true},
		{
			"by path and kind",
			openstack.Rule{Action: "cut", Method: "write", Kind: "network", Path: "^/v2.0/networks$"},
			0,
			false,
		},
		{"by another method", openstack.Rule{Action: "cut", Method: "GET"}, 201, true},
		{"the second one only", openstack.Rule{Action: "cut", Nth: 2}, 201, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := dial(t, openstack.Options{NoExternal: true})
			w.rule(tt.rule)
			status, header, err := w.do("POST", "/networks", network("victim"))
			if (err != nil) != (tt.status == 0) || (err == nil && status != tt.status) {
				t.Errorf("got %d, %v; want %d", status, err, tt.status)
			}
			for k, v := range tt.rule.Headers {
				if header.Get(k) != v {
					t.Errorf("header %s is %q", k, header.Get(k))
				}
			}
			if tt.applied {
				eventually(t, "the network is there", func() bool { return len(w.c.Networks()) == 1 })
			} else if len(w.c.Networks()) != 0 {
				t.Error("the request was applied")
			}
			w.c.ClearFaults()
			if status, _, err := w.do("POST", "/networks", network("x")); status != 201 || err != nil {
				t.Errorf("after the faults: %d, %v", status, err)
			}
		})
	}
}

func TestFaultNthAndTimes(t *testing.T) {
	w := dial(t, openstack.Options{})
	w.rule(openstack.Rule{Method: "GET", Kind: "port", Nth: 2, Times: 2, Action: openstack.ActionStatus, Status: 500})
	var got []int
	for range 5 {
		status, _, err := w.do("GET", "/ports", nil)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, status)
	}
	if diff := cmp.Diff([]int{200, 500, 500, 200, 200}, got); diff != "" {
		t.Error(diff)
	}
	if f := w.c.Faults()[0]; f.Matched != 5 || f.Acted != 2 {
		t.Errorf("the rule's state is %+v", f)
	}
}

func TestFaultProbabilityIsRepeatable(t *testing.T) {
	run := func() (out []int) {
		w := dial(t, openstack.Options{Seed: 3})
		w.rule(openstack.Rule{Probability: 0.5, Action: openstack.ActionStatus, Status: 500})
		for range 40 {
			status, _, err := w.do("GET", "/ports", nil)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, status)
		}
		return out
	}
	a, b := run(), run()
	if diff := cmp.Diff(a, b); diff != "" {
		t.Error(diff)
	}
	failed := strings.Count(fmt.Sprint(a), "500")
	if failed < 8 || failed > 32 {
		t.Errorf("%d of 40 failed", failed)
	}
}

func TestTimeoutHangsUntilTheClientGoes(t *testing.T) {
	w := dial(t, openstack.Options{})
	w.rule(openstack.Rule{Method: "POST", Action: openstack.ActionTimeout})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, _, _, err := w.send(ctx, "POST", w.c.NetworkURL()+"/v2.0/networks", attrs{"network": attrs{}}); err == nil {
		t.Error("it was answered")
	}
	eventually(t, "the request is over", func() bool { return len(w.c.Log(0)) == 1 })
}

// TestApplyLate: what was cut commits after its delay, by the injected clock, and not before.
func TestApplyLate(t *testing.T) {
	clock := testclock.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	w := dial(t, openstack.Options{Clock: clock, NoExternal: true})
	w.rule(openstack.Rule{Method: "POST", Action: openstack.ActionApplyLate, Delay: openstack.Duration(10 * time.Second)})
	if _, _, err := w.do("POST", "/networks", attrs{"network": attrs{"name": "late"}}); err == nil {
		t.Error("the connection was not cut")
	}
	eventually(t, "the late commit waits", clock.HasWaiters)
	clock.Step(9 * time.Second)
	if len(w.c.Networks()) != 0 {
		t.Error("it committed early")
	}
	clock.Step(time.Second)
	eventually(t, "it committed", func() bool { return len(w.c.Networks()) == 1 })
	if at := w.c.Networks()[0]["created_at"]; at != "2030-01-01T00:00:10Z" {
		t.Errorf("created at %v", at)
	}
}

// TestCloseGivesUp: nothing that waits keeps Close waiting, and nothing of it is applied.
func TestCloseGivesUp(t *testing.T) {
	w := dial(t,
		openstack.Options{
			NoExternal: true,
			Profile:    &openstack.Profile{Workers: 1, Costs: map[string]openstack.Cost{"POST network": {Base: time.Hour}}},
		})
	w.rule(openstack.Rule{Method: "PUT", Action: openstack.ActionTimeout})
	w.rule(openstack.Rule{Method: "DELETE", Action: openstack.ActionApplyLate, Delay: openstack.Duration(time.Hour)})
	var wg sync.WaitGroup
	for _, method := range []string{"POST", "POST", "PUT", "DELETE"} {
		wg.Go(func() {
			if status, _, err := w.do(method, "/networks", attrs{"network": attrs{}}); err == nil {
				t.Errorf("%s was answered with %d", method, status)
			}
		})
	}
	eventually(t, "all four are there", func() bool { return w.c.Stats().Requests == 4 })
	w.c.Close()
	wg.Wait()
	if n := w.c.Count("network"); n != 0 {
		t.Errorf("%d networks were made", n)
	}
}

func TestHooksSeeEveryRequestTwice(t *testing.T) {
	w := dial(t, openstack.Options{NoExternal: true})
	type seen struct {
		Write  int
		After  bool
		Exists int
	}
	var mu sync.Mutex
	var got []seen
	w.c.OnRequest(func(_ int, r openstack.Request) {
		if r.WriteN == 0 {
			return
		}
		n := w.c.Count("network")
		mu.Lock()
		defer mu.Unlock()
		got = append(got, seen{r.WriteN, r.After, n})
	})
	for range 2 {
		if _, _, err := w.do("POST", "/networks", attrs{"network": attrs{}}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := w.do("GET", "/networks", nil); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]seen{{1, false, 0}, {1, true, 1}, {2, false, 1}, {2, true, 2}}, got); diff != "" {
		t.Error(diff)
	}
}

func TestAdminEndpoints(t *testing.T) {
	w := dial(t, openstack.Options{})
	sim := func(method, path string, body any) (int, attrs) {
		t.Helper()
		status, _, doc, err := w.send(t.Context(), method, w.c.BaseURL()+"/sim/"+path, body)
		if err != nil {
			t.Fatal(err)
		}
		return status, doc
	}
	if status, doc := sim("POST", "faults",
		attrs{"kind": "port", "action": "status", "status": 503, "delay": "10ms"}); status != 200 || doc["id"] != 1.0 {
		t.Errorf("adding a fault gave %d %v", status, doc)
	}
	if status, _, _ := w.do("GET", "/ports", nil); status != 503 {
		t.Errorf("the fault did not act: %d", status)
	}
	if _, doc := sim("GET", "faults", nil); len(doc["faults"].([]any)) != 1 {
		t.Errorf("faults are %v", doc)
	}
	if status, _ := sim("DELETE", "faults", nil); status != 204 || len(w.c.Faults()) != 0 {
		t.Error("the faults are still there")
	}
	if _, _, err := w.do("POST", "/networks", attrs{"networks": []attrs{{"name": "a"}, {"name": "b"}}}); err != nil {
		t.Fatal(err)
	}
	_, stats := sim("GET", "stats", nil)
	if got := stats["items"].(attrs)["POST network"]; got != 2.0 {
		t.Errorf("stats are %v", stats)
	}
	_, log := sim("GET", "log?after=1", nil)
	last := log["requests"].([]any)[0].(attrs)
	if last["method"] != "POST" || last["kind"] != "network" || last["status"] != 201.0 || last["items"] != 2.0 ||
		last["project"] != w.c.ProjectID(openstack.ProjectKuryr) {
		t.Errorf("the log says %v", last)
	}
	sim("POST", "expire-tokens", nil)
	if status, _, _ := w.do("GET", "/ports", nil); status != 401 {
		t.Errorf("an expired token gave %d", status)
	}
	if req, err := http.NewRequestWithContext(t.Context(), "GET", w.c.BaseURL()+"/sim/dump?identity", nil); err == nil {
		resp, err := w.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || !strings.Contains(string(text), `network "a"`) {
			t.Errorf("the dump is %s, %v", text, err)
		}
	}
}

// TestMany: clients at once never get one address twice.
func TestMany(t *testing.T) {
	w := dial(t, openstack.Options{})
	h := hand{t, w.c}
	n := h.make("networks", attrs{"name": "n"})
	h.make("subnets", attrs{"network_id": n, "ip_version": 4, "cidr": "10.0.0.0/16"})
	var failed atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				many := []attrs{{"network_id": n}, {"network_id": n}}
				if status, _, err := w.do("POST", "/ports", attrs{"ports": many}); status != 201 || err != nil {
					failed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, p := range w.c.Ports() {
		for _, f := range p["fixed_ips"].([]any) {
			if f.(attrs)["subnet_id"] != "" && p["network_id"] == n {
				seen[f.(attrs)["ip_address"].(string)] = true
			}
		}
	}
	if failed.Load() != 0 || len(seen) != 320 {
		t.Errorf("%d requests failed, %d distinct addresses, want 320", failed.Load(), len(seen))
	}
}
