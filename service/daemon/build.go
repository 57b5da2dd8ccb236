package daemon

import (
	"context"
	"log/slog"
	"math"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/cloud"
	"github.com/kuryr/raven/service/openstack/octavia"
	"github.com/kuryr/raven/service/ovn"
	"github.com/kuryr/raven/service/reconcile"
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

// asNorthbound is the database as the engine has it: nothing where there is none.
func asNorthbound(n *ovn.Northbound) reconcile.Northbound {
	if n == nil {
		return nil
	}
	return n
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
	var err error
	r.cloud, err = OpenCloud(ctx, r.loaded.Values, r.log)
	return err
}

func (r *runtime) engineConfig() reconcile.Config {
	v := r.loaded.Values
	return reconcile.Config{
		Presence: r.clients, Contributes: contributions(r.loaded.Programs),
		Cluster: r.cluster, Northbound: asNorthbound(r.northbound), Concurrency: int(v.Int(OptionGroup, "concurrency")),
		Drivers:              v.List(OptionGroup, "drivers"),
		DriftInterval:        v.Duration(OptionGroup, "drift_check_interval"),
		SweepInterval:        v.Duration(OptionGroup, "sweep_interval"),
		SweepLimit:           int(v.Int(OptionGroup, "sweep_limit")),
		MaxReplayDeletes:     int(v.Int(OptionGroup, "max_replay_deletes")),
		MaxReplayDeleteShare: v.Float(OptionGroup, "max_replay_delete_share"),
		AmbiguousWait:        r.cloud.AmbiguousWait(),
		ActivationTimeout:    octavia.ActivationTimeout(v),
		Standby:              r.candidate != nil,
		Grace:                math.MaxInt64, // the daemon bounds it: how long it is may change meanwhile
	}
}

func (r *runtime) newEngine() error {
	engine, err := reconcile.New(r.engineConfig(), r.cloud, writeback.NewFenced(r.writer, r.cloud.Pass), clock.RealClock{},
		r.log)
	if err == nil {
		r.engines.Store(engine)
		if r.northbound != nil {
			r.northbound.Follow(engine.FollowNorthbound())
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
func NewCleanup(cloud *cloud.Cloud, northbound *ovn.Northbound, cluster string) *reconcile.Cleanup {
	return &reconcile.Cleanup{
		Cloud: cloud, Northbound: asNorthbound(northbound), Cluster: cluster,
		Clock: clock.RealClock{},
	}
}

// newOfflineEngine makes an engine for a plan from files.
func newOfflineEngine(names []string, log *slog.Logger) (*reconcile.Engine, error) {
	return reconcile.New(reconcile.Config{Cluster: offlineCluster, Drivers: names}, emptyCloud{}, noWriteback{},
		clock.RealClock{}, log)
}
