// SPDX-License-Identifier: Apache-2.0

// Package kube is a simulated Kubernetes API: a stateful store of any kind of object with lists, watches, patches and
// server-side apply, served on loopback. It must never be used for anything but trying and testing.
package kube

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

// Options say how a simulated API behaves. The zero value is an open API on plain HTTP without a kubelet.
type Options struct {
	// TLS serves HTTPS with a certificate of an own authority, which Kubeconfig contains.
	TLS bool
	// Tokens maps bearer tokens to user names. With none, everybody is "system:admin"; else a request without a known
	// token is answered 401. The first token in order is the one in Kubeconfig; KubeconfigFor chooses another.
	Tokens map[string]string
	// Deny lists what is forbidden; everything else is allowed.
	Deny []Deny
	// Kinds are further kinds to serve from the start.
	Kinds []Kind
	// History is how many events each resource remembers for watches that resume. Default 16384.
	History int
	// WatchBuffer is how many events a watcher may be behind before its stream is ended. Default: History.
	WatchBuffer int
	// BookmarkInterval is the time between bookmarks of a watch that allows them. Default 30 s.
	BookmarkInterval time.Duration
	// NoWatchList refuses sendInitialEvents as a server without the feature does, so that informers fall back to lists.
	NoWatchList bool
	// GoneStatus answers a watch that is too old with HTTP 410 rather than with an ERROR event in a stream.
	GoneStatus bool
	// NamespaceDelay is the time between a namespace's Terminating and the deletion of its content. Default 5 ms.
	NamespaceDelay time.Duration
	// LooseNamespaces allows objects in namespaces that do not exist.
	LooseNamespaces bool
	// PodGrace, when set, lets a deleted pod live on with a deletionTimestamp for that long.
	PodGrace time.Duration
	// ServiceCIDR is where cluster IPs come from: a range, or one of each family with a comma between them, the first
	// being the default one. Default 10.96.0.0/16.
	ServiceCIDR string
	// Endpoints keeps EndpointSlices and Endpoints of Services; nil leaves them to whoever writes them.
	Endpoints *EndpointController
	// Kubelet schedules and runs pods; nil leaves them pending.
	Kubelet *Kubelet
	// LogSize is how many requests the request log holds. Default 20000. Counts have no limit.
	LogSize int
	// OnRequest is called before a request is handled, in its goroutine; it may block.
	OnRequest func(Request)
	Clock     clock.WithTicker
}

func (o Options) withDefaults() Options {
	if o.History <= 0 {
		o.History = 16384
	}
	if o.WatchBuffer <= 0 {
		o.WatchBuffer = o.History
	}
	if o.BookmarkInterval <= 0 {
		o.BookmarkInterval = 30 * time.Second
	}
	if o.NamespaceDelay <= 0 {
		o.NamespaceDelay = 5 * time.Millisecond
	}
	if o.ServiceCIDR == "" {
		o.ServiceCIDR = "10.96.0.0/16"
	}
	if o.LogSize <= 0 {
		o.LogSize = 20000
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o
}

// API is one simulated API server. It is an http.Handler, and its methods reach the store without HTTP.
type API struct {
	options Options
	ctx     context.Context // the life of the API, ended by Close
	cancel  context.CancelFunc
	tasks   sync.WaitGroup // goroutines of its own
	serving sync.WaitGroup // requests in flight

	gate   sync.Mutex
	closed bool

	mu        sync.RWMutex
	version   uint64
	resources map[schema.GroupResource]*resource
	views     map[schema.GroupVersionResource]*view
	lastIP    map[string]netip.Addr // by family: the cluster IP that was given last

	lastNodePort int64

	faults faults
	log    requestLog
	access access
	types  typeTable

	server   *http.Server
	url      string
	ca       []byte
	serveErr chan error
}

// New returns an API with the usual namespaces in it. Close it in the end.
func New(options Options) *API {
	a := &API{
		options:   options.withDefaults(),
		resources: map[schema.GroupResource]*resource{},
		views:     map[schema.GroupVersionResource]*view{},
		lastIP:    map[string]netip.Addr{},
	}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.log.init(a.options.LogSize)
	a.access.init(a.options)
	for _, kind := range append(builtinKinds(), a.options.Kinds...) {
		a.registerLocked(kind.withDefaults())
	}
	a.aliasEvents()
	a.seed()
	if a.options.Kubelet != nil {
		a.startKubelet(*a.options.Kubelet)
	}
	if a.options.Endpoints != nil {
		a.startEndpoints(*a.options.Endpoints)
	}
	return a
}

// Start serves on an address of 127.0.0.1 ("": any free port) until Close, and returns the base URL.
func (a *API) Start(addr string) (string, error) {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	if host, _, err := net.SplitHostPort(addr); err != nil || !net.ParseIP(host).IsLoopback() {
		return "", fmt.Errorf("starting simulated kubernetes: %q is no loopback address with a port", addr)
	}
	listener, err := (&net.ListenConfig{}).Listen(a.ctx, "tcp", addr)
	if err != nil {
		return "", fmt.Errorf("starting simulated kubernetes: %w", err)
	}
	a.server = &http.Server{Handler: a, ReadHeaderTimeout: 10 * time.Second, ErrorLog: quietLog()}
	a.url = "http://" + listener.Addr().String()
	a.serveErr = make(chan error, 1)
	if a.options.TLS {
		config, ca, err := newCertificate(a.options.Clock.Now())
		if err != nil {
			_ = listener.Close()
			return "", fmt.Errorf("starting simulated kubernetes: %w", err)
		}
		a.server.TLSConfig, a.ca = config, ca
		a.url = "https://" + listener.Addr().String()
	}
	go func() {
		if a.options.TLS {
			a.serveErr <- a.server.ServeTLS(listener, "", "")
			return
		}
		a.serveErr <- a.server.Serve(listener)
	}()
	return a.url, nil
}

// URL is the base URL after Start.
func (a *API) URL() string { return a.url }

// Close ends every watch and request, and waits for all goroutines.
func (a *API) Close() {
	a.gate.Lock()
	a.closed = true
	a.gate.Unlock()
	a.cancel()
	if a.server != nil {
		_ = a.server.Close()
		<-a.serveErr //nolint:errcheck // that it was closed
		a.server = nil
	}
	a.serving.Wait()
	a.tasks.Wait()
}

// seed makes what a new cluster has.
func (a *API) seed() {
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		a.mustCreate(namespaces(), "", map[string]any{"metadata": map[string]any{"name": name}})
	}
	ranges := a.serviceRanges()
	cidrs := make([]any, 0, len(ranges))
	for _, r := range ranges {
		cidrs = append(cidrs, r.String())
	}
	a.mustCreate(schema.GroupResource{Group: "networking.k8s.io", Resource: "servicecidrs"}, "", map[string]any{
		"metadata": map[string]any{"name": "kubernetes"}, "spec": map[string]any{"cidrs": cidrs},
	})
	first := ""
	if len(ranges) > 0 {
		first = ranges[0].Masked().Addr().Next().String()
	}
	a.mustCreate(schema.GroupResource{Resource: "services"}, "default", map[string]any{
		"metadata": map[string]any{
			"name": "kubernetes", "labels": map[string]any{"component": "apiserver", "provider": "kubernetes"},
		},
		"spec": map[string]any{
			"clusterIP": first,
			"ports": []any{
				map[string]any{"name": "https", "port": int64(443), "protocol": "TCP", "targetPort": int64(6443)},
			},
		},
	})
}

func (a *API) mustCreate(gr schema.GroupResource, namespace string, object map[string]any) {
	res := a.resources[gr]
	view := view{
		GroupVersion: schema.GroupVersion{Group: gr.Group, Version: res.kind.Versions[0]}, res: res, kind: res.kind,
	}
	if _, err := a.create(res, namespace, view.take(object), writeOptions{asIs: true}); err != nil {
		panic("seeding simulated kubernetes: " + err.Error())
	}
}

// later runs f after a delay, unless the API is closed before.
func (a *API) later(delay time.Duration, f func()) {
	timer := a.options.Clock.NewTimer(delay)
	a.tasks.Go(func() {
		defer timer.Stop()
		select {
		case <-a.ctx.Done():
		case <-timer.C():
			f()
		}
	})
}
