// SPDX-License-Identifier: Apache-2.0

package ranges

import (
	"fmt"
	"net/netip"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/conf"
)

// Named is a range with where it comes from.
type Named struct {
	// Group and Option give the range; both are empty for what the cluster says.
	Group, Option string
	// About is what the range is, where it is not the option's value.
	About string
	netip.Prefix
}

// String names the range and where it comes from.
func (n Named) String() string {
	if n.About != "" {
		return n.About + " " + n.Prefix.String()
	}
	return fmt.Sprintf("%s = %s", conf.Name(n.Group, n.Option), n.Prefix)
}

// Value is the range for a message that begins with the option.
func (n Named) Value() string {
	if n.About != "" {
		return n.String()
	}
	return n.Prefix.String()
}

// Clash returns an error if the range overlaps one of the others. It is about the option that gives the range, or the
// other's where the cluster gives it.
func Clash(r Named, others []Named) error {
	for _, other := range others {
		if !r.Overlaps(other.Prefix) {
			continue
		}
		about, with := r, other
		if r.Option == "" {
			about, with = other, r
		}
		return conf.Refusal(about.Group, about.Option,
			"%s overlaps %s: an address must be either a pod's, a node's, a service's or outside; change one of the two",
			about.Value(), with)
	}
	return nil
}

// FromOption reads a list of ranges. What is not a range is added to the problems.
func FromOption(values drivers.Values, group, name string, problems *[]error) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range values.List(group, name) {
		r, err := Parse(text)
		if err != nil {
			*problems = append(*problems, conf.Refusal(group, name, "%v", err))
			continue
		}
		list = append(list, r)
	}
	return list
}
