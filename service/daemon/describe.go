// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net/url"

	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/web"
)

// DescribeQuery is the key of a query of /status that asks for a Descriptions document in place of a Report.
const DescribeQuery = "describe"

// Descriptions is what the daemon serves at /status?describe=true and `raven describe` prints.
type Descriptions struct {
	FormatVersion int    `json:"formatVersion"` // see Report
	Version       string `json:"version"`
	Cluster       string `json:"cluster"`
	WaitsFor      string `json:"waitsFor,omitempty"` // a service that the start cannot reach, and why
	// Leader says who leads. A process that stands by describes nothing.
	Leader  *LeaderReport           `json:"leader,omitempty"`
	Objects []reconcile.Description `json:"objects"`
}

func (d *Daemon) describe(q url.Values) Descriptions {
	r := d.current()
	report := Descriptions{
		FormatVersion: FormatVersion, Version: d.config.Loader.Version, Objects: []reconcile.Description{},
	}
	if r == nil {
		d.mu.Lock()
		report.WaitsFor = d.awaited
		d.mu.Unlock()
		return report
	}
	report.Cluster = r.cluster
	if report.Leader = r.leaderReport(); report.Leader == nil || report.Leader.Leading {
		report.Objects = r.engine().Describe(filterFrom(q))
		for i, o := range report.Objects {
			if d.page != "" {
				report.Objects[i].Page = web.Link(d.page, o.Kind, o.Namespace, o.Name)
			}
		}
	}
	return report
}
