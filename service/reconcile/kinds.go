package reconcile

import (
	"slices"

	"github.com/kuryr/raven/service/openstack/neutron"
	"github.com/kuryr/raven/service/openstack/octavia"
	"github.com/kuryr/raven/service/ovn"
	"github.com/kuryr/raven/service/plan"
)

// kinds are the kinds of all backends.
var kinds = plan.NewKinds(slices.Concat(neutron.Kinds(), octavia.Kinds(), ovn.Kinds())...) //nolint:gochecknoglobals // it never changes
