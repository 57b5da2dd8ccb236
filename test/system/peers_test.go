// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kuryr/raven/test/harness"
)

// The Lease of the rigs: short, since tests wait for its end, and long enough for a leader on a loaded machine.
const (
	leaseDuration = 8 * time.Second
	renewDeadline = 5 * time.Second
)

// peer is one of several ravens that contend for a Lease. Each reaches cluster and cloud on a way of its own.
type peer struct {
	*raven
	kube  *harness.Proxy
	cloud *gateway
}

// pair makes a rig for several ravens.
func pair(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	r.conf.Set("kubernetes", "lease_duration", leaseDuration).Set("kubernetes", "lease_renew_deadline", renewDeadline).
		Set("kubernetes", "lease_retry_period", "300ms")
	r.conf.Set("neutron", "timeout", "3")
	return r
}

// peer starts one of them.
func (r *rig) peer(name string) *peer {
	r.t.Helper()
	config, err := clientcmd.Load(r.kube.Kubeconfig())
	if err != nil {
		r.t.Fatal(err)
	}
	server := config.Clusters["sim"].Server
	to, err := url.Parse(server)
	if err != nil {
		r.t.Fatal(err)
	}
	p := &peer{cloud: newGateway(r.t, r.cloud.BaseURL())}
	if p.kube, err = harness.NewProxy(to.Host); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(p.kube.Close)
	kubeconfig := r.write(name+".kubeconfig",
		strings.ReplaceAll(string(r.kube.Kubeconfig()), server, to.Scheme+"://"+p.kube.Address()))
	own := harness.Settings{}
	own.Set("kubernetes", "kubeconfig", kubeconfig)
	own.Set("neutron", "auth_url", p.cloud.server.URL+"/v3").Set("neutron", "endpoint_override",
		p.cloud.server.URL+"/networking")
	own.Set("raven", "runtime_dir", r.path("run-"+name))
	p.raven = r.start("--config-file", r.write(name+".conf", own.String()))
	p.name = "raven " + name
	return p
}

// leads says what is amiss with a raven that should lead and have taken over.
func (p *peer) leads() string {
	s, err := p.status()
	switch {
	case err != nil:
		return err.Error()
	case s.Leader == nil:
		return "it does not contend yet"
	case !s.Leader.Leading || s.Leader.Holder != s.Leader.Identity:
		return fmt.Sprintf("%s does not lead, but %q", s.Leader.Identity, s.Leader.Holder)
	}
	return ""
}

// follows says what is amiss with a raven that should stand by, warm, while another one leads.
func (p *peer) follows(leader *peer) string {
	s, err := p.status()
	if err != nil {
		return err.Error()
	}
	other, err := leader.status()
	switch {
	case err != nil:
		return err.Error()
	case s.Leader == nil || other.Leader == nil:
		return "it does not contend yet"
	case s.Leader.Leading:
		return "it leads"
	case s.Leader.Holder != other.Leader.Identity:
		return fmt.Sprintf("it believes that %q leads, and not %q", s.Leader.Holder, other.Leader.Identity)
	case !s.Ready:
		return "its drivers have not answered for every object"
	}
	return ""
}

// gateway passes requests on to the cloud, and remembers when each change was under way.
type gateway struct {
	server *httptest.Server

	mu     sync.Mutex
	writes []span
	reads  []string // method and path, without ids' queries
}

// span is a change and when it was under way: from its arrival until its answer was sent or its sender had gone.
type span struct {
	what       string
	begun, end time.Time // end is zero while it is under way
}

func newGateway(t *testing.T, to string) *gateway {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(target)
			p.Out.Host = p.In.Host
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	g.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if !strings.HasPrefix(q.URL.Path, "/networking") {
			proxy.ServeHTTP(w, q)
			return
		}
		done := g.note(q)
		defer done()
		proxy.ServeHTTP(w, q)
	}))
	g.server.Config.ErrorLog = quiet()
	proxy.ErrorLog = quiet()
	g.server.Start()
	t.Cleanup(g.server.Close)
	return g
}

func (g *gateway) note(q *http.Request) (done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if q.Method == http.MethodGet {
		g.reads = append(g.reads, q.URL.Path)
		return func() {}
	}
	i := len(g.writes)
	g.writes = append(g.writes, span{what: q.Method + " " + q.URL.Path, begun: time.Now()})
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.writes[i].end = time.Now()
	}
}

// changes are the changes so far.
func (g *gateway) changes() []span {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.writes)
}

// asked are the paths that were read so far, from the n-th on.
func (g *gateway) asked(n int) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.reads[n:])
}

// oneAtATime checks that no change of one was under way while one of the other was.
func oneAtATime(t *testing.T, a, b *peer) {
	t.Helper()
	now := time.Now()
	for _, x := range a.cloud.changes() {
		for _, y := range b.cloud.changes() {
			for _, s := range []*span{&x, &y} {
				if s.end.IsZero() {
					s.end = now
				}
			}
			if x.begun.Before(y.end) && y.begun.Before(x.end) {
				t.Errorf("two wrote at once: %s of %s (%s to %s), %s of %s (%s to %s)", x.what, a.name, clockOf(x.begun),
					clockOf(x.end),
					y.what, b.name, clockOf(y.begun), clockOf(y.end))
			}
		}
	}
}

func clockOf(t time.Time) string { return t.Format("15:04:05.000") }

// sentAfter are the changes that a gateway saw begin after a time.
func (g *gateway) sentAfter(when time.Time) []string {
	var list []string
	for _, s := range g.changes() {
		if s.begun.After(when) {
			list = append(list, s.what+" at "+clockOf(s.begun))
		}
	}
	return list
}

// page fetches a page of the daemon's health server.
func (p *raven) page(path string) string {
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + p.address() + path)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return string(body)
}
