package lbaas

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
)

// maxTimeout is Octavia's own bound, in milliseconds.
const maxTimeout = 24 * 24 * 60 * 60 * 1000

// config is the configuration, checked and parsed.
type config struct {
	provider       string
	memberMode     string
	memberRules    bool
	algorithm      string
	timeoutClient  int64
	timeoutMember  int64
	dual           string
	monitor        bool
	ownClass       string
	classes        map[string]map[string]string // by name: annotations
	internal       []netip.Prefix
	internalGap    string // the option whose ranges are missing from internal
	ip4, ip6       bool
	externalNet    string
	externalSubnet string
}

// onSubnet says whether members are named with their subnets.
func (c *config) onSubnet(p provider) bool { return c.memberMode == memberL2 || p.onSubnet }

// parser gathers every problem, so that an operator reads them all at once.
type parser struct {
	values   drivers.Values
	problems []error // *drivers.OptionError
}

func (p *parser) refuse(group, name, format string, args ...any) {
	p.problems = append(p.problems, &drivers.OptionError{Group: group, Name: name, Message: fmt.Sprintf(format, args...)})
}

func parse(values drivers.Values) (config, error) {
	p := &parser{values: values}
	c := config{
		provider:       values.String(octaviaGroup, optProvider),
		memberMode:     p.choice(octaviaGroup, optMemberMode, memberL2, memberL3),
		algorithm:      p.choice(octaviaGroup, optAlgorithm, algorithms()...),
		timeoutClient:  values.Int(octaviaGroup, optTimeoutClient),
		timeoutMember:  values.Int(octaviaGroup, optTimeoutMember),
		dual:           p.choice(octaviaGroup, optDualStack, dualAuto, dualAdditional, dualSeparate),
		monitor:        values.Bool(octaviaGroup, optHealthMonitor),
		ownClass:       values.String(octaviaGroup, optOwnClass),
		externalNet:    values.String(defaultsGroup, optExternalNet),
		externalSubnet: values.String(defaultsGroup, optExternalSubnet),
	}
	families := p.choice(subnetGroup, optFamilies, ipv4Only, ipv6Only, dualStack)
	c.ip4, c.ip6 = families != ipv6Only, families != ipv4Only
	c.memberRules = values.Bool(octaviaGroup, optEnforceRules) && values.Bool(octaviaGroup, optMemberRules) &&
		len(values.List(defaultsGroup, optSecurityGroups)) == 0
	if problem := badProvider(c.provider); problem != "" {
		p.refuse(octaviaGroup, optProvider, "%q %s", c.provider, problem)
	}
	p.internal(&c)
	p.classes(&c)
	return c, errors.Join(p.problems...)
}

func (p *parser) choice(group, name string, choices ...string) string {
	text := p.values.String(group, name)
	if !slices.Contains(choices, text) {
		p.refuse(group, name, "%q is none of %s", text, strings.Join(choices, ", "))
	}
	return text
}

// internal reads the ranges that source ranges do not shut out.
func (p *parser) internal(c *config) {
	if given := p.values.List(octaviaGroup, optInternal); len(given) > 0 {
		c.internal = p.ranges(octaviaGroup, optInternal, given)
		return
	}
	for _, f := range []struct {
		used           bool
		pool, existing string
	}{{c.ip4, optPool, optExistingPool}, {c.ip6, optPool6, optExistingPool6}} {
		switch {
		case !f.used:
		case p.values.String(subnetGroup, f.existing) != "":
			c.internalGap = f.existing
		default:
			c.internal = append(c.internal, p.ranges(subnetGroup, f.pool, p.values.List(subnetGroup, f.pool))...)
		}
	}
}

func (p *parser) ranges(group, name string, texts []string) []netip.Prefix {
	var ranges []netip.Prefix
	for _, text := range texts {
		r, err := netip.ParsePrefix(text)
		if err != nil || r != r.Masked() {
			p.refuse(group, name, "%q is not a range in CIDR form, such as 10.0.0.0/16", text)
			continue
		}
		ranges = append(ranges, r)
	}
	return ranges
}

// classes reads the annotations of each class, and refuses what a Service would be refused.
func (p *parser) classes(c *config) {
	given := p.values.Dict(octaviaGroup, optClasses)
	c.classes = make(map[string]map[string]string, len(given))
	for _, class := range slices.Sorted(maps.Keys(given)) {
		c.classes[class] = map[string]string{}
		for part := range strings.SplitSeq(given[class], ";") {
			key, value, ok := strings.Cut(part, "=")
			key, value = strings.TrimSpace(key), strings.TrimSpace(value)
			if !ok || !slices.Contains(classAnnotations(), annotationPrefix+key) {
				p.refuse(octaviaGroup, optClasses, "class %q: %q is none of %s, with = and a value", class, part,
					strings.ReplaceAll(strings.Join(classAnnotations(), ", "), annotationPrefix, ""))
				continue
			}
			c.classes[class][annotationPrefix+key] = value
		}
		r := reader{annotations: c.classes[class]}
		r.all(c)
		for _, bad := range append(r.fatal, r.problems...) {
			p.refuse(octaviaGroup, optClasses, "class %q: %s", class, bad)
		}
	}
}
