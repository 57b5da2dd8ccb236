// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"fmt"
	"net/netip"
	"sort"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/conf"
)

// service is the service subnet of one IP version.
//
//	subnet   10.96.0.0/11
//	├── cidr  10.96.0.0/12   Kubernetes' own: the clusterIPs, which Neutron must never hand out
//	└── free  10.112.0.0/12  the gateway 10.112.0.1, and the pool from 10.112.0.2 that Neutron hands out
type service struct {
	family   *family
	existing string // UUID or name of an existing subnet; then nothing else is set
	// undecided: it is not known what there should be, so what exists stays as it is; then nothing else is set.
	undecided bool
	cidr      netip.Prefix // the first of Kubernetes' own
	subnet    netip.Prefix
	gateway   netip.Addr
	first     netip.Addr // of the allocation pool
	last      netip.Addr
	outside   []netip.Prefix // ranges of Kubernetes that the subnet does not contain
}

// named is a range with where it comes from.
type named struct {
	group, option string // empty for what the cluster says
	about         string // what it is, where it is not the option's value
	netip.Prefix
}

func (n named) String() string {
	if n.about != "" {
		return n.about + " " + n.Prefix.String()
	}
	return fmt.Sprintf("%s = %s", option(n.group, n.option), n.Prefix)
}

// value is the range for a message that begins with the option.
func (n named) value() string {
	if n.about != "" {
		return n.String()
	}
	return n.Prefix.String()
}

// services says which service subnets a namespace has, asking for the cluster's ServiceCIDR objects where it has to.
// When the needs are open afterwards, the answer does not count. An error means that the options contradict what the
// cluster says, so that nothing can be said; ranges that merely leave no room by default become diagnostics, and
// leave the service subnet undecided, as does a cluster that does not say its ranges.
func (c *config) services(needs *drivers.Needs) ([]service, []drivers.Diagnostic, error) {
	var observed []netip.Prefix
	if c.asksServiceCIDRs() {
		objects, answered := needs.Get(drivers.Need{Watch: serviceCIDRs})
		if !answered {
			return nil, nil, nil
		}
		var err error
		if observed, err = readServiceCIDRs(objects); err != nil {
			return nil, nil, err
		}
	}
	var services []service
	var diagnostics []drivers.Diagnostic
	for i := range c.families {
		f := &c.families[i]
		if f.existingSubnet != "" {
			services = append(services, service{family: f, existing: f.existingSubnet})
			continue
		}
		cidrs := f.serviceCIDRs
		if len(cidrs) == 0 {
			cidrs = only(observed, f.version)
		}
		if len(cidrs) == 0 {
			services = append(services, service{family: f, undecided: true})
			diagnostics = append(diagnostics, unknownCIDR(f)...)
			continue
		}
		s, err := c.plan(f, cidrs)
		switch {
		case err != nil && f.serviceSubnet.IsValid():
			return nil, nil, err
		case err != nil:
			services = append(services, service{family: f, undecided: true})
			diagnostics = append(diagnostics, drivers.Diagnostic{
				Severity: drivers.Error, Reason: "NoServiceNetwork", Resource: "service-subnet" + f.suffix,
				Message: fmt.Sprintf("no IPv%d service network is made, and what exists of one stays as it is: %v", f.version, err),
			})
			continue
		}
		services = append(services, s)
		diagnostics = append(diagnostics, outside(&s)...)
	}
	return services, diagnostics, nil
}

// plan lays out the service subnet of one IP version, of which Kubernetes has the given ranges, at least one.
func (c *config) plan(f *family, cidrs []netip.Prefix) (service, error) {
	s := service{family: f, cidr: cidrs[0], subnet: f.serviceSubnet}
	cidr := func(r netip.Prefix) named {
		if len(f.serviceCIDRs) > 0 {
			return named{group: conf.SubnetGroup, option: optServiceCIDR, Prefix: r}
		}
		return named{about: "the cluster's service CIDR", Prefix: r}
	}
	for _, r := range cidrs[:max(1, len(f.serviceCIDRs))] {
		if err := clash(cidr(r), taken(c, f)); err != nil {
			return service{}, err
		}
	}
	subnet := named{group: conf.DefaultsGroup, option: optServiceSubnet}
	if !s.subnet.IsValid() {
		larger, ok := parent(s.cidr)
		if !ok || private(s.cidr) && !private(larger) {
			return service{}, refusal(conf.DefaultsGroup, optServiceSubnet,
				"is not set, and the range next larger than %s is not private; set one that contains %s and is larger",
				cidr(s.cidr), s.cidr)
		}
		s.subnet = larger
		subnet.about = fmt.Sprintf("is not set; the range next larger than %s, namely", cidr(s.cidr))
	}
	subnet.Prefix = s.subnet
	if err := clash(subnet, taken(c, f)); err != nil {
		return service{}, err
	}
	for _, r := range cidrs {
		switch {
		case contains(s.subnet, r):
		case f.serviceSubnet.IsValid():
			return service{}, refusal(conf.DefaultsGroup, optServiceSubnet,
				"%s must contain %s and be larger: Neutron takes the gateway and the addresses that it gives by itself "+
					"from the difference, so that it never gives one that Kubernetes may assign to a Service",
				s.subnet, cidr(r))
		default:
			s.outside = append(s.outside, r)
		}
	}
	room, ok := free(s.subnet, cidrs)
	if !ok || room.Addr().BitLen()-room.Bits() < 2 {
		return service{}, refusal(conf.DefaultsGroup, optServiceSubnet,
			"%s leaves no room beside %s for a gateway and for addresses that Neutron gives by itself", subnet.value(),
			cidr(s.cidr))
	}
	s.gateway = room.Addr().Next()
	s.first = s.gateway.Next()
	s.last = last(room)
	if room.Addr().Is4() && s.last == last(s.subnet) {
		s.last = s.last.Prev() // the broadcast address
	}
	return s, nil
}

// clash returns an error if the range overlaps one of the others. It is about the option that gives the range, or the
// other's where the cluster gives it.
func clash(r named, others []named) error {
	for _, other := range others {
		if !r.Overlaps(other.Prefix) {
			continue
		}
		about, with := r, other
		if r.option == "" {
			about, with = other, r
		}
		return refusal(about.group, about.option,
			"%s overlaps %s: an address must be either a pod's, a service's or outside; change one of the two", about.value(),
			with)
	}
	return nil
}

// taken returns the ranges that services must not lie in.
func taken(c *config, f *family) []named { return append(pools(f), externals(c)...) }

func pools(f *family) []named {
	var ranges []named
	for _, r := range f.pool {
		ranges = append(ranges, named{group: conf.SubnetGroup, option: f.poolOption, Prefix: r})
	}
	return ranges
}

func externals(c *config) []named {
	var ranges []named
	for _, r := range c.external {
		ranges = append(ranges, named{group: conf.SubnetGroup, option: optExternalSubnet, Prefix: r})
	}
	return ranges
}

// readServiceCIDRs returns the ranges of ServiceCIDR objects, those of the object that Kubernetes makes itself first.
func readServiceCIDRs(objects []drivers.Object) ([]netip.Prefix, error) {
	type serviceCIDR struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Spec struct {
			CIDRs []string `json:"cidrs"`
		} `json:"spec"`
	}
	all := make([]serviceCIDR, len(objects))
	for i := range objects {
		if err := objects[i].Into(&all[i]); err != nil {
			return nil, err
		}
	}
	sort.SliceStable(all, func(i, j int) bool {
		return all[i].Metadata.Name == "kubernetes" && all[j].Metadata.Name != "kubernetes"
	})
	var ranges []netip.Prefix
	for i := range all {
		for _, text := range all[i].Spec.CIDRs {
			r, err := netip.ParsePrefix(text)
			if err != nil {
				return nil, fmt.Errorf("ServiceCIDR %q: %q is not a range", all[i].Metadata.Name, text)
			}
			ranges = append(ranges, r.Masked())
		}
	}
	return ranges, nil
}

func only(ranges []netip.Prefix, version int64) []netip.Prefix {
	var some []netip.Prefix
	for _, r := range ranges {
		if versionOf(r) == version {
			some = append(some, r)
		}
	}
	return some
}

// unknownCIDR says so where a service subnet was asked for that cannot be laid out.
func unknownCIDR(f *family) []drivers.Diagnostic {
	if !f.serviceSubnet.IsValid() {
		return nil
	}
	return []drivers.Diagnostic{{
		Severity: drivers.Warning, Reason: "NoServiceNetwork", Resource: "service-subnet" + f.suffix,
		Message: fmt.Sprintf("%s = %s is not made, and what exists of it stays as it is: the cluster has no ServiceCIDR "+
			"object that says which of its addresses are Kubernetes' own; set %s", option(conf.DefaultsGroup,
			optServiceSubnet), f.serviceSubnet, option(conf.SubnetGroup, optServiceCIDR)),
	}}
}

// outside warns of ranges of Kubernetes whose Services cannot be served.
func outside(s *service) []drivers.Diagnostic {
	if len(s.outside) == 0 {
		return nil
	}
	var texts []string
	for _, r := range s.outside {
		texts = append(texts, r.String())
	}
	return []drivers.Diagnostic{{
		Severity: drivers.Warning, Reason: "ServiceRangeOutside", Resource: "service-subnet" + s.family.suffix,
		Message: fmt.Sprintf("the service subnet %s does not contain %s: Services with addresses there are not served; "+
			"set %s to a range that contains all of them", s.subnet, strings.Join(texts, ", "), option(conf.DefaultsGroup,
			optServiceSubnet)),
	}}
}
