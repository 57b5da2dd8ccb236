package system_test

import (
	"fmt"
	"io"
	"net"
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
)

// The Lease of the rigs: short, since tests wait for its end.
const (
	leaseDuration = 4 * time.Second
	renewDeadline = 3 * time.Second
)

// peer is one of several ravens that contend for a Lease. Each reaches cluster and cloud on a way of its own.
type peer struct {
	*raven
	kube  *line
	cloud *gateway
}

// pair makes a rig for several ravens.
func pair(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	r.conf.set("kubernetes", "controller_ha", true).set("kubernetes", "lease_duration", leaseDuration).
		set("kubernetes", "lease_renew_deadline", renewDeadline).set("kubernetes", "lease_retry_period", "300ms")
	r.conf.set("neutron", "timeout", "3")
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
	p := &peer{kube: newLine(r.t, to.Host), cloud: newGateway(r.t, r.cloud.BaseURL())}
	kubeconfig := r.write(name+".kubeconfig", strings.ReplaceAll(string(r.kube.Kubeconfig()), server, to.Scheme+"://"+p.kube.address()))
	own := settings{}
	own.set("kubernetes", "kubeconfig", kubeconfig)
	own.set("neutron", "auth_url", p.cloud.server.URL+"/v3").set("neutron", "endpoint_override", p.cloud.server.URL+"/networking")
	own.set("raven", "runtime_dir", r.path("run-"+name))
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

// line is a TCP proxy that can be cut: then nothing comes through any more, and nobody is told.
type line struct {
	t        *testing.T
	listener net.Listener
	to       string
	work     sync.WaitGroup

	mu    sync.Mutex
	cut   chan struct{} // closed while it is cut
	whole chan struct{} // closed while it is not
	conns map[net.Conn]bool
	ended bool
}

func newLine(t *testing.T, to string) *line {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{t: t, listener: listener, to: to, cut: make(chan struct{}), whole: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(l.whole)
	l.work.Go(l.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		l.mu.Lock()
		l.ended = true
		l.mu.Unlock()
		l.join()
		l.drop()
		l.work.Wait()
	})
	return l
}

func (l *line) address() string { return l.listener.Addr().String() }

// sever cuts the line: what is open stays open, and silent.
func (l *line) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.cut)
	l.whole = make(chan struct{})
}

// join mends it. What stood open while it was cut is broken, as after a partition that lasted.
func (l *line) join() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.whole:
		return
	default:
	}
	l.cut = make(chan struct{})
	close(l.whole)
	for c := range l.conns {
		_ = c.Close()
	}
}

func (l *line) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Close()
	}
}

func (l *line) accept() {
	for {
		in, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.work.Go(func() { l.serve(in) })
	}
}

func (l *line) serve(in net.Conn) {
	if !l.keep(in) {
		return
	}
	defer l.forget(in)
	l.wait()
	out, err := net.Dial("tcp", l.to)
	if err != nil || !l.keep(out) {
		return
	}
	defer l.forget(out)
	var both sync.WaitGroup
	both.Go(func() { l.copy(out, in) })
	l.copy(in, out)
	both.Wait()
}

func (l *line) keep(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		_ = c.Close()
		return false
	}
	l.conns[c] = true
	return true
}

func (l *line) forget(c net.Conn) {
	_ = c.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// wait returns when the line is whole.
func (l *line) wait() {
	l.mu.Lock()
	whole := l.whole
	l.mu.Unlock()
	<-whole
}

// copy passes on what comes, while the line is whole.
func (l *line) copy(to, from net.Conn) {
	defer func() { _ = to.Close() }()
	defer func() { _ = from.Close() }()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		l.wait()
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
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
				t.Errorf("two wrote at once: %s of %s (%s to %s), %s of %s (%s to %s)", x.what, a.name, clockOf(x.begun), clockOf(x.end),
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
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
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
