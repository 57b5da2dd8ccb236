// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net/url"

	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
)

// webSource is what the web page shows of a daemon.
type webSource struct{ daemon *Daemon }

// Overview is the report without objects.
func (s webSource) Overview() any {
	return s.daemon.report(func(*runtime) []reconcile.ObjectStatus { return nil })
}

// Describe is what `raven describe` prints.
func (s webSource) Describe(f reconcile.Filter) any {
	return s.daemon.describe(url.Values{"kind": {f.Kind}, "namespace": {f.Namespace}, "name": {f.Name}})
}

// Objects are none while another process leads, or nothing was started yet.
func (s webSource) Objects() []reconcile.ObjectStatus {
	r := s.daemon.current()
	if r == nil {
		return nil
	}
	if leader := r.leaderReport(); leader != nil && !leader.Leading {
		return nil
	}
	return r.engine().Objects(reconcile.Filter{})
}

// Counts is how many objects are in each state.
func (s webSource) Counts() map[state.Phase]int {
	if r := s.daemon.current(); r != nil {
		return r.engine().Counts()
	}
	return map[state.Phase]int{}
}

// Changes is the number of changes that the engine has seen; another engine begins anew.
func (s webSource) Changes() uint64 {
	if r := s.daemon.current(); r != nil {
		return r.engine().Changes()
	}
	return 0
}
