// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net/url"
	"time"

	"github.com/kuryr/raven/service/handover"
	"github.com/kuryr/raven/service/openstack/neutron"
	"github.com/kuryr/raven/service/ovn"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
)

// status serves /status.
func (d *Daemon) status(q url.Values) (any, error) {
	if q.Has(DescribeQuery) {
		return d.describe(q), nil
	}
	return d.report(func(r *runtime) []reconcile.ObjectStatus { return r.engine().Objects(filterFrom(q)) }), nil
}

// report is how the daemon stands, with the objects that are asked for if it leads.
func (d *Daemon) report(objects func(*runtime) []reconcile.ObjectStatus) Report {
	r := d.current()
	report := Report{FormatVersion: FormatVersion, Version: d.config.Loader.Version, Started: d.started}
	if r == nil {
		d.mu.Lock()
		report.WaitsFor = d.awaited
		d.mu.Unlock()
		return report
	}
	report.Cluster, report.Project = r.cluster, r.cloud.ProjectID()
	report.Counts, report.Requests = r.engine().Counts(), r.cloud.Neutron.Stats()
	report.Ready = r.engine().Replayed()
	if report.Leader = r.leaderReport(); report.Leader == nil || report.Leader.Leading {
		report.Ready = report.Ready && !r.engine().StandingBy() // or it is still taking over
		report.Objects = objects(r)
	}
	report.OVN, report.Handover = r.ovnReport(), r.loop().handover.Status()
	report.Drifts = r.engine().Drifts()
	report.Drivers, report.Disabled = r.driverReports(), r.engine().DisabledResources()
	return report
}

func (r *runtime) driverReports() []DriverReport {
	byName := map[string]*Watcher{}
	for _, w := range r.watchers {
		byName[w.Name()] = w
	}
	var list []DriverReport
	for _, of := range r.engine().Drivers() {
		report := DriverReport{DriverStatus: of}
		if w := byName[of.Name]; w != nil {
			report = w.Status(of)
		}
		list = append(list, report)
	}
	return list
}

// FormatVersion is that of the documents that commands print, and that the daemon serves, as JSON.
const FormatVersion = 1

// Report is what the daemon serves at /status and `raven status` prints.
type Report struct {
	// FormatVersion is that of the document: another number means that a key has another meaning, or is gone.
	FormatVersion int `json:"formatVersion"`

	Version  string                     `json:"version"`
	Cluster  string                     `json:"cluster"`
	Project  string                     `json:"project"`
	Started  time.Time                  `json:"started"`
	Ready    bool                       `json:"ready"`
	WaitsFor string                     `json:"waitsFor,omitempty"` // a service that the start cannot reach, and why
	Leader   *LeaderReport              `json:"leader,omitempty"`
	Drivers  []DriverReport             `json:"drivers"`
	Disabled []reconcile.DisabledStatus `json:"disabled,omitempty"`
	Counts   map[state.Phase]int        `json:"counts"`
	Requests neutron.Stats              `json:"requests"`
	OVN      *ovn.Status                `json:"ovn,omitempty"`     // absent without [ovn] nb_connection
	Handover handover.Status            `json:"handover,omitzero"` // absent if no Service waits to be handed over
	// Drifts are the last resources that others have changed or deleted, the latest first.
	Drifts    []reconcile.DriftStatus  `json:"drifts,omitempty"`
	Objects   []reconcile.ObjectStatus `json:"objects"`
	Truncated bool                     `json:"-"`
}

// DriverReport is a watcher: the driver's process and its watches.
type DriverReport struct {
	reconcile.DriverStatus
	Path     string        `json:"path"`
	PID      int           `json:"pid,omitempty"`
	State    string        `json:"state"` // ready, restarting, quarantined or stopped
	Isolated int           `json:"isolated,omitempty"`
	Restarts int           `json:"restarts"`
	Watches  []WatchReport `json:"watches"`
	Problem  string        `json:"problem,omitempty"`
}

// WatchReport is how one watch of a driver stands.
type WatchReport struct {
	Name    string `json:"name"`
	Synced  bool   `json:"synced"`
	Objects int    `json:"objects"`
	Error   string `json:"error,omitempty"`
}

func filterFrom(q url.Values) reconcile.Filter {
	return reconcile.Filter{
		Driver: q.Get("driver"), Kind: q.Get("kind"), Namespace: q.Get("namespace"), Name: q.Get("name"),
		State: state.Phase(q.Get("state")),
	}
}
