// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/conf"
	"github.com/kuryr/raven/drivers/internal/ranges"
)

// service is the service subnet of one IP version.
//
//	subnet   10.96.0.0/11
//	├── cidr  10.96.0.0/12   Kubernetes' own: the clusterIPs, which Neutron must never hand out
//	└── free  10.112.0.0/12  the gateway 10.112.0.1, and the pool from 10.112.0.2 that Neutron hands out
type service struct {
	family   *family
	existing string // UUID or name of an existing subnet; then nothing else is set but cidrs
	// undecided: it is not known what there should be, so what exists stays as it is; then nothing else is set.
	undecided bool
	cidr      netip.Prefix   // the first of Kubernetes' own
	cidrs     []netip.Prefix // all of Kubernetes' own that are known; also with an existing subnet
	subnet    netip.Prefix
	gateway   netip.Addr
	first     netip.Addr // of the allocation pool
	last      netip.Addr
	outside   []netip.Prefix // ranges of Kubernetes that the subnet does not contain
}

// services says which service subnets a namespace has, asking for the cluster's ServiceCIDR objects where it has to.
// When the needs are open afterwards, the answer does not count. An error means that the options contradict what the
// cluster says, so that nothing can be said; ranges that merely leave no room by default become diagnostics, and
// leave the service subnet undecided, as does a cluster that does not say its ranges.
func (c *config) services(needs *drivers.Needs) ([]service, []drivers.Diagnostic, error) {
	var observed []netip.Prefix
	if c.asksServiceCIDRs() {
		objects, answered := needs.Get(drivers.Need{Watch: ranges.ServiceCIDRWatch})
		if !answered {
			return nil, nil, nil
		}
		var err error
		if observed, err = ranges.ReadServiceCIDRs(objects); err != nil {
			return nil, nil, err
		}
	}
	var services []service
	var diagnostics []drivers.Diagnostic
	for i := range c.families {
		f := &c.families[i]
		if f.existingSubnet != "" {
			services = append(services, service{family: f, existing: f.existingSubnet, cidrs: f.serviceCIDRs})
			continue
		}
		cidrs := f.serviceCIDRs
		if len(cidrs) == 0 {
			cidrs = ranges.Only(observed, f.version)
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
	s := service{family: f, cidr: cidrs[0], cidrs: cidrs, subnet: f.serviceSubnet}
	cidr := func(r netip.Prefix) ranges.Named {
		if len(f.serviceCIDRs) > 0 {
			return ranges.Named{Group: conf.SubnetGroup, Option: conf.OptServiceCIDR, Prefix: r}
		}
		return ranges.Named{About: "the cluster's service CIDR", Prefix: r}
	}
	for _, r := range cidrs[:max(1, len(f.serviceCIDRs))] {
		if err := ranges.Clash(cidr(r), taken(c, f)); err != nil {
			return service{}, err
		}
	}
	subnet := ranges.Named{Group: conf.DefaultsGroup, Option: conf.OptServiceSubnet}
	if !s.subnet.IsValid() {
		larger, ok := ranges.Parent(s.cidr)
		if !ok || ranges.Private(s.cidr) && !ranges.Private(larger) {
			return service{}, conf.Refusal(conf.DefaultsGroup, conf.OptServiceSubnet,
				"is not set, and the range next larger than %s is not private; set one that contains %s and is larger",
				cidr(s.cidr), s.cidr)
		}
		s.subnet = larger
		subnet.About = fmt.Sprintf("is not set; the range next larger than %s, namely", cidr(s.cidr))
	}
	subnet.Prefix = s.subnet
	if err := ranges.Clash(subnet, taken(c, f)); err != nil {
		return service{}, err
	}
	for _, r := range cidrs {
		switch {
		case ranges.Contains(s.subnet, r):
		case f.serviceSubnet.IsValid():
			return service{}, conf.Refusal(conf.DefaultsGroup, conf.OptServiceSubnet,
				"%s must contain %s and be larger: Neutron takes the gateway and the addresses that it gives by itself "+
					"from the difference, so that it never gives one that Kubernetes may assign to a Service",
				s.subnet, cidr(r))
		default:
			s.outside = append(s.outside, r)
		}
	}
	room, ok := ranges.Free(s.subnet, cidrs)
	if !ok || room.Addr().BitLen()-room.Bits() < 2 {
		return service{}, conf.Refusal(conf.DefaultsGroup, conf.OptServiceSubnet,
			"%s leaves no room beside %s for a gateway and for addresses that Neutron gives by itself", subnet.Value(),
			cidr(s.cidr))
	}
	s.gateway = room.Addr().Next()
	s.first = s.gateway.Next()
	s.last = ranges.Last(room)
	if room.Addr().Is4() && s.last == ranges.Last(s.subnet) {
		s.last = s.last.Prev() // the broadcast address
	}
	return s, nil
}

// taken returns the ranges that services must not lie in.
func taken(c *config, f *family) []ranges.Named { return append(pools(f), externals(c)...) }

func pools(f *family) []ranges.Named {
	var taken []ranges.Named
	for _, r := range f.pool {
		taken = append(taken, ranges.Named{Group: conf.SubnetGroup, Option: f.poolOption, Prefix: r})
	}
	return taken
}

func externals(c *config) []ranges.Named {
	var taken []ranges.Named
	for _, r := range c.external {
		taken = append(taken, ranges.Named{Group: conf.SubnetGroup, Option: conf.OptExternalSubnet, Prefix: r})
	}
	return taken
}

// unknownCIDR says so where a service subnet was asked for that cannot be laid out.
func unknownCIDR(f *family) []drivers.Diagnostic {
	if !f.serviceSubnet.IsValid() {
		return nil
	}
	return []drivers.Diagnostic{{
		Severity: drivers.Warning, Reason: "NoServiceNetwork", Resource: "service-subnet" + f.suffix,
		Message: fmt.Sprintf("%s = %s is not made, and what exists of it stays as it is: the cluster has no ServiceCIDR "+
			"object that says which of its addresses are Kubernetes' own; set %s", conf.Name(conf.DefaultsGroup,
			conf.OptServiceSubnet), f.serviceSubnet, conf.Name(conf.SubnetGroup, conf.OptServiceCIDR)),
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
			"set %s to a range that contains all of them", s.subnet, strings.Join(texts, ", "), conf.Name(conf.DefaultsGroup,
			conf.OptServiceSubnet)),
	}}
}
