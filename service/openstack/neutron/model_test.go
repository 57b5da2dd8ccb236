// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack/internal/stacktest"
)

// model is a networking service that exists only as its timing: how long a create of so many takes one of its workers.
// It is a transport, so that in a synctest bubble hours pass in no time and every run is the same.
type model struct {
	workers chan struct{} // nil: no bound
	cost    func(n int) time.Duration

	mu    sync.Mutex
	sizes []int
	busy  time.Duration
	most  int
	now   int
}

func newModel(workers int, cost func(int) time.Duration) *model {
	m := &model{cost: cost}
	if workers > 0 {
		m.workers = make(chan struct{}, workers)
	}
	return m
}

func flat50(int) time.Duration { return 50 * time.Millisecond }

// lab is fitted to the table of a real Neutron with OVN on two cores: 0.40 s for one port, 2.97 for ten, 19.8 for
// fifty, 53.3 for a hundred.
func lab(n int) time.Duration {
	items := float64(n)
	return time.Duration((0.1 + 0.28*items + 0.0025*items*items) * float64(time.Second))
}

func (m *model) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		_ = r.Body.Close()
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/auth/tokens"):
		return stacktest.Reply(r, 201, stacktest.TokenBody, "X-Subject-Token", "t1"), nil
	case strings.HasSuffix(r.URL.Path, "/extensions"):
		return stacktest.Reply(r, 200, stacktest.ExtensionsBody), nil
	}
	var doc struct {
		Port  map[string]any   `json:"port"`
		Ports []map[string]any `json:"ports"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, err
	}
	n := max(len(doc.Ports), 1)
	m.begin(n)
	defer m.end()
	if m.workers != nil {
		m.workers <- struct{}{}
		defer func() { <-m.workers }()
	}
	took := m.cost(n)
	timer := time.NewTimer(took)
	select {
	case <-timer.C:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	m.mu.Lock()
	m.busy += took
	m.mu.Unlock()
	for i, port := range append(doc.Ports, doc.Port) {
		if port != nil {
			port["id"] = fmt.Sprintf("port-%d", i)
		}
	}
	out := map[string]any{"port": doc.Port}
	if doc.Ports != nil {
		out = map[string]any{"ports": doc.Ports}
	}
	text, err := json.Marshal(out)
	return stacktest.Reply(r, 201, string(text)), err
}

func (m *model) begin(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sizes = append(m.sizes, n)
	m.now++
	m.most = max(m.most, m.now)
}

func (m *model) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now--
}

// createPorts creates n ports at once and returns how long it took.
func createPorts(ctx context.Context, tb testing.TB, c *Client, from, n int) time.Duration {
	tb.Helper()
	started := time.Now()
	var wait sync.WaitGroup
	for i := from; i < from+n; i++ {
		wait.Go(func() {
			got, err := c.Create(ctx, drivers.KindPort, stacktest.IdentityOf(i), map[string]any{"network_id": "n"})
			if err != nil {
				tb.Errorf("port %d: %v", i, err)
			} else if got.Identity.Key() != stacktest.IdentityOf(i).Key() {
				tb.Errorf("port %d is given that of %v", i, got.Identity)
			}
		})
	}
	wait.Wait()
	return time.Since(started)
}

// TestPace bounds requests and time against servers of several characters.
func TestPace(t *testing.T) {
	ideal := func(workers int, cost func(int) time.Duration, n int) time.Duration {
		best := time.Duration(1 << 62)
		for size := 1; size <= 512; size++ {
			best = min(best, cost(size)*time.Duration(n)/time.Duration(size*workers))
		}
		return best
	}
	linear := func(n int) time.Duration { return 20*time.Millisecond + time.Duration(n)*10*time.Millisecond }
	tests := []struct {
		name     string
		workers  int
		cost     func(int) time.Duration
		n        int
		requests int           // at most
		took     time.Duration // at most
		share    float64       // at least, of what the workers could do
	}{
		{"flat 50 ms, a thousand", 0, flat50, 1000, 24, 300 * time.Millisecond, 0},
		{"flat 50 ms, ten thousand", 0, flat50, 10000, 70, time.Second, 0},
		{"the lab's two workers", 2, lab, 1000, 250, 0, 0.85},
		{"the lab's, few", 2, lab, 50, 24, 0, 0.6},
		{"one slow worker", 1, lab, 300, 120, 0, 0.8},
		{"eight linear workers", 8, linear, 4000, 300, 0, 0.45},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel(test.workers, test.cost)
				c := connect(t, stacktest.TransportConfig(m))
				took := createPorts(t.Context(), t, c, 0, test.n)
				share := 0.0
				if test.workers > 0 {
					share = ideal(test.workers, test.cost, test.n).Seconds() / took.Seconds()
				}
				t.Logf("%d ports: %d requests, %v, %.0f%% of the best, at most %d at once, sizes %v, slots %d",
					test.n, len(m.sizes), took, 100*share, m.most, m.sizes, c.Stats().Slots)
				if len(m.sizes) > test.requests {
					t.Errorf("%d requests, want at most %d", len(m.sizes), test.requests)
				}
				if test.took > 0 && took > test.took {
					t.Errorf("took %v, want at most %v", took, test.took)
				}
				if share < test.share {
					t.Errorf("%.2f of the best throughput, want at least %.2f", share, test.share)
				}
			})
		})
	}
}
