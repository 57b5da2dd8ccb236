// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"errors"
	"net/netip"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/conf"
	"github.com/kuryr/raven/drivers/internal/ranges"
)

// config is the configuration, checked and parsed.
type config struct {
	selection       conf.Selection
	dedicated       bool
	router          string // an existing one; empty: Raven's
	externalNetwork string
	mtu             int64
	maxSubnets      int
	dhcp            bool
	external        []netip.Prefix
	ingress         []netip.Prefix // that the security groups let in; empty: everything
	families        []family
	portPool        portPool
}

// family is the configuration of one IP version.
type family struct {
	version        int64  // 4 or 6
	suffix         string // of names: "" or "-v6"
	pool           []netip.Prefix
	poolOption     string
	existingPool   string
	prefixLength   int64
	dns            []string
	serviceCIDRs   []netip.Prefix // as configured
	serviceSubnet  netip.Prefix   // as configured; the zero Prefix: next larger than the service CIDR
	existingSubnet string         // of the services; empty: Raven's
}

// asksServiceCIDRs says whether an IP version's service CIDR has to come from the cluster.
func (c *config) asksServiceCIDRs() bool {
	for _, f := range c.families {
		if f.existingSubnet == "" && len(f.serviceCIDRs) == 0 {
			return true
		}
	}
	return false
}

// parser gathers every problem, so that an operator reads them all at once.
type parser struct {
	values   drivers.Values
	problems []error // *drivers.OptionError
}

func (p *parser) refuse(group, name, format string, args ...any) {
	p.problems = append(p.problems, conf.Refusal(group, name, format, args...))
}

func parse(values drivers.Values) (config, error) {
	p := &parser{values: values}
	c := config{
		dedicated:       values.String(conf.SubnetGroup, conf.OptTopology) == conf.DedicatedTopology,
		router:          values.String(conf.SubnetGroup, conf.OptRouter),
		externalNetwork: values.String(conf.DefaultsGroup, conf.OptExternalNetwork),
		mtu:             values.Int(conf.DefaultsGroup, conf.OptNetworkDeviceMTU),
		maxSubnets:      int(values.Int(conf.SubnetGroup, optMaxSubnets)),
		dhcp:            values.Bool(conf.SubnetGroup, optDHCP),
		external:        p.ranges(conf.OptExternalSubnet),
		ingress:         p.ranges(conf.OptIngress),
	}
	var err error
	if c.selection, err = conf.ReadSelection(values); err != nil {
		p.problems = append(p.problems, err)
	}
	c.families = p.families()
	c.portPool = p.portPool()
	p.dns(c.families)
	p.serviceCIDRs(c.families)
	p.serviceSubnets(c.families)
	p.check(&c)
	if len(p.problems) == 0 {
		p.checkRanges(&c)
	}
	if len(p.problems) > 0 {
		return config{}, errors.Join(p.problems...)
	}
	return c, nil
}

// ranges reads a list of ranges.
func (p *parser) ranges(name string) []netip.Prefix {
	return ranges.FromOption(p.values, conf.SubnetGroup, name, &p.problems)
}

func (p *parser) families() []family {
	f4 := family{
		version: 4, poolOption: conf.OptPool, existingPool: p.values.String(conf.SubnetGroup, conf.OptExistingPool),
		prefixLength: p.values.Int(conf.SubnetGroup, optPrefixLength),
	}
	f6 := family{
		version: 6, suffix: "-v6", poolOption: conf.OptPool6, existingPool: p.values.String(conf.SubnetGroup,
			conf.OptExistingPool6),
		prefixLength: p.values.Int(conf.SubnetGroup, optPrefixLength6),
	}
	var families []family
	switch which := p.values.String(conf.SubnetGroup, conf.OptFamilies); which {
	case conf.IPv4Only:
		families = []family{f4}
	case conf.IPv6Only:
		families = []family{f6}
	case conf.DualStack:
		families = []family{f4, f6}
	default:
		p.refuse(conf.SubnetGroup, conf.OptFamilies, "%q is none of %s, %s, %s", which, conf.IPv4Only, conf.IPv6Only,
			conf.DualStack)
	}
	for i := range families {
		if families[i].existingPool == "" {
			p.pool(&families[i])
		}
	}
	return families
}

// pool reads the ranges of a family's pool.
func (p *parser) pool(f *family) {
	f.pool = p.ranges(f.poolOption)
	if len(p.values.List(conf.SubnetGroup, f.poolOption)) == 0 {
		p.refuse(conf.SubnetGroup, f.poolOption, "is empty: the namespaces' IPv%d subnets have to come from somewhere",
			f.version)
	}
	for i, r := range f.pool {
		if ranges.Version(r) != f.version {
			p.refuse(conf.SubnetGroup, f.poolOption, "%s is not an IPv%d range", r, f.version)
		}
		if int64(r.Bits()) > f.prefixLength {
			p.refuse(conf.SubnetGroup, f.poolOption, "%s is smaller than one subnet of prefix length %d", r, f.prefixLength)
		}
		for _, other := range f.pool[:i] {
			if r.Overlaps(other) {
				p.refuse(conf.SubnetGroup, f.poolOption, "%s and %s overlap", other, r)
			}
		}
	}
}

func (p *parser) dns(families []family) {
	for _, text := range p.values.List(conf.SubnetGroup, optDNS) {
		addr, err := netip.ParseAddr(text)
		if err != nil || addr.Zone() != "" {
			p.refuse(conf.SubnetGroup, optDNS, "%q is not an address", text)
			continue
		}
		for i := range families {
			if families[i].version == ranges.Version(netip.PrefixFrom(addr, 0)) {
				families[i].dns = append(families[i].dns, addr.String())
			}
		}
	}
}

func (p *parser) serviceCIDRs(families []family) {
	for _, r := range p.ranges(conf.OptServiceCIDR) {
		f := familyOf(families, r)
		if f == nil {
			p.refuse(conf.SubnetGroup, conf.OptServiceCIDR, "%s is an IPv%d range, which %s leaves out",
				r, ranges.Version(r), conf.Name(conf.SubnetGroup, conf.OptFamilies))
			continue
		}
		f.serviceCIDRs = append(f.serviceCIDRs, r)
	}
}

// serviceSubnets reads service_subnet: ranges to make subnets with, or names of existing subnets.
func (p *parser) serviceSubnets(families []family) {
	refuse := func(format string, args ...any) {
		p.refuse(conf.DefaultsGroup, conf.OptServiceSubnet, format, args...)
	}
	var existing []string
	given := 0
	for _, text := range p.values.List(conf.DefaultsGroup, conf.OptServiceSubnet) {
		if !strings.Contains(text, "/") {
			existing = append(existing, text)
			continue
		}
		r, err := ranges.Parse(text)
		if err != nil {
			refuse("%v", err)
			continue
		}
		given++
		switch f := familyOf(families, r); {
		case f == nil:
			refuse("%s is an IPv%d range, which %s leaves out", r, ranges.Version(r),
				conf.Name(conf.SubnetGroup, conf.OptFamilies))
		case f.serviceSubnet.IsValid():
			refuse("%s and %s are two IPv%d ranges; give one", f.serviceSubnet, r, f.version)
		default:
			f.serviceSubnet = r
		}
	}
	switch {
	case len(existing) == 0:
	case given > 0:
		refuse("%s is a name among ranges; give ranges only, or existing subnets only", existing[0])
	case len(existing) > len(families):
		refuse("names %d subnets; there is one per IP version, and %s has %d",
			len(existing), conf.Name(conf.SubnetGroup, conf.OptFamilies), len(families))
	default:
		for i := range existing {
			families[i].existingSubnet = existing[i]
		}
	}
}

// check refuses options that contradict each other.
func (p *parser) check(c *config) {
	topology := p.values.String(conf.SubnetGroup, conf.OptTopology)
	if topology != conf.SharedTopology && topology != conf.DedicatedTopology {
		p.refuse(conf.SubnetGroup, conf.OptTopology, "%q is none of %s, %s", topology, conf.SharedTopology,
			conf.DedicatedTopology)
	}
	if c.dedicated && c.router != "" {
		p.refuse(conf.SubnetGroup, conf.OptRouter,
			"%q names one router for all, but %s = %s makes one per namespace: leave one of them out",
			c.router, conf.Name(conf.SubnetGroup, conf.OptTopology), conf.DedicatedTopology)
	}
	for _, f := range c.families {
		if c.dedicated && f.existingSubnet != "" {
			p.refuse(conf.DefaultsGroup, conf.OptServiceSubnet,
				"%q names one subnet for all, but %s = %s makes one per namespace: give a range, or leave one of them out",
				f.existingSubnet, conf.Name(conf.SubnetGroup, conf.OptTopology), conf.DedicatedTopology)
		}
		if least := map[int64]int64{4: 68, 6: 1280}[f.version]; c.mtu != 0 && c.mtu < least {
			p.refuse(conf.DefaultsGroup, conf.OptNetworkDeviceMTU, "%d is less than the %d bytes that IPv%d needs", c.mtu, least,
				f.version)
		}
	}
}

// checkRanges refuses ranges that overlap, and service subnets without room for Neutron's own addresses.
func (p *parser) checkRanges(c *config) {
	for i := range c.families {
		f := &c.families[i]
		if f.existingSubnet != "" {
			continue
		}
		if len(f.serviceCIDRs) > 0 {
			if _, err := c.plan(f, f.serviceCIDRs); err != nil {
				p.problems = append(p.problems, err)
			}
			continue
		}
		if f.serviceSubnet.IsValid() {
			subnet := ranges.Named{Group: conf.DefaultsGroup, Option: conf.OptServiceSubnet, Prefix: f.serviceSubnet}
			if err := ranges.Clash(subnet, taken(c, f)); err != nil {
				p.problems = append(p.problems, err)
			}
		}
	}
	for i := range c.families {
		for _, r := range pools(&c.families[i]) {
			if err := ranges.Clash(r, externals(c)); err != nil {
				p.problems = append(p.problems, err)
			}
		}
	}
}

func familyOf(families []family, r netip.Prefix) *family {
	for i := range families {
		if families[i].version == ranges.Version(r) {
			return &families[i]
		}
	}
	return nil
}
