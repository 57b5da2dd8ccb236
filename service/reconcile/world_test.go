// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/namespace"
	"github.com/kuryr/raven/drivers/pod"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/cleanup"
	"github.com/kuryr/raven/service/handover"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/cloud"
	"github.com/kuryr/raven/service/openstack/neutron"
	"github.com/kuryr/raven/service/openstack/octavia"
	"github.com/kuryr/raven/service/ovn"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/portpool"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
	"github.com/kuryr/raven/service/watch"
	"github.com/kuryr/raven/service/writeback"
	testbackend "github.com/kuryr/raven/test/backend"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a simulated cluster and cloud. Engines come and go in it.
type world struct {
	t     *testing.T
	kube  *simkube.API
	cloud *simcloud.Cloud
}

func newWorld(t *testing.T, ko simkube.Options, co simcloud.Options) *world {
	t.Helper()
	w := &world{t: t, kube: simkube.New(ko), cloud: simcloud.New(co)}
	if _, err := w.kube.Start(""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.kube.Close)
	if _, err := w.cloud.Start(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.cloud.Close)
	return w
}

func namespaces() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
}

func pods() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "pods"}
}

func (w *world) createNamespace(name string) {
	w.t.Helper()
	w.create(namespaces(),
		map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}})
}

func (w *world) createPod(ns, name string) {
	w.t.Helper()
	w.create(pods(), podObject(ns, name))
}

func podObject(ns, name string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name, "namespace": ns},
		"spec":   map[string]any{"nodeName": "node-1", "containers": []any{map[string]any{"name": "c", "image": "i"}}},
		"status": map[string]any{"phase": "Running"},
	}
}

func (w *world) create(gvr schema.GroupVersionResource, object map[string]any) {
	w.t.Helper()
	if _, err := w.kube.Create(gvr, object); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) delete(gvr schema.GroupVersionResource, ns, name string) {
	w.t.Helper()
	if err := w.kube.Delete(gvr, ns, name); err != nil {
		w.t.Fatal(err)
	}
}

// annotation returns an annotation's document, or nil.
func (w *world) annotation(gvr schema.GroupVersionResource, ns, name, key string) map[string]any {
	w.t.Helper()
	object, err := w.kube.Get(gvr, ns, name)
	if err != nil {
		return nil
	}
	meta, _ := object["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	text, _ := annotations[key].(string)
	if text == "" {
		return nil
	}
	doc := map[string]any{}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		w.t.Fatalf("annotation %s of %s/%s is no JSON document: %v", key, ns, name, err)
	}
	return doc
}

// raven is one engine with its connections.
type raven struct {
	w        *world
	engine   *reconcile.Engine
	cloud    *cloud.Cloud
	ovn      *ovn.Backend
	handover *handover.Handover
	backends []*backend.Registration
	stop     func()
}

type (
	loopConfig    = reconcile.Config
	octaviaConfig = octavia.Config
)

// config is how an engine and its backends are made.
type config struct {
	loopConfig
	octaviaConfig
	Northbound ovn.Database
	Pools      portpool.Config
}

// setup changes how an engine is started.
type setup struct {
	config  func(*config)
	drivers map[string]drivers.Driver
	// memory is a further backend; nil: there is none.
	memory *testbackend.Memory
	values map[string]map[string]any
	// needsMayFail goes on though a watch that only answers needs is refused.
	needsMayFail bool
	// dry has the engine not run.
	dry bool
	// clock is the engine's; nil: the real one.
	clock clock.WithTickerAndDelayedExecution
	// log is where the engine writes; nil: see testLog.
	log *slog.Logger
	// user and project are whose the credentials are; empty: those of Kuryr.
	user, project string
}

func (s setup) cloudConfig(w *world) openstack.Config {
	config := w.cloudConfig()
	config.Username, config.ProjectName = cmp.Or(s.user, config.Username), cmp.Or(s.project, config.ProjectName)
	return config
}

func (w *world) cloudConfig() openstack.Config {
	return openstack.Config{
		AuthURL: w.cloud.AuthURL(), Username: simcloud.UserKuryr, Password: "secret", ProjectName: simcloud.ProjectKuryr,
		UserDomainName: "Default", ProjectDomainName: "Default", Timeout: time.Hour,
	}
}

func testLog(t *testing.T) *slog.Logger {
	t.Helper()
	if os.Getenv("RAVEN_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (w *world) start(s setup) *raven {
	w.t.Helper()
	r, err := w.tryStart(s)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) tryStart(s setup) (*raven, error) {
	t := w.t
	if s.drivers == nil {
		s.drivers = map[string]drivers.Driver{"namespace": namespace.New(), "pod": pod.New()}
	}
	log := cmp.Or(s.log, testLog(t))
	ctx, cancel := context.WithCancel(t.Context())
	clients, err := watch.NewClients(&rest.Config{Host: w.kube.URL(), QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	cloud, err := cloud.Connect(ctx, s.cloudConfig(w), log)
	if err != nil {
		cancel()
		return nil, err
	}
	config := s.engineConfig()
	if s.clock == nil {
		s.clock = clock.RealClock{}
	}
	writer := writeback.New(clients.Dynamic, writeback.Events{Logger: log})
	config.Kinds = kinds()
	engine, err := reconcile.New(config.loopConfig, writer, s.clock, log)
	if err != nil {
		t.Fatal(err)
	}
	r := &raven{w: w, engine: engine, cloud: cloud}
	var more []*backend.Registration
	if s.memory != nil {
		more = append(more, s.memory.Registration(engine.Env()))
	}
	if err := r.register(config, more...); err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	var subs []*watch.Subscription
	r.stop = sync.OnceFunc(func() {
		cancel()
		work.Wait()
		for _, sub := range subs {
			sub.Close()
		}
		writer.Close(context.Background())
		cloud.Close()
	})
	t.Cleanup(r.stop)
	if !config.Standby {
		if err := engine.Observe(ctx); err != nil {
			r.stop()
			return nil, err
		}
	}
	manager := watch.New(watch.Config{Clients: clients, Logger: log})
	names := slices.Sorted(maps.Keys(s.all()))
	for _, name := range names {
		d := s.all()[name]
		w.configure(ctx, d, s)
		keep := append(append([]string{}, d.Info().Annotations...), d.Info().Labels...)
		if len(d.Info().Status) > 0 {
			keep = append(keep, watch.KeepIngress)
		}
		sub, err := manager.Subscribe(name, d.Watches(), keep, func(key watch.Key, _ watch.Reason) { engine.Wake(name, key) })
		if err != nil {
			t.Fatal(err)
		}
		subs = append(subs, sub)
	}
	work.Go(func() { _ = manager.Run(ctx) })
	if !s.dry {
		work.Go(func() { _ = engine.Run(ctx) })
	}
	for i, name := range names {
		if err := subs[i].WaitSynced(ctx); err != nil && !s.needsMayFail {
			t.Fatal(err)
		}
		if err := engine.Add(name, s.all()[name], subs[i]); err != nil {
			t.Fatal(err)
		}
	}
	return r, nil
}

// register makes the backends.
func (r *raven) register(c config, more ...*backend.Registration) error {
	r.handover, r.ovn, r.backends = newBackends(r.engine.Env(), r.cloud, c)
	r.backends = append(r.backends, more...)
	return r.engine.Register(r.backends...)
}

func newBackends(
	env backend.Env, cloud *cloud.Cloud, c config,
) (*handover.Handover, *ovn.Backend, []*backend.Registration) {
	balancers := octavia.NewBackend(cloud.Octavia, cloud.Neutron, env, c.octaviaConfig)
	rows := ovn.NewBackend(c.Northbound, env)
	h := handover.New(env, balancers, rows, cloud.Neutron)
	wrappedBalancers, wrappedRows := h.Wrap(balancers.Registration(), rows.Registration())
	networks := neutron.NewBackend(cloud.Neutron, env)
	c.Pools.Delay = cmp.Or(c.Pools.Delay, time.Millisecond)
	ports := portpool.New(env, networks, c.Pools).Wrap(networks.Registration())
	return h, rows, []*backend.Registration{ports, wrappedBalancers, wrappedRows}
}

func kinds() *plan.Kinds {
	return plan.NewKinds(slices.Concat(
		neutron.Kinds(), portpool.Kinds(), octavia.Kinds(), ovn.Kinds(), testbackend.Kinds())...)
}

// cleanup returns what removes the cluster's resources.
func (w *world) cleanup(database ovn.Database, patience time.Duration) *cleanup.Cleanup {
	w.t.Helper()
	cloud, err := cloud.Connect(w.t.Context(), w.cloudConfig(), testLog(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(cloud.Close)
	kinds := kinds()
	st := state.New(state.Config{Cluster: "cluster-1", Kinds: kinds, Clock: clock.RealClock{}})
	_, _, backends := newBackends(backend.Env{
		State: st.State, Clock: clock.RealClock{}, Log: testLog(w.t), Cluster: "cluster-1",
	}, cloud,
		config{Northbound: database})
	return &cleanup.Cleanup{
		Backends: backends, Kinds: kinds, Cluster: "cluster-1", Patience: patience, Clock: clock.RealClock{},
	}
}

func (s setup) all() map[string]drivers.Driver {
	return s.drivers
}

func (s setup) engineConfig() config {
	config := config{loopConfig: loopConfig{
		Cluster: "cluster-1", MaxReplayDeletes: 20, MaxReplayDeleteShare: 0.5, BackoffBase: 5 * time.Millisecond,
		BackoffMax: 200 * time.Millisecond, CollectInterval: 50 * time.Millisecond, AmbiguousWait: 30 * time.Second,
		ConfirmAfter: 20 * time.Millisecond, Drivers: slices.Sorted(maps.Keys(s.all())),
	}}
	if s.config != nil {
		s.config(&config)
	}
	return config
}

func (w *world) configure(ctx context.Context, d drivers.Driver, s setup) {
	w.t.Helper()
	values, err := drivers.DefaultValues(d.Info().Options, onlyKnown(d.Info(), s.values))
	if err != nil {
		w.t.Fatal(err)
	}
	if err := d.Configure(ctx, values); err != nil {
		w.t.Fatal(err)
	}
}

func onlyKnown(info drivers.Info, values map[string]map[string]any) map[string]map[string]any {
	known := map[string]map[string]any{}
	for _, o := range info.Options {
		if v, ok := values[o.Group][o.Name]; ok {
			if known[o.Group] == nil {
				known[o.Group] = map[string]any{}
			}
			known[o.Group][o.Name] = v
		}
	}
	return known
}

// patience ends a test that would wait for ever.
const patience = 2 * time.Minute

// eventually waits for a condition, and says what it saw last when it never comes.
func (w *world) eventually(what string, condition func() (bool, string)) {
	w.t.Helper()
	var last string
	for began := time.Now(); time.Since(began) < patience; {
		var ok bool
		if ok, last = condition(); ok {
			return
		}
		time.Sleep(min(max(time.Since(began)/20, 5*time.Millisecond), 50*time.Millisecond))
	}
	w.t.Fatalf("never: %s; last seen: %s", what, last)
}

// settled waits until every object is done, and there are as many as wanted.
func (r *raven) settled(objects int) {
	r.w.t.Helper()
	r.w.eventually(fmt.Sprintf("%d objects done", objects), func() (bool, string) {
		var open []string
		done := 0
		for _, o := range r.engine.Objects(reconcile.Filter{}) {
			if o.Driver == "shared" {
				if o.State != state.Done {
					open = append(open, fmt.Sprintf("%s %s: %s", o.Kind, o.State, strings.Join(o.Reasons, "; ")))
				}
				continue
			}
			if o.State == state.Done {
				done++
			} else {
				open = append(open,
					fmt.Sprintf("%s %s/%s %s: %s", o.Kind, o.Namespace, o.Name, o.State, strings.Join(o.Reasons, "; ")))
			}
		}
		return done == objects && len(open) == 0, fmt.Sprintf("%d done, open: %v", done, open)
	})
}
