// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/conf"
	"github.com/kuryr/raven/drivers/internal/ranges"
)

// config is the configuration, checked and parsed.
type config struct {
	networkName  string
	router       string // an existing one; empty: the cluster's, by role
	mtu          int64
	portSecurity bool
	selector     labels.Selector
	families     []family
	pods         []netip.Prefix // of every IP version
}

// family is the configuration of one IP version.
type family struct {
	version int64  // 4 or 6
	suffix  string // of names: "" or "-v6"
	cidr    ranges.Named

	poolOption, existingPoolOption string
	// serviceUnknown: the cluster says which addresses are Services'.
	serviceUnknown bool
	// serviceSubnet is as configured; the zero Prefix: next larger than the service CIDR, or an existing one.
	serviceSubnet netip.Prefix
	// existingSubnet is of the services, by UUID or name; empty: Raven's own.
	existingSubnet string
}

// asksServiceCIDRs says whether an IP version's service CIDR has to come from the cluster.
func (c *config) asksServiceCIDRs() bool {
	return slices.ContainsFunc(c.families, func(f family) bool { return f.serviceUnknown })
}

// parser gathers every problem, so that an operator reads them all at once.
type parser struct {
	values   drivers.Values
	problems []error // *drivers.OptionError
}

func (p *parser) refuse(group, name, format string, args ...any) {
	p.problems = append(p.problems, conf.Refusal(group, name, format, args...))
}

func (p *parser) note(err error) {
	if err != nil {
		p.problems = append(p.problems, err)
	}
}

func (p *parser) list(group, name string) []netip.Prefix {
	return ranges.FromOption(p.values, group, name, &p.problems)
}

func parse(values drivers.Values) (config, error) {
	p := &parser{values: values}
	c := config{
		networkName:  values.String(group, optNetworkName),
		router:       values.String(conf.SubnetGroup, conf.OptRouter),
		mtu:          values.Int(conf.DefaultsGroup, conf.OptNetworkDeviceMTU),
		portSecurity: values.Bool(group, optPortSecurity),
		families:     p.families(),
	}
	if values.String(conf.SubnetGroup, conf.OptTopology) == conf.DedicatedTopology {
		p.refuse(conf.SubnetGroup, conf.OptTopology, "%s gives each namespace a router of its own, so that there is none "+
			"that joins nodes and pods: set %s, or leave driver node out of %s", conf.DedicatedTopology, conf.SharedTopology,
			conf.Name("raven", "drivers"))
	}
	if c.networkName == "" {
		p.refuse(group, optNetworkName, "is empty: the nodes' network needs a name")
	}
	p.selector(&c)
	p.pods(&c)
	p.services(&c)
	p.ingress(&c)
	if len(p.problems) == 0 {
		p.overlaps(&c)
	}
	if len(p.problems) > 0 {
		return config{}, errors.Join(p.problems...)
	}
	return c, nil
}

func (p *parser) families() []family {
	f4 := family{
		version: 4, cidr: ranges.Named{Group: group, Option: optCIDR},
		poolOption: conf.OptPool, existingPoolOption: conf.OptExistingPool,
	}
	f6 := family{
		version: 6, suffix: "-v6", cidr: ranges.Named{Group: group, Option: optCIDR6},
		poolOption: conf.OptPool6, existingPoolOption: conf.OptExistingPool6,
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
		p.cidr(&families[i])
	}
	return families
}

// cidr reads the range of a family's subnet of nodes.
func (p *parser) cidr(f *family) {
	const hostBits = 3 // the network, the router, the broadcast address: five nodes are left
	r, err := ranges.Parse(p.values.String(group, f.cidr.Option))
	switch {
	case err != nil:
		p.refuse(group, f.cidr.Option, "%v", err)
	case ranges.Version(r) != f.version:
		p.refuse(group, f.cidr.Option, "%s is not an IPv%d range", r, f.version)
	case r.Addr().BitLen()-r.Bits() < hostBits:
		p.refuse(group, f.cidr.Option, "%s is too small for a router and nodes: its prefix length is at most %d", r,
			r.Addr().BitLen()-hostBits)
	}
	f.cidr.Prefix = r
}

func (p *parser) selector(c *config) {
	selector, err := labels.Parse(p.values.String(group, optNodeSelector))
	if err != nil {
		p.refuse(group, optNodeSelector, "is not a label selector, such as kubernetes.io/os=linux,type!=kwok: %v", err)
		return
	}
	c.selector = selector
}

// pods finds out which ranges are those of pods.
func (p *parser) pods(c *config) {
	given := p.list(group, optPodCIDRs)
	for _, r := range given {
		if !slices.ContainsFunc(c.families, func(f family) bool { return f.version == ranges.Version(r) }) {
			p.refuse(group, optPodCIDRs, "%s is an IPv%d range, which %s leaves out", r, ranges.Version(r),
				conf.Name(conf.SubnetGroup, conf.OptFamilies))
		}
	}
	for i := range c.families {
		f := &c.families[i]
		some := ranges.Only(given, f.version)
		existing := p.values.String(conf.SubnetGroup, f.existingPoolOption)
		switch {
		case len(some) > 0:
		case existing != "":
			p.refuse(group, optPodCIDRs, "has no IPv%d range, and which ones the subnet pool %q of %s has is not known: give "+
				"them all, since nodes reach no pod outside of them", f.version, existing,
				conf.Name(conf.SubnetGroup, f.existingPoolOption))
		default:
			if some = p.list(conf.SubnetGroup, f.poolOption); len(some) == 0 {
				p.refuse(conf.SubnetGroup, f.poolOption, "is empty: which addresses pods have is not known")
			}
		}
		c.pods = append(c.pods, some...)
	}
}

// services reads service_subnet as driver namespace does, which is the one to refuse it.
func (p *parser) services(c *config) {
	cidrs := p.list(conf.SubnetGroup, conf.OptServiceCIDR)
	var existing []string
	for _, text := range p.values.List(conf.DefaultsGroup, conf.OptServiceSubnet) {
		r, err := ranges.Parse(text)
		if err != nil {
			existing = append(existing, text)
			continue
		}
		for i := range c.families {
			if c.families[i].version == ranges.Version(r) {
				c.families[i].serviceSubnet = r
			}
		}
	}
	for i := range c.families {
		f := &c.families[i]
		if i < len(existing) {
			f.existingSubnet = existing[i]
		}
		f.serviceUnknown = len(ranges.Only(cidrs, f.version)) == 0
	}
}

// ingress refuses groups of pods that let no node in: kubelets' probes would find every pod dead.
func (p *parser) ingress(c *config) {
	let := p.list(conf.SubnetGroup, conf.OptIngress)
	if len(let) == 0 {
		return
	}
	for i := range c.families {
		nodes := c.families[i].cidr
		if !nodes.IsValid() || slices.ContainsFunc(let, func(r netip.Prefix) bool { return covers(r, nodes.Prefix) }) {
			continue
		}
		p.refuse(conf.SubnetGroup, conf.OptIngress, "does not let in %s: the probes of kubelets would not reach pods; add it",
			nodes)
	}
}

// covers says whether the inner range lies in the outer one.
func covers(outer, inner netip.Prefix) bool { return outer == inner || ranges.Contains(outer, inner) }

// overlaps refuses ranges of nodes that are others' as well.
func (p *parser) overlaps(c *config) {
	var taken []ranges.Named
	podsOption := func(r netip.Prefix) ranges.Named {
		if slices.Contains(p.list(group, optPodCIDRs), r) {
			return ranges.Named{Group: group, Option: optPodCIDRs, Prefix: r}
		}
		for _, f := range c.families {
			if f.version == ranges.Version(r) {
				return ranges.Named{Group: conf.SubnetGroup, Option: f.poolOption, Prefix: r}
			}
		}
		return ranges.Named{Prefix: r}
	}
	for _, r := range c.pods {
		taken = append(taken, podsOption(r))
	}
	for _, r := range p.list(conf.SubnetGroup, conf.OptExternalSubnet) {
		taken = append(taken, ranges.Named{Group: conf.SubnetGroup, Option: conf.OptExternalSubnet, Prefix: r})
	}
	for i := range c.families {
		p.note(ranges.Clash(c.families[i].cidr, taken))
	}
	var services []ranges.Named
	for _, r := range p.list(conf.SubnetGroup, conf.OptServiceCIDR) {
		services = append(services, ranges.Named{Group: conf.SubnetGroup, Option: conf.OptServiceCIDR, Prefix: r})
	}
	p.note(c.clashWithServices(services))
}

// clashWithServices returns an error if a range of nodes overlaps one of Services, of which Kubernetes has the given
// ones.
func (c *config) clashWithServices(cidrs []ranges.Named) error {
	var problems []error
	for i := range c.families {
		f := &c.families[i]
		own := slices.DeleteFunc(slices.Clone(cidrs), func(r ranges.Named) bool {
			return ranges.Version(r.Prefix) != f.version
		})
		taken := own
		switch {
		case f.serviceSubnet.IsValid():
			taken = append(taken, ranges.Named{
				Group: conf.DefaultsGroup, Option: conf.OptServiceSubnet, Prefix: f.serviceSubnet,
			})
		case f.existingSubnet == "" && len(own) > 0:
			if larger, ok := ranges.Parent(own[0].Prefix); ok {
				taken = append(taken, ranges.Named{
					About:  fmt.Sprintf("the service subnet next larger than %s, namely", own[0]),
					Prefix: larger,
				})
			}
		}
		if err := ranges.Clash(f.cidr, taken); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// checkServiceCIDRs refuses ranges of nodes that overlap what the cluster says of its Services, asking for it where no
// option says it. When the needs are open afterwards, the answer does not count.
func (c *config) checkServiceCIDRs(needs *drivers.Needs) error {
	if !c.asksServiceCIDRs() {
		return nil
	}
	objects, answered := needs.Get(drivers.Need{Watch: ranges.ServiceCIDRWatch})
	if !answered {
		return nil
	}
	observed, err := ranges.ReadServiceCIDRs(objects)
	if err != nil {
		return err
	}
	var cidrs []ranges.Named
	for i := range c.families {
		if !c.families[i].serviceUnknown {
			continue // the option says it
		}
		for _, r := range ranges.Only(observed, c.families[i].version) {
			cidrs = append(cidrs, ranges.Named{About: "the cluster's service CIDR", Prefix: r})
		}
	}
	return c.clashWithServices(cidrs)
}
