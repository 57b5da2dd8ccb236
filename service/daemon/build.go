// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/cleanup"
	"github.com/kuryr/raven/service/config"
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
	"github.com/kuryr/raven/service/writeback"
)

// connectOVN begins to connect to OVN's northbound database, if one is configured. That it cannot be reached is no
// error: what concerns it waits.
func (r *runtime) connectOVN(ctx context.Context) error {
	c, configured := ovn.FromConfig(r.loaded.Values)
	if !configured {
		return nil
	}
	c.Cluster, c.Pass = r.cluster, r.cloud.Pass
	var err error
	r.northbound, err = ovn.Open(ctx, c, r.log)
	return err
}

// kinds describes the kinds of resources of all backends.
func kinds() *plan.Kinds {
	return plan.NewKinds(slices.Concat(neutron.Kinds(), portpool.Kinds(), octavia.Kinds(), ovn.Kinds())...)
}

// database is the database as its backend has it: nothing where there is none.
func database(n *ovn.Northbound) ovn.Database {
	if n == nil {
		return nil
	}
	return n
}

// loop is an engine with what hands Services over between its backends.
type loop struct {
	engine   *reconcile.Engine
	handover *handover.Handover
	rows     *ovn.Backend
}

// newLoop makes an engine and its backends.
func newLoop(
	c reconcile.Config, cloud *cloud.Cloud, northbound *ovn.Northbound, o octavia.Config, pools portpool.Config,
	wb reconcile.Writeback, log *slog.Logger,
) (*loop, error) {
	c.Kinds = kinds()
	engine, err := reconcile.New(c, wb, clock.RealClock{}, log)
	if err != nil {
		return nil, err
	}
	l := &loop{engine: engine}
	var backends []*backend.Registration
	l.handover, l.rows, backends = newBackends(engine.Env(), cloud, northbound, o, pools)
	return l, engine.Register(backends...)
}

// newBackends makes the backends. Services are handed over between two of them.
func newBackends(
	env backend.Env, cloud *cloud.Cloud, northbound *ovn.Northbound, c octavia.Config, pools portpool.Config,
) (*handover.Handover, *ovn.Backend, []*backend.Registration) {
	networks := neutron.NewBackend(cloud.Neutron, env)
	balancers := octavia.NewBackend(cloud.Octavia, cloud.Neutron, env, c)
	rows := ovn.NewBackend(database(northbound), env)
	h := handover.New(env, balancers, rows, cloud.Neutron)
	wrappedBalancers, wrappedRows := h.Wrap(balancers.Registration(), rows.Registration())
	ports := portpool.New(env, networks, pools).Wrap(networks.Registration())
	return h, rows, []*backend.Registration{ports, wrappedBalancers, wrappedRows}
}

// OpenNorthbound connects to the configured database for a command, and waits for it. Without one it returns nil.
func OpenNorthbound(ctx context.Context, values *config.Values, cluster string) (*ovn.Northbound, error) {
	c, configured := ovn.FromConfig(values)
	if !configured {
		return nil, nil // nothing configured, nothing wrong
	}
	c.Cluster = cluster
	n, err := ovn.Open(ctx, c, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if err := n.WaitConnected(waiting); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

func (r *runtime) connectOpenStack(ctx context.Context) error {
	c, err := openstack.FromConfig(r.loaded.Values)
	if err != nil {
		return err
	}
	connection, err := openstack.Connect(ctx, c, r.log)
	if err != nil {
		if openstack.Classify(err) == openstack.ClassUnauthorized {
			return fmt.Errorf("%w; check the credentials in [neutron]", err)
		}
		return unreached(linkKeystone, err)
	}
	r.cloud, err = cloud.New(ctx, connection)
	return unreached(linkNeutron, err)
}

// findOwners looks for drivers that are not enabled any more and whose security groups are there. The enabled ones are
// told of them, so that they go on leaving to these what closes something: see drivers.DriverCapability. While that is
// not known no driver is launched.
func (r *runtime) findOwners(ctx context.Context) error {
	owners, err := r.cloud.Neutron.Owners(ctx, r.cluster)
	if err != nil {
		return unreached(linkNeutron, fmt.Errorf("looking for drivers that are not enabled any more: %w", err))
	}
	for _, p := range r.loaded.Programs {
		delete(owners, plan.ShortDriver(cmp.Or(p.Info.Role, p.Name)))
	}
	delete(owners, state.Shared)
	r.owners = slices.Sorted(maps.Keys(owners))
	for _, name := range r.owners {
		r.log.Warn("a driver that is not enabled has security groups: what they close stays closed, and what they allow "+
			"follows no change any more. Enable the driver again, or remove what it made with raven cleanup --driver and "+
			"reload Raven", "driver", name)
	}
	return nil
}

func (r *runtime) engineConfig() reconcile.Config {
	v := r.loaded.Values
	return reconcile.Config{
		Presence: r.clients, Contributes: contributions(r.loaded.Programs),
		Cluster: r.cluster, Concurrency: int(v.Int(OptionGroup, "concurrency")), Drivers: v.List(OptionGroup, "drivers"),
		DriftInterval:        v.Duration(OptionGroup, "drift_check_interval"),
		CollectInterval:      v.Duration(OptionGroup, "sweep_interval"),
		CollectLimit:         int(v.Int(OptionGroup, "sweep_limit")),
		MaxReplayDeletes:     int(v.Int(OptionGroup, "max_replay_deletes")),
		MaxReplayDeleteShare: v.Float(OptionGroup, "max_replay_delete_share"),
		AmbiguousWait:        r.cloud.AmbiguousWait(),
		Standby:              r.candidate != nil,
		Grace:                math.MaxInt64, // the daemon bounds it: how long it is may change meanwhile
	}
}

func (r *runtime) newEngine() error {
	c := octavia.Config{ActivationTimeout: octavia.ActivationTimeout(r.loaded.Values)}
	pools := portpool.Config{Writers: int(r.loaded.Values.Int(OptionGroup, "port_pool_writers"))}
	wb := writeback.NewFenced(r.writer, r.cloud.Pass)
	l, err := newLoop(r.engineConfig(), r.cloud, r.northbound, c, pools, wb, r.log)
	if err == nil {
		r.loops.Store(l)
		if r.northbound != nil {
			r.northbound.Follow(l.rows.Follower())
		}
	}
	return err
}

// OpenCloud connects to the configured cloud.
func OpenCloud(ctx context.Context, values *config.Values, log *slog.Logger) (*cloud.Cloud, error) {
	c, err := openstack.FromConfig(values)
	if err != nil {
		return nil, err
	}
	return cloud.Connect(ctx, c, log)
}

// NewCleanup removes what a cluster has in the cloud and in OVN's northbound database, if there is one.
func NewCleanup(cloud *cloud.Cloud, northbound *ovn.Northbound, cluster string) *cleanup.Cleanup {
	kinds := kinds()
	st := state.New(state.Config{Cluster: cluster, Kinds: kinds, Clock: clock.RealClock{}})
	env := backend.Env{State: st.State, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler), Cluster: cluster}
	_, _, backends := newBackends(env, cloud, northbound, octavia.Config{}, portpool.Config{})
	return &cleanup.Cleanup{Backends: backends, Kinds: kinds, Cluster: cluster, Clock: clock.RealClock{}}
}

// newOfflineEngine makes an engine for a plan from files.
func newOfflineEngine(names []string, log *slog.Logger) (*reconcile.Engine, error) {
	c := reconcile.Config{Cluster: offlineCluster, Drivers: names, Kinds: kinds()}
	engine, err := reconcile.New(c, noWriteback{}, clock.RealClock{}, log)
	if err != nil {
		return nil, err
	}
	empty := emptyCloud{c.Kinds}
	return engine, engine.Register(&backend.Registration{Backend: empty, Name: "the cloud", Lookup: empty.lookup})
}
