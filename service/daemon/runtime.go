package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
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
	units      []*Watcher
	// beside are the files that it was made from, beside the configuration's own.
	beside stamps
	// engines holds the present engine: a leader that lost its Lease begins anew with another.
	engines atomic.Pointer[reconcile.Engine]
	// candidate contends for leadership; nil where there is no other to contend with.
	candidate *leader.Candidate

	// learns: whether load balancers have several addresses could not be asked.
	learns bool

	cancel context.CancelFunc
	work   sync.WaitGroup
}

// Watcher is a watcher: a driver's process and its subscription, started, stopped and reported as one.
type Watcher struct {
	program Program
	plugin  *host.Plugin // nil where down is set
	source  *watch.Subscription
	// launched is closed once plugin and watches are set.
	launched chan struct{}
	// watches are those that it was subscribed with.
	watches []drivers.Watch
	// replaced says that its program was replaced, while it ran, by one that declares something else.
	replaced atomic.Bool
	// stamp is that of the program's file when it was started last.
	stamp atomic.Pointer[string]
	// down says why there is no process: nothing is watched for it then, and what it made stays.
	down error
	// partial says why some of its needs cannot be answered.
	partial error
}

// RequestTimeout bounds one request to the Kubernetes API that is no watch.
const RequestTimeout = 30 * time.Second

// prepare reaches both sides and launches the drivers. Nothing is read of what is ours, and nothing is written, so that it may
// be done beside a runtime that is still working. elect says whether it is to work only while it leads, if so configured.
func prepare(ctx context.Context, l *Settings, log *slog.Logger, elect bool) (*runtime, error) {
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
	r.writer = writeback.New(clients.Dynamic, writeback.Events{Disabled: writeback.EventsDisabled(l.Values), Logger: log}) //nolint:contextcheck // lasts until Close
	if elect {
		if err := r.nominate(); err != nil {
			return nil, err
		}
	}
	if err := r.newEngine(); err != nil {
		return nil, err
	}
	if err := r.launch(ctx); err != nil {
		return nil, err
	}
	ok = true
	return r, nil
}

func (r *runtime) connectKubernetes(ctx context.Context) (watch.Clients, error) {
	rest, err := watch.RESTConfig(r.loaded.Values, r.loaded.version)
	if err != nil {
		return watch.Clients{}, err
	}
	clients, err := watch.NewClients(rest)
	if err != nil {
		return watch.Clients{}, err
	}
	r.cluster = r.loaded.Values.String(OptionGroup, "cluster_id")
	if r.cluster == "" {
		asking, cancel := context.WithTimeout(ctx, RequestTimeout)
		defer cancel()
		ns, err := clients.Dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).
			Get(asking, "kube-system", metav1.GetOptions{})
		if err != nil {
			return clients, fmt.Errorf("reading the cluster's id from namespace kube-system at %s: %w; "+
				"check [kubernetes], or set [raven] cluster_id", rest.Host, err)
		}
		r.cluster = string(ns.GetUID())
	}
	r.clients = clients
	r.manager = watch.New(watch.Config{
		Clients: clients, Logger: r.log, Clock: clock.RealClock{}, SyncTimeout: watch.SyncTimeout(r.loaded.Values),
	})
	return clients, nil
}

// engineGrace is how much of graceful_shutdown_timeout the work in flight gets: all but what stopping the drivers may take.
func engineGrace(timeout time.Duration) time.Duration {
	const forDrivers = 10 * time.Second
	if timeout == 0 {
		return math.MaxInt64
	}
	return max(timeout-forDrivers, timeout/2)
}

// engine is the present one.
func (r *runtime) engine() *reconcile.Engine { return r.engines.Load() }

// join makes the drivers, whose caches are synced, known to the engine.
func (r *runtime) join() error {
	for _, u := range r.units {
		if u.down != nil {
			continue // the engine knows that it is enabled, and waits for it
		}
		if err := r.engine().Add(u.program.Name, u.plugin, u.source); err != nil {
			return err
		}
	}
	return nil
}

// watchers reads what is ours, unless that is left to the leader, and joins the drivers to the engine once their caches are synced.
func (r *runtime) watchers(ctx context.Context) error {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.cancel = cancel
	if err := r.waitOVN(ctx); err != nil {
		r.log.Warn("what is in OVN is seen later", "error", err)
	}
	if r.candidate == nil {
		if err := r.engine().Observe(ctx); err != nil {
			return err
		}
	}
	if err := r.subscribe(); err != nil {
		return err
	}
	r.work.Go(func() {
		if err := r.manager.Run(running); err != nil {
			r.log.Error("the watches ended", "error", err)
		}
	})
	for _, u := range r.units {
		if u.down != nil {
			continue
		}
		if err := u.source.WaitSynced(ctx); err != nil {
			var s *watch.SyncError
			if !errors.As(err, &s) || !s.NeedsOnly() {
				return err
			}
			u.partial = err
			r.log.Warn("some needs cannot be answered; what depends on them waits", "driver", u.program.Name, "error", err)
		}
	}
	if err := r.join(); err != nil { //nolint:contextcheck // what it starts lasts until Stop
		return err
	}
	if r.learns {
		r.work.Go(func() { r.learnVIPs(running) })
	}
	return nil
}

// Launch starts the drivers' processes, all at once.
func (r *runtime) launch(ctx context.Context) error {
	r.units = make([]*Watcher, len(r.loaded.Programs))
	if len(r.loaded.Programs) > 0 {
		reportSandbox(r.log, r.loaded.Programs[0].Sandbox)
	}
	errs := make([]error, len(r.units))
	separate, err := r.singleVIPs(ctx)
	r.learns = !r.knownVIPs(ctx, err)
	var wg sync.WaitGroup
	for i, p := range r.loaded.Programs {
		u := &Watcher{program: p, launched: make(chan struct{}), down: p.down}
		r.units[i] = u
		if u.down != nil {
			continue
		}
		wg.Go(func() {
			values := r.loaded.valuesFor(p)
			if separate {
				separateVIPs(values)
			}
			c := p.launch(values)
			c.Logger = r.log
			c.Timeouts = host.Timeouts{
				Call: r.loaded.Values.Duration(OptionGroup, "translate_timeout"), Quarantine: r.loaded.Values.Duration(OptionGroup, "driver_quarantine"),
			}
			c.MaxLosses = int(r.loaded.Values.Int(OptionGroup, "driver_max_losses"))
			c.OnReady = func() { r.driverIsBack(u) }
			u.stamp.Store(new(stampOf(p.Path)))
			c.OnQuarantine = func(err error) { r.quarantined(u, err) }
			u.plugin, errs[i] = host.Launch(ctx, c)
			switch {
			case errs[i] == nil:
				u.watches = u.plugin.Watches()
				errs[i] = p.Authority.checkWatches(p.Name, u.watches)
				close(u.launched)
			case errors.Is(errs[i], host.ErrNotStarted):
				u.plugin, u.down, errs[i] = nil, errs[i], nil
			}
		})
	}
	wg.Wait()
	return errors.Join(append(errs, r.leaveOut())...)
}

// driverIsBack replays a driver whose process was lost. If its program was replaced by one that declares something else, that takes
// a reload: what it declares is asked for, checked and subscribed to only there.
func (r *runtime) driverIsBack(u *Watcher) {
	u.stamp.Store(new(stampOf(u.program.Path)))
	select {
	case <-u.launched:
	default:
		return // lost and back before it was joined to the engine, which replays it then
	}
	then, now := u.program.Info, u.plugin.Info()
	then.Version, then.Description = now.Version, now.Description
	if !reflect.DeepEqual(then, now) || !reflect.DeepEqual(u.watches, u.plugin.Watches()) {
		u.replaced.Store(true)
		r.log.Error(replacedText, "driver", u.program.Name)
	}
	r.engine().Replay(u.program.Name)
}

// quarantined tells the cluster's people, by an Event on what identifies the cluster: no object of theirs is to blame.
func (r *runtime) quarantined(u *Watcher, err error) {
	r.tell("DriverQuarantined", fmt.Sprintf("driver %s is lost again and again and is left alone for a while; "+
		"what it makes stays as it is: %s", u.program.Name, err))
}

func (r *runtime) tell(reason, text string) {
	r.writer.Event(writeback.Target{
		GVR: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Kind: "Namespace", Name: metav1.NamespaceSystem,
	}, drivers.Error, reason, text)
}

const replacedText = "the driver's program was replaced by one with other options, kinds, keys or watches: send SIGHUP to take them over"

func (r *runtime) subscribe() error {
	for _, u := range r.units {
		if u.down != nil {
			continue
		}
		name := u.program.Name
		keep := slices.Concat(u.program.Info.Annotations, u.program.Info.Labels)
		if len(u.program.Info.Status) > 0 {
			keep = append(keep, watch.KeepIngress)
		}
		source, err := r.manager.Subscribe(name, u.plugin.Watches(), keep, func(key watch.Key, _ watch.Reason) {
			r.engine().Wake(name, key)
		})
		if err != nil {
			return err
		}
		u.source = source
	}
	return nil
}

// Run reconciles until ctx ends, where several contend only while this one leads.
func (r *runtime) run(ctx context.Context) error {
	if r.candidate != nil {
		return r.contend(ctx)
	}
	return r.engine().Run(ctx)
}

// stop ends everything, in the reverse order, inside the context's bound.
func (r *runtime) stop(ctx context.Context) {
	for _, u := range r.units {
		if u != nil && u.source != nil {
			u.source.Close()
		}
	}
	if r.cancel != nil {
		r.cancel()
	}
	r.work.Wait()
	var wg sync.WaitGroup
	for _, u := range r.units {
		if u != nil && u.plugin != nil {
			wg.Go(func() {
				if err := u.plugin.Stop(ctx); err != nil {
					r.log.Warn("stopping a driver", "driver", u.program.Name, "error", err)
				}
			})
		}
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
