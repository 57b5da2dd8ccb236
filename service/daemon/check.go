// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/leader"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/ovn"
	"github.com/kuryr/raven/service/watch"
)

// Level is how grave a finding is.
type Level string

// The levels of findings. Only errors keep Raven from working.
const (
	LevelOK    Level = "ok"
	LevelWarn  Level = "warn"
	LevelError Level = "error"
)

// Finding is one thing that a check of the configuration found, in a sentence that says what to do.
type Finding struct {
	Level   Level  `json:"level"`
	Message string `json:"message"`
}

// Check is a configuration with all that was found about it.
type Check struct {
	Findings []Finding
	// Settings are what can be used of the configuration. What is at fault has its default, and drivers that cannot be
	// asked are not among the programs. Nil where no configuration can be read.
	Settings *Settings
	faulty   map[config.Name]bool
	groups   map[string]bool
}

// Errors counts the findings that keep Raven from working.
func (c *Check) Errors() int {
	n := 0
	for _, f := range c.Findings {
		if f.Level == LevelError {
			n++
		}
	}
	return n
}

func (c *Check) add(level Level, format string, args ...any) {
	c.Findings = append(c.Findings, Finding{level, openstack.OneLine(fmt.Sprintf(format, args...))})
}

// tell adds an error, or that something is in order.
func (c *Check) tell(err error, format string, args ...any) {
	if err != nil {
		c.add(LevelError, "%v", err)
		return
	}
	c.add(LevelOK, format, args...)
}

// faults notes the options at fault, so that nothing is concluded from them.
func (c *Check) faults(errs []error) {
	for _, err := range errs {
		if e, ok := errors.AsType[*config.Error](err); ok {
			key := config.Name{Group: e.Group, Name: e.Option}
			c.faulty[key], c.groups[strings.ToLower(e.Group)] = true, true
		}
	}
}

// Check finds everything that is wrong with the configuration, without a request to a cluster or a cloud: values,
// sections and drivers are all looked at, whatever is wrong with the others.
func (l Loader) Check(ctx context.Context) *Check {
	c := &Check{faulty: map[config.Name]bool{}, groups: map[string]bool{}}
	sources, err := l.Sources()
	if err != nil {
		c.add(LevelError, "%v", err)
		return c
	}
	lenient := sources
	lenient.Strict = false
	names, core := c.names(lenient)
	if core == nil {
		return c
	}
	options := append(Options(), authorityOptions(names)...)
	programs, asked := c.programs(ctx, lenient, options, names, l)
	for _, p := range programs {
		for _, o := range p.Info.Options {
			options = append(options, driverOption(p.Name, o))
		}
	}
	if !asked {
		sources = known(lenient, options)
	}
	_, _, faults := config.Check(known(lenient, options), options)
	c.faults(faults)
	values, warnings, errs := config.Check(sources, options)
	for _, err := range errs {
		c.add(LevelError, "%v", err)
	}
	for _, w := range warnings {
		c.add(LevelWarn, "%s", w)
	}
	if !asked {
		c.add(LevelWarn, "the options of drivers that could not be asked are not known: they are not checked, and may be "+
			"among the unknown ones")
	}
	if values == nil {
		return c
	}
	if len(errs) == 0 {
		c.add(LevelOK, "values: %s", filesText(sources))
	}
	c.Settings = &Settings{
		Values: values, Warnings: warnings, Programs: programs, sources: sources, loader: l,
	}
	c.connections()
	c.opinions(ctx)
	return c
}

func filesText(s config.Sources) string {
	if len(s.Files)+len(s.Dirs) == 0 {
		return "no file was found, all options have their defaults or come from the environment and the command line"
	}
	return "read from " + strings.Join(slices.Concat(s.Files, s.Dirs), ", ")
}

// names are those of the enabled drivers, without those that cannot be names: the last look at the values tells them.
func (c *Check) names(sources config.Sources) ([]string, *config.Values) {
	options := Options()
	for i := range options {
		if options[i].Group == OptionGroup && options[i].Name == "drivers" {
			options[i].Pattern = ""
		}
	}
	values, _, errs := config.Check(known(sources, options), options)
	if values == nil {
		c.add(LevelError, "%v", errors.Join(errs...))
		return nil, nil
	}
	listed := values.List(OptionGroup, "drivers")
	if len(listed) == 0 {
		c.add(LevelError, "[%s] drivers is empty: name at least one, for example namespace,pod", OptionGroup)
	}
	var names []string
	for _, name := range listed {
		err := CheckName(name)
		if errors.Is(err, errNoName) {
			continue
		}
		if slices.Contains(names, name) {
			err = fmt.Errorf("[%s] drivers names %q twice: remove one", OptionGroup, name)
		}
		if err != nil {
			c.add(LevelError, "%v", err)
			continue
		}
		names = append(names, name)
	}
	return names, values
}

// programs asks the drivers for what they declare; asked says that all answered.
func (c *Check) programs(
	ctx context.Context, sources config.Sources, options []config.Option, names []string, l Loader,
) (programs []Program, asked bool) {
	values, _, errs := config.Check(known(sources, options), options)
	c.faults(errs)
	sandbox, err := sandboxFrom(values)
	if err != nil {
		c.add(LevelError, "%v", err)
		return nil, false
	}
	asked = true
	for _, name := range names {
		if c.groups[DriverGroup(name)] {
			asked = false // its section is at fault, which the last look at the values tells
			continue
		}
		p, err := l.inspectOne(ctx, name, values, sandbox)
		if err = errors.Join(err, p.down); err != nil {
			c.add(LevelError, "%v", err)
			asked = false
			continue
		}
		c.add(LevelOK, "driver %s: version %s, %s", name, p.Info.Version, p.Path)
		programs = append(programs, p)
	}
	if err := checkSharedSecrets(programs); err != nil {
		c.add(LevelError, "%v", err)
	}
	return programs, asked
}

// connections checks whether the options suffice to find a cluster, a cloud and OVN's database. Where one of a group is
// at fault, its other options say nothing.
func (c *Check) connections() {
	v := c.Settings.Values
	cloud, err := openstack.FromConfig(v)
	if !c.groups["neutron"] {
		if err == nil {
			err = cloud.Check()
		}
		c.tell(err, "credentials for the cloud: %s", cloud)
	}
	if !c.groups["kubernetes"] {
		rest, err := watch.RESTConfig(v, c.Settings.loader.Version)
		where := ""
		if err == nil {
			where = rest.Host
		}
		c.tell(err, "cluster: the configuration names %s", where)
		of, err := leader.FromConfig(v)
		c.tell(err, "Lease: %s/%s", of.Namespace, of.Name)
	}
	if northbound, configured := ovn.FromConfig(v); configured && !c.groups["ovn"] {
		c.tell(northbound.Validate(), "OVN's northbound database: the configuration names %s",
			strings.Join(northbound.Endpoints, ", "))
	} else if !configured {
		c.noNorthbound()
	}
}

// noNorthbound warns of drivers whose load balancers of OVN have no database to be kept in.
func (c *Check) noNorthbound() {
	for _, p := range c.Settings.Programs {
		if slices.Contains(p.Info.Kinds, drivers.KindOVNLoadBalancer) {
			c.add(LevelWarn, "driver %s makes OVN load balancers, but [ovn] nb_connection is empty: none can be made; set it",
				p.Info.Name)
		}
	}
}

// opinions asks the drivers for their own opinion of their options.
func (c *Check) opinions(ctx context.Context) {
	for _, p := range c.Settings.Programs {
		atFault := false
		for _, o := range p.Info.Options {
			atFault = atFault || c.faulty[config.Option{Group: o.Group, Name: o.Name}.Key()]
		}
		if atFault {
			continue
		}
		watches, err := c.Settings.Watches(ctx, p)
		c.tell(err, "options of driver %s; it watches %s", p.Name, watchesText(watches))
	}
}

func watchesText(watches []drivers.Watch) string {
	var list []string
	for _, w := range watches {
		if name := ResourceName(w.GVR); !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return strings.Join(list, ", ")
}
