// SPDX-License-Identifier: Apache-2.0

package services

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/conf"
)

// Config is the part of the configuration that Services have in common, whoever serves them.
type Config struct {
	Selection   conf.Selection
	MemberRules bool
	OwnClass    string
	Classes     map[string]map[string]string // by name: annotations
	Internal    []netip.Prefix
	InternalGap string // the option whose ranges are missing from Internal
	// Ingress are the ranges that the namespaces' security groups let in by themselves.
	Ingress        []netip.Prefix
	IP4, IP6       bool
	ExternalNet    string
	ExternalSubnet string
	// LiteralExternals says that externalIPs are served without floating IPs, where that is possible.
	LiteralExternals bool
}

// Parser gathers every problem of the options, so that an operator reads them all at once.
type Parser struct {
	Values   drivers.Values
	problems []error // *drivers.OptionError
}

// Refuse notes a problem.
func (p *Parser) Refuse(group, name, format string, args ...any) {
	p.problems = append(p.problems, &drivers.OptionError{Group: group, Name: name, Message: fmt.Sprintf(format, args...)})
}

// Err returns all problems; nil without any.
func (p *Parser) Err() error { return errors.Join(p.problems...) }

// Choice returns an option that is one of these.
func (p *Parser) Choice(group, name string, choices ...string) string {
	text := p.Values.String(group, name)
	if !slices.Contains(choices, text) {
		p.Refuse(group, name, "%q is none of %s", text, strings.Join(choices, ", "))
	}
	return text
}

// Common reads what Services have in common. The annotations of each class are put through check as those of a
// Service would be.
func (p *Parser) Common(check func(annotations map[string]string) (problems []string)) Config {
	c := Config{
		OwnClass:         p.Values.String(OctaviaGroup, optOwnClass),
		ExternalNet:      p.Values.String(conf.DefaultsGroup, conf.OptExternalNetwork),
		ExternalSubnet:   p.Values.String(conf.DefaultsGroup, optExternalSubnet),
		LiteralExternals: p.Values.Bool(OctaviaGroup, optLiteral),
	}
	var err error
	if c.Selection, err = conf.ReadSelection(p.Values); err != nil {
		p.problems = append(p.problems, err)
	}
	families := p.Choice(conf.SubnetGroup, conf.OptFamilies, conf.IPv4Only, conf.IPv6Only, conf.DualStack)
	c.IP4, c.IP6 = families != conf.IPv6Only, families != conf.IPv4Only
	c.MemberRules = p.Values.Bool(OctaviaGroup, optEnforceRules) && p.Values.Bool(OctaviaGroup, OptMemberRules) &&
		len(p.Values.List(conf.DefaultsGroup, conf.OptSecurityGroups)) == 0
	p.internal(&c)
	c.Ingress = p.ranges(conf.SubnetGroup, conf.OptIngress, p.Values.List(conf.SubnetGroup, conf.OptIngress))
	if len(c.Ingress) == 0 {
		c.Ingress = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
	}
	p.classes(&c, check)
	return c
}

// internal reads the ranges that source ranges do not shut out.
func (p *Parser) internal(c *Config) {
	if given := p.Values.List(OctaviaGroup, OptInternal); len(given) > 0 {
		c.Internal = p.ranges(OctaviaGroup, OptInternal, given)
		return
	}
	for _, f := range []struct {
		used           bool
		pool, existing string
	}{{c.IP4, conf.OptPool, conf.OptExistingPool}, {c.IP6, conf.OptPool6, conf.OptExistingPool6}} {
		switch {
		case !f.used:
		case p.Values.String(conf.SubnetGroup, f.existing) != "":
			c.InternalGap = f.existing
		default:
			c.Internal = append(c.Internal, p.ranges(conf.SubnetGroup, f.pool, p.Values.List(conf.SubnetGroup, f.pool))...)
		}
	}
}

func (p *Parser) ranges(group, name string, texts []string) []netip.Prefix {
	var ranges []netip.Prefix
	for _, text := range texts {
		r, err := netip.ParsePrefix(text)
		if err != nil || r != r.Masked() {
			p.Refuse(group, name, "%q is not a range in CIDR form, such as 10.0.0.0/16", text)
			continue
		}
		ranges = append(ranges, r)
	}
	return ranges
}

// classes reads the annotations of each class, and refuses what a Service would be refused.
func (p *Parser) classes(c *Config, check func(map[string]string) []string) {
	given := p.Values.Dict(OctaviaGroup, OptClasses)
	c.Classes = make(map[string]map[string]string, len(given))
	for _, class := range slices.Sorted(maps.Keys(given)) {
		c.Classes[class] = map[string]string{}
		for part := range strings.SplitSeq(given[class], ";") {
			key, value, ok := strings.Cut(part, "=")
			key, value = strings.TrimSpace(key), strings.TrimSpace(value)
			if !ok || !slices.Contains(ClassAnnotations(), AnnotationPrefix+key) {
				p.Refuse(OctaviaGroup, OptClasses, "class %q: %q is none of %s, with = and a value", class, part,
					strings.ReplaceAll(strings.Join(ClassAnnotations(), ", "), AnnotationPrefix, ""))
				continue
			}
			c.Classes[class][AnnotationPrefix+key] = value
		}
		for _, bad := range check(c.Classes[class]) {
			p.Refuse(OctaviaGroup, OptClasses, "class %q: %s", class, bad)
		}
	}
}
