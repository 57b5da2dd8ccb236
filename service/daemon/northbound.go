// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/health"
	"github.com/kuryr/raven/service/ovn"
)

// ovnComponent is OVN's northbound database, in /readyz and raven status.
const ovnComponent = "ovn"

// mayDropOVN refuses a configuration without OVN's northbound database while load balancers of Raven's are in it, as
// far as that was seen: without the connection they would neither be updated nor deleted, and would serve beside those
// of another driver.
func (r *runtime) mayDropOVN(next *config.Values) error {
	if r == nil || r.northbound == nil {
		return nil
	}
	if _, configured := ovn.FromConfig(next); configured {
		return nil
	}
	s := r.northbound.Status()
	if s.Balancers == 0 {
		return nil
	}
	gone := ""
	if !s.Connected {
		gone = "; it is away: if it is gone for good, start Raven anew without the option"
	}
	return fmt.Errorf("[ovn] nb_connection is not in it any more, and OVN's northbound database still has %d load "+
		"balancers of this cluster's, which Raven would not see then: they would serve on as they are, also beside those of "+
		"another driver; keep the option until `raven status` says 0 load balancers, which another driver for Services or "+
		"`raven cleanup --driver NAME` brings about%s", s.Balancers, gone)
}

// waitOVN waits as long as an attempt to connect may take, so that what is there is seen from the beginning. The error
// says that it is not.
func (r *runtime) waitOVN(ctx context.Context) error {
	if r.northbound == nil {
		return nil
	}
	c, _ := ovn.FromConfig(r.loaded.Values)
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	return r.northbound.WaitConnected(ctx)
}

// wantsOVN names the enabled drivers that make OVN load balancers.
func (r *runtime) wantsOVN() []string {
	var names []string
	for _, w := range r.watchers {
		if slices.ContainsFunc(w.Program().Info.Kinds, drivers.Kind.Northbound) {
			names = append(names, w.Name())
		}
	}
	return names
}

// reportOVN says how the database stands.
func (r *runtime) reportOVN(c *health.Component) {
	problems := r.waiting()
	if r.northbound == nil {
		text := fmt.Sprintf("driver %s makes OVN load balancers, and [ovn] nb_connection names no database",
			strings.Join(r.wantsOVN(), ", "))
		c.Degraded(strings.Join(append([]string{text}, problems...), "; "))
		return
	}
	s := r.northbound.Status()
	switch {
	case !s.Connected:
		text := "OVN's northbound database has been unreachable since " + since(s.Since) + ", what concerns it waits: " +
			s.Error
		problems = append([]string{text}, problems...)
	case s.Outdated != "":
		problems = append(problems, NorthboundText(s))
	}
	if len(problems) > 0 {
		c.Degraded(strings.Join(problems, "; "))
		return
	}
	c.ReadyAs(NorthboundText(s))
}

// waiting says which Services wait to be handed over, and why load balancers are not made though the database is there.
func (r *runtime) waiting() []string {
	l := r.loop()
	if l == nil {
		return nil
	}
	var texts []string
	if h := l.handover.Status(); h.Waiting > 0 {
		texts = append(texts, h.String())
	}
	if text := l.handover.Withheld(); text != "" {
		texts = append(texts, text)
	}
	return texts
}

// hasOVN says whether there is anything to say about the database.
func (r *runtime) hasOVN() bool { return r.northbound != nil || len(r.wantsOVN()) > 0 }

func (r *runtime) ovnReport() *ovn.Status {
	if r.northbound == nil {
		return nil
	}
	s := r.northbound.Status()
	return &s
}

// NorthboundText says in one sentence how OVN's northbound database stands.
func NorthboundText(s ovn.Status) string {
	if !s.Connected {
		return "OVN's northbound database has been unreachable since " + since(s.Since) + ": " + s.Error
	}
	version := ""
	if s.Version != "" {
		version = ", OVN " + s.Version
	}
	old := ""
	if s.Outdated != "" {
		old = "; it is too old: " + s.Outdated
	}
	return fmt.Sprintf("connected to OVN's northbound database at %s since %s%s: %d load balancers in %d groups",
		s.Endpoint, since(s.Since), version, s.Balancers, s.Groups) + old
}
