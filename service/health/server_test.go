// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kuryr/raven/service"
	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/health"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ service.Service = (*health.Server)(nil)

func start(t *testing.T, c health.Config, r *health.Registry) *health.Server {
	t.Helper()
	c.Host, c.MetricsHost, c.Logger = "127.0.0.1", "127.0.0.1", slog.New(slog.DiscardHandler)
	s := health.New(c, r)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background(), true); err != nil { // the test's context has ended
			t.Error(err)
		}
		if err := s.Wait(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func fetch(t *testing.T, method, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestProbes(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Unix(0, 0).UTC())
	registry := health.NewRegistry(clk)
	s := start(t, health.Config{}, registry)
	check := func(path string, code int, body string) {
		t.Helper()
		gotCode, gotBody := fetch(t, http.MethodGet, "http://"+s.Address()+path)
		if diff := cmp.Diff(fmt.Sprint(code, "\n", body), fmt.Sprint(gotCode, "\n", gotBody)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	check("/livez", 200, "alive\n")
	check("/readyz", 503, "not ready\n") // no component has reported
	watch, plugin := registry.Component("watch"), registry.Component("driver pod")
	check("/livez", 200, "alive\nnot ready driver pod: starting\nnot ready watch: starting\n") // waiting is alive
	check("/readyz", 503, "not ready\nnot ready driver pod: starting\nnot ready watch: starting\n")
	watch.Ready()
	plugin.Degraded("its plugin\nis restarting")
	check("/readyz", 200, "ready\ndegraded  driver pod: its plugin is restarting\nready     watch\n")
	clk.SetTime(time.Unix(60, 0).UTC())
	registry.Component("watch").NotReady("waiting for pods") // asking again resets nothing
	check("/readyz", 503, "not ready\ndegraded  driver pod: its plugin is restarting\nnot ready watch: waiting for pods\n")
	check("/readyz?format=json", 503, `{
  "components": [
    {
      "name": "driver pod",
      "state": "degraded",
      "reason": "its plugin\nis restarting",
      "since": "1970-01-01T00:00:00Z"
    },
    {
      "name": "watch",
      "state": "not ready",
      "reason": "waiting for pods",
      "since": "1970-01-01T00:01:00Z"
    }
  ],
  "ready": false
}
`)
	clk.SetTime(time.Unix(120, 0).UTC())
	watch.NotReady("still waiting")
	if got := registry.Reports()[1].Since; !got.Equal(time.Unix(60, 0)) {
		t.Errorf("another reason is no other state, but it counts from %s", got)
	}
	watch.NotReady("waiting for pods")
	plugin.Failed("its binary is gone")
	check("/livez", 503, "not alive\nfailed    driver pod: its binary is gone\nnot ready watch: waiting for pods\n")
	plugin.Remove()
	check("/livez", 200, "alive\nnot ready watch: waiting for pods\n")
	if code, _ := fetch(t, http.MethodPost, "http://"+s.Address()+"/livez"); code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", code)
	}
	for _, path := range []string{"/status", "/metrics", "/"} { // not given
		if code, _ := fetch(t, http.MethodGet, "http://"+s.Address()+path); code != http.StatusNotFound {
			t.Errorf("%s: %d", path, code)
		}
	}
}

// TestStalledIsNotAlive: what stands still for ever is told by /livez, so that a probe has it started anew; /readyz
// has its own reasons.
func TestStalledIsNotAlive(t *testing.T) {
	registry := health.NewRegistry(clocktesting.NewFakePassiveClock(time.Unix(0, 0).UTC()))
	registry.Component("raven").Ready()
	var mu sync.Mutex
	var stalled []string
	s := start(t, health.Config{Stalled: func() []string { mu.Lock(); defer mu.Unlock(); return stalled }}, registry)
	check := func(path string, code int, body string) {
		t.Helper()
		if gotCode, gotBody := fetch(t, http.MethodGet, "http://"+s.Address()+path); gotCode != code || gotBody != body {
			t.Errorf("%s: %d %q, want %d %q", path, gotCode, gotBody, code, body)
		}
	}
	check("/livez", 200, "alive\nready     raven\n")
	mu.Lock()
	stalled = []string{"queue pod"}
	mu.Unlock()
	check("/livez", 503, "not alive\nready     raven\nfailed    queue pod: it stands still\n")
	check("/readyz", 200, "ready\nready     raven\n")
}

func TestStatusAndMetrics(t *testing.T) {
	metrics := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "raven_things_total", Help: "Things."})
	metrics.MustRegister(counter)
	counter.Inc()
	s := start(t, health.Config{
		MetricsPort: -1, Gatherer: metrics,
		Status: func(query url.Values) (any, error) {
			switch query.Get("kind") {
			case "bad":
				return nil, fmt.Errorf("kind: %w", health.ErrQuery)
			case "broken":
				return nil, errors.New("broken")
			case "odd":
				return func() {}, nil
			case "panic":
				panic("status")
			}
			return map[string]any{"kind": query.Get("kind")}, nil
		},
	}, health.NewRegistry(clocktesting.NewFakePassiveClock(time.Unix(0, 0))))
	for query, want := range map[string]string{
		"kind=Pod":    "200 {\n  \"kind\": \"Pod\"\n}\n",
		"kind=bad":    "400 {\n  \"error\": \"kind: bad query\"\n}\n",
		"kind=broken": "500 {\n  \"error\": \"broken\"\n}\n",
		"kind=odd":    "500 encoding the answer: json: unsupported type: func()\n",
		"kind=%zz":    "400 {\n  \"error\": \"invalid URL escape \\\"%zz\\\"\"\n}\n",
	} {
		code, body := fetch(t, http.MethodGet, "http://"+s.Address()+"/status?"+query)
		if diff := cmp.Diff(want, fmt.Sprint(code, " ", body)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
	for _, address := range []string{s.Address(), s.MetricsAddress()} {
		code, body := fetch(t, http.MethodGet, "http://"+address+"/metrics")
		if code != http.StatusOK || !strings.Contains(body, "raven_things_total 1") {
			t.Errorf("%s: %d %s", address, code, body)
		}
	}
	if code, _ := fetch(t, http.MethodGet, "http://"+s.MetricsAddress()+"/status"); code != http.StatusNotFound {
		t.Error("the exporter shows the status")
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Address()+"/status?kind=panic",
		nil)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request); err == nil {
		response.Body.Close()
		t.Error("a panic was answered")
	}
	if code, _ := fetch(t, http.MethodGet, "http://"+s.Address()+"/livez"); code != http.StatusOK {
		t.Error("a panic in the status ended the server")
	}
}

func TestAPortInUse(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	registry := health.NewRegistry(clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
	for name, tc := range map[string]struct {
		config health.Config
		want   string
	}{
		"health": {
			health.Config{Host: "127.0.0.1", Port: port},
			fmt.Sprintf("[health_server] port: 127.0.0.1:%d is in use by another process, perhaps another Raven with "+
				"this configuration; stop that or set another port", port),
		},
		"metrics": {
			health.Config{Host: "127.0.0.1", MetricsHost: "127.0.0.1", MetricsPort: port, Gatherer: prometheus.NewRegistry()},
			fmt.Sprintf("[prometheus_exporter] port: 127.0.0.1:%d is in use by another process, perhaps another Raven with "+
				"this configuration; stop that or set another port",
				port),
		},
		"host": {health.Config{Host: "192.0.2.1"}, "[health_server] host: 192.0.2.1 is no address of this machine"},
	} {
		t.Run(name, func(t *testing.T) {
			err := health.New(tc.config, registry).Start(t.Context())
			if _, ok := errors.AsType[*config.Error](err); !ok || err.Error() != tc.want {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

func TestASlowRequestDoesNotHoldAStop(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	s := health.New(health.Config{
		Host: "127.0.0.1", Logger: slog.New(slog.DiscardHandler),
		Status: func(url.Values) (any, error) { close(asked); <-release; return nil, nil },
	}, health.NewRegistry(clocktesting.NewFakePassiveClock(time.Unix(0, 0))))
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing is buffered
	if _, err := io.WriteString(conn, "GET /status HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-asked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Stop(ctx, true); !errors.Is(err, context.Canceled) {
		t.Errorf("a stop whose time is over: %v", err)
	}
	if err := s.Wait(); err != nil {
		t.Errorf("after Stop: %v", err)
	}
	close(release)
}

func TestOptions(t *testing.T) {
	values, _, err := config.Load(config.Sources{}, health.Options())
	if err != nil {
		t.Fatal(err)
	}
	want := health.Config{Host: "127.0.0.1", Port: 8082, MetricsHost: "127.0.0.1", MetricsPort: 9654}
	if got := health.FromConfig(values); got.Host != want.Host || got.Port != want.Port ||
		got.MetricsHost != want.MetricsHost || got.MetricsPort != want.MetricsPort {
		t.Errorf("got %+v", got)
	}
}
