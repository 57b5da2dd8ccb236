// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/host"
	"github.com/kuryr/raven/service/leader"
	"github.com/kuryr/raven/service/openstack/cloud"
	"github.com/kuryr/raven/service/ovn"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/watch"
	"github.com/kuryr/raven/service/writeback"
)

// runtime is everything that one configuration brings up: connections, plugins, watches and the engine.
type runtime struct {
	loaded  *Settings
	log     *slog.Logger
	cluster string
	cloud   *cloud.Cloud
	// northbound is OVN's northbound database; nil where none is configured.
	northbound *ovn.Northbound
	clients    watch.Clients
	manager    *watch.Manager
	writer     *writeback.Writer
	watchers   []*Watcher
	// beside are the files that it was made from, beside the configuration's own.
	beside stamps
	// loops holds the present engine with its backends: a leader that lost its Lease begins anew with another.
	loops atomic.Pointer[loop]
	// candidate contends for leadership; nil where nothing is changed: a dry run.
	candidate *leader.Candidate

	// owners are drivers that are not enabled and have security groups, by their short names.
	owners []string

	// learns: whether load balancers have several addresses could not be asked.
	learns bool

	cancel context.CancelFunc
	work   sync.WaitGroup
}

// RequestTimeout bounds one request to the Kubernetes API that is no watch.
const RequestTimeout = 30 * time.Second

// prepare connects to the cluster and the cloud and launches the drivers. It writes no resources, so that it may be
// done beside a runtime that is still working. as is what it contends for leadership with; nil: it does not.
func prepare(ctx context.Context, l *Settings, log *slog.Logger, as *candidacy) (*runtime, error) {
	r := &runtime{loaded: l, log: log, beside: l.beside()}
	ok := false
	defer func() {
		if !ok {
			r.stop(context.WithoutCancel(ctx))
		}
	}()
	clients, err := r.connectKubernetes(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.connectOpenStack(ctx); err != nil {
		return nil, err
	}
	if err := r.connectOVN(ctx); err != nil {
		return nil, err
	}
	events := writeback.Events{Disabled: writeback.EventsDisabled(l.Values), Logger: log}
	r.writer = writeback.New(clients.Dynamic, events) //nolint:contextcheck // lasts until Close
	if err := r.nominate(as); err != nil {
		return nil, err
	}
	if err := r.newEngine(); err != nil {
		return nil, err
	}
	if err := r.findOwners(ctx); err != nil {
		return nil, err
	}
	if err := r.launch(ctx); err != nil {
		return nil, err
	}
	ok = true
	return r, nil
}

func (r *runtime) connectKubernetes(ctx context.Context) (watch.Clients, error) {
	rest, err := watch.RESTConfig(r.loaded.Values, r.loaded.loader.Version)
	if err != nil {
		return watch.Clients{}, err
	}
	clients, err := watch.NewClients(rest)
	if err != nil {
		return watch.Clients{}, err
	}
	if r.cluster, err = clusterID(ctx, r.loaded.Values, clients, rest.Host); err != nil {
		return clients, unreached(linkKubernetes, err)
	}
	r.clients = clients
	r.manager = watch.New(watch.Config{
		Clients: clients, Logger: r.log, Clock: clock.RealClock{}, SyncTimeout: watch.SyncTimeout(r.loaded.Values),
	})
	return clients, nil
}

// clusterID is what tells this cluster from others: what the configuration says, or else the UID of kube-system.
func clusterID(ctx context.Context, values *config.Values, clients watch.Clients, host string) (string, error) {
	if id := values.String(OptionGroup, "cluster_id"); id != "" {
		return id, nil
	}
	asking, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	ns, err := clients.Dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).
		Get(asking, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("reading the cluster's id from namespace kube-system at %s: %w; "+
			"check [kubernetes], or set [raven] cluster_id", host, err)
	}
	return string(ns.GetUID()), nil
}

// engineGrace is how much of graceful_shutdown_timeout the work in flight gets: all but what stopping the drivers may
// take.
func engineGrace(timeout time.Duration) time.Duration {
	const forDrivers = 10 * time.Second
	if timeout == 0 {
		return math.MaxInt64
	}
	return max(timeout-forDrivers, timeout/2)
}

// engine is the present one.
// loop is the present engine with its backends; nil before there is one.
func (r *runtime) loop() *loop { return r.loops.Load() }

func (r *runtime) engine() *reconcile.Engine {
	if l := r.loop(); l != nil {
		return l.engine
	}
	return nil
}

// start reads what this cluster has, unless that is left to the leader, and starts the watchers.
func (r *runtime) start(ctx context.Context) error {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.cancel = cancel
	if err := r.waitOVN(ctx); err != nil {
		r.log.Warn("waiting for OVN's northbound database; it is listed once it is connected", "error", err)
	}
	if r.candidate == nil {
		if err := r.engine().Observe(ctx); err != nil {
			return unreached(linkNeutron, err)
		}
	}
	for w := range r.launched() {
		if err := w.Subscribe(); err != nil {
			return err
		}
	}
	r.work.Go(func() {
		if err := r.manager.Run(running); err != nil {
			r.log.Error("the watches ended", "error", err)
		}
	})
	for w := range r.launched() {
		if err := w.Start(ctx); err != nil {
			if _, watches := errors.AsType[*watch.SyncError](err); watches {
				return unreached(linkKubernetes, err)
			}
			return err
		}
	}
	if r.learns {
		r.work.Go(func() { r.learnVIPs(running) })
	}
	return nil
}

// launched are the watchers whose drivers started. The engine knows that the others are enabled, and waits for them.
func (r *runtime) launched() iter.Seq[*Watcher] {
	return func(yield func(*Watcher) bool) {
		for _, w := range r.watchers {
			if w.Down() == nil && !yield(w) {
				return
			}
		}
	}
}

// launch starts the drivers' processes, all at once.
func (r *runtime) launch(ctx context.Context) error {
	programs := r.loaded.Programs
	if len(programs) > 0 {
		reportSandbox(r.log, programs[0].Sandbox)
	}
	separate, err := r.singleVIPs(ctx)
	r.learns = !r.knownVIPs(ctx, err)
	errs := make([]error, len(programs))
	var wg sync.WaitGroup
	for i, p := range programs {
		w := r.newWatcher(p, separate)
		r.watchers = append(r.watchers, w)
		wg.Go(func() { errs[i] = w.Launch(ctx) })
	}
	wg.Wait()
	return errors.Join(append(errs, r.leaveOut())...)
}

// newWatcher makes the watcher of a program; separate says that the cloud's load balancers have one address each.
func (r *runtime) newWatcher(p Program, separate bool) *Watcher {
	v, values := r.loaded.Values, r.loaded.valuesFor(p)
	p.enabled = slices.Concat(p.enabled, r.owners)
	if separate {
		separateVIPs(values)
	}
	return newWatcher(watcherConfig{
		Program: p, Values: values, Manager: r.manager, Logger: r.log,
		Timeouts: host.Timeouts{
			Start: p.startTimeout,
			Call:  v.Duration(OptionGroup, "translate_timeout"), Quarantine: v.Duration(OptionGroup, "driver_quarantine"),
		},
		MaxLosses:    int(v.Int(OptionGroup, "driver_max_losses")),
		Engine:       func() engine { return r.engine() },
		OnQuarantine: func(err error) { r.quarantined(p.Name, err) },
	})
}

// quarantined tells the cluster's people, by an Event on what identifies the cluster: no object of theirs is to blame.
func (r *runtime) quarantined(name string, err error) {
	r.tell("DriverQuarantined", fmt.Sprintf("driver %s is lost again and again and is left alone for a while; "+
		"what it makes stays as it is: %s", name, err))
}

func (r *runtime) tell(reason, text string) {
	r.writer.Event(writeback.Target{
		GVR: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Kind: "Namespace",
		Name: metav1.NamespaceSystem,
	}, drivers.Error, reason, text)
}

// run reconciles until ctx ends, where several contend only while this one leads.
func (r *runtime) run(ctx context.Context) error {
	if r.candidate != nil {
		return r.contend(ctx)
	}
	return r.engine().Run(ctx)
}

// stop ends everything, in the reverse order, inside the context's bound.
func (r *runtime) stop(ctx context.Context) {
	if r.cancel != nil {
		r.cancel()
	}
	r.work.Wait()
	var wg sync.WaitGroup
	for _, w := range r.watchers {
		wg.Go(func() {
			if err := w.Stop(ctx); err != nil {
				r.log.Warn("stopping a driver", "driver", w.Name(), "error", err)
			}
		})
	}
	wg.Wait()
	if r.writer != nil {
		closing, cancel := context.WithTimeout(ctx, 2*time.Second)
		r.writer.Close(closing)
		cancel()
	}
	if r.northbound != nil {
		r.northbound.Close()
	}
	if r.cloud != nil {
		r.cloud.Close()
	}
	r.clients.Close()
}
