// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/watch"
	"github.com/kuryr/raven/test/sim/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pods() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "pods"}
}

func services() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "services"}
}

func widgets() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}
}

// fixture is a simulated API server and a Manager that watches it.
type fixture struct {
	api     *kube.API
	clients watch.Clients
	manager *watch.Manager
	asked   *requests
	config  *rest.Config
	ended   chan struct{}
}

// requests counts requests by method, path and whether they watch.
type requests struct {
	mu   sync.Mutex
	seen []string
}

func (r *requests) count(prefix string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, s := range r.seen {
		if strings.HasPrefix(s, prefix) {
			n++
		}
	}
	return n
}

// counter counts what goes through it.
type counter struct {
	requests *requests
	next     http.RoundTripper
}

func (c counter) WrappedRoundTripper() http.RoundTripper { return c.next }

func (c counter) RoundTrip(request *http.Request) (*http.Response, error) {
	verb := request.Method
	if request.URL.Query().Get("watch") != "" {
		verb = "WATCH"
	}
	c.requests.mu.Lock()
	c.requests.seen = append(c.requests.seen, verb+" "+request.URL.Path)
	c.requests.mu.Unlock()
	return c.next.RoundTrip(request)
}

func (r *requests) wrap(next http.RoundTripper) http.RoundTripper {
	return counter{r, next}
}

// setup starts an API server; start starts the Manager.
func setup(t *testing.T, options kube.Options, change func(*watch.Config)) *fixture {
	t.Helper()
	options.LooseNamespaces = true
	f := &fixture{api: kube.New(options), asked: &requests{}, ended: make(chan struct{})}
	url, err := f.api.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.api.Close)
	f.config = &rest.Config{Host: url, QPS: -1, WrapTransport: f.asked.wrap}
	for token := range options.Tokens {
		f.config.BearerToken = token
	}
	f.clients, err = watch.NewClients(f.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.clients.Close)
	config := watch.Config{Clients: f.clients, SyncTimeout: 10 * time.Second, RecheckPeriod: 50 * time.Millisecond}
	if change != nil {
		change(&config)
	}
	f.manager = watch.New(config)
	return f
}

func (f *fixture) start(t *testing.T) {
	t.Helper()
	go func() {
		defer close(f.ended)
		_ = f.manager.Run(context.Background())
	}()
	t.Cleanup(func() { f.manager.Stop(); <-f.ended })
}

// woken records wakes.
type woken struct {
	mu   sync.Mutex
	seen []string
}

func (w *woken) wake(key watch.Key, reason watch.Reason) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, key.String()+" "+string(reason))
}

func (w *woken) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

func (w *woken) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = nil
}

// await waits for a wake, for example "pods default/web updated".
func (w *woken) await(t *testing.T, wake string) {
	t.Helper()
	eventually(t, func() bool { return slices.Contains(w.all(), wake) }, func() any {
		return []any{"no wake", wake, "among", w.all()}
	})
}

// patience ends a test that would wait for ever.
const patience = 2 * time.Minute

func eventually(t *testing.T, condition func() bool, describe func() any) {
	t.Helper()
	timeout, tick := time.After(patience), time.NewTicker(2*time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("not in time: %v", describe())
		}
	}
}

func (f *fixture) subscribe(
	t *testing.T, driver string, keep []string, watches ...drivers.Watch,
) (*watch.Subscription, *woken) {
	t.Helper()
	w := &woken{}
	s, err := f.manager.Subscribe(driver, watches, keep, w.wake)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, w
}

func synced(t *testing.T, s *watch.Subscription) {
	t.Helper()
	if err := s.WaitSynced(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// object is a small object of any kind; labels are pairs.
func object(
	gvr schema.GroupVersionResource, kind, namespace, name string, labels ...string,
) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion(gvr.GroupVersion().String())
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	all := map[string]string{}
	for i := 0; i+1 < len(labels); i += 2 {
		all[labels[i]] = labels[i+1]
	}
	o.SetLabels(all)
	if kind == "Pod" {
		o.Object["spec"] = map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}}
	}
	if kind == "Service" {
		o.Object["spec"] = map[string]any{"ports": []any{map[string]any{"port": int64(80)}}}
	}
	return o
}

func (f *fixture) create(t *testing.T, gvr schema.GroupVersionResource, o *unstructured.Unstructured) {
	t.Helper()
	_, err := f.clients.Dynamic.Resource(gvr).Namespace(o.GetNamespace()).Create(t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) pod(t *testing.T, name string, labels ...string) {
	t.Helper()
	f.create(t, pods(), object(pods(), "Pod", "default", name, labels...))
}

func (f *fixture) remove(t *testing.T, gvr schema.GroupVersionResource, name string) {
	t.Helper()
	zero := int64(0)
	err := f.clients.Dynamic.Resource(gvr).Namespace("default").Delete(t.Context(), name,
		metav1.DeleteOptions{GracePeriodSeconds: &zero})
	if err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) patch(t *testing.T, gvr schema.GroupVersionResource, name, patch string, subresources ...string) {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		_, err := f.clients.Dynamic.Resource(gvr).Namespace("default").
			Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func podWatch(fields ...string) drivers.Watch {
	return drivers.Watch{Name: "pods", GVR: pods(), Kind: "Pod", Source: true, Fields: fields}
}

func serviceWatch(fields ...string) drivers.Watch {
	return drivers.Watch{Name: "services", GVR: services(), Kind: "Service", Fields: fields}
}

func key(name string) watch.Key { return watch.Key{Watch: "pods", Namespace: "default", Name: name} }
