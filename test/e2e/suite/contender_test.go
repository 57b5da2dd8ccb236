// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kuryr/raven/test/e2e/stack"
	"github.com/kuryr/raven/test/harness"
)

// contender is one of several ravens for one cluster. It reaches the API server by a proxy that can be cut, and
// Neutron by a gateway that can hold a request back.
type contender struct {
	name    string
	proxy   *harness.Proxy
	gateway *gateway
	conf    harness.Settings // beside the site's
	health  int
}

func newContender(t *testing.T, name string) *contender {
	t.Helper()
	proxy, kubeconfig := viaProxy(t, name)
	p := &contender{name: name, proxy: proxy, gateway: newGateway(t)}
	var err error
	if p.health, err = stack.FreePort(); err != nil {
		t.Fatal(err)
	}
	p.conf = harness.Settings{}.Set("kubernetes", "kubeconfig", kubeconfig).Set("neutron", "endpoint_override",
		p.gateway.server.URL).
		Set("health_server", "port", p.health).Set("raven", "runtime_dir", filepath.Join(world.scratch, name))
	return p
}

// viaProxy sets a proxy before the API server, and returns a kubeconfig of Raven's account that leads through it.
func viaProxy(t *testing.T, name string) (p *harness.Proxy, kubeconfig string) {
	t.Helper()
	account, err := clientcmd.LoadFromFile(world.accountFile)
	if err != nil {
		t.Fatal(err)
	}
	cluster := account.Clusters[account.Contexts[account.CurrentContext].Cluster]
	server, err := url.Parse(cluster.Server)
	if err != nil {
		t.Fatal(err)
	}
	if p, err = harness.NewProxy(server.Host); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	cluster.TLSServerName = server.Hostname()
	cluster.Server = server.Scheme + "://" + p.Address()
	kubeconfig = filepath.Join(t.TempDir(), name+".kubeconfig")
	if err := clientcmd.WriteToFile(*account, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return p, kubeconfig
}

// ready says what a probe of the kubelet hears, "" where it is well.
func (p *contender) ready(ctx context.Context) string {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/readyz", p.health),
		nil)
	if err != nil {
		return err.Error()
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return fmt.Sprintf("%s %s (%v)", response.Status, text, err)
	}
	return ""
}

// gateway stands before Neutron. It knows when each change came, and can hold one back for longer than its sender
// waits.
type gateway struct {
	server *httptest.Server
	target *url.URL

	mu      sync.Mutex
	changes []change
	held    *held // the one that is waited for; nil where none is
}

// change is a request that is not a GET.
type change struct {
	what string
	at   time.Time
}

// held is one request that reaches Neutron only when it is let go, whether or not its sender still waits.
type held struct {
	method, path string
	arrived      chan struct{}
	release      chan struct{}
	once         sync.Once
	answer       chan late // Neutron's
}

// late is Neutron's answer to what was held back.
type late struct {
	status int    // 0 where there was none
	id     string // of what was made
}

func (h *held) letGo() { h.once.Do(func() { close(h.release) }) }

func newGateway(t *testing.T) *gateway {
	t.Helper()
	target, err := url.Parse(strings.TrimSuffix(world.cloud.client.Endpoint, "/"))
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{target: target}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(target)
		p.Out.Host = p.In.Host // of the links in the answers
	}}
	g.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if h := g.note(q); h != nil {
			g.later(h, q)
			panic(http.ErrAbortHandler) // nobody waits for an answer
		}
		proxy.ServeHTTP(w, q)
	}))
	t.Cleanup(func() {
		g.mu.Lock()
		h := g.held
		g.mu.Unlock()
		if h != nil {
			h.letGo()
		}
		g.server.CloseClientConnections()
		g.server.Close()
		transport.CloseIdleConnections()
	})
	return g
}

// hold holds back the next request of that method to that collection.
func (g *gateway) hold(method, collection string) *held {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = &held{
		method: method, path: "/v2.0/" + collection, arrived: make(chan struct{}), release: make(chan struct{}),
		answer: make(chan late, 1),
	}
	return g.held
}

// note remembers a change. It returns what holds it back.
func (g *gateway) note(q *http.Request) *held {
	if q.Method == http.MethodGet {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changes = append(g.changes, change{q.Method + " " + q.URL.Path, time.Now()})
	h := g.held
	if h == nil || q.Method != h.method || q.URL.Path != h.path {
		return nil
	}
	select {
	case <-h.arrived:
		return nil // it was the first one only
	default:
		close(h.arrived)
		return h
	}
}

// later sends a request to Neutron when it is let go.
func (g *gateway) later(h *held, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	<-h.release
	if err != nil {
		h.answer <- late{}
		return
	}
	h.answer <- g.send(q, body)
}

// send sends a request to Neutron, as it came.
func (g *gateway) send(q *http.Request, body []byte) late {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	target := *g.target
	target.Path = strings.TrimSuffix(target.Path, "/") + q.URL.Path
	request, err := http.NewRequestWithContext(ctx, q.Method, target.String(), bytes.NewReader(body))
	if err != nil {
		return late{}
	}
	request.Header = q.Header.Clone()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return late{}
	}
	defer response.Body.Close()
	var made map[string]struct{ ID string }
	_ = json.NewDecoder(response.Body).Decode(&made) // an error body has no id
	for _, o := range made {
		return late{response.StatusCode, o.ID}
	}
	return late{status: response.StatusCode}
}

// after lists the changes that came after a moment.
func (g *gateway) after(moment time.Time) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []string
	for _, c := range g.changes {
		if c.at.After(moment) {
			list = append(list, fmt.Sprintf("%s at %s", c.what, c.at.Format("15:04:05.000")))
		}
	}
	return list
}
