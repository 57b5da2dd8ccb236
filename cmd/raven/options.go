package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service"
	"github.com/kuryr/raven/service/backdoor"
	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/health"
	"github.com/kuryr/raven/service/host"
	"github.com/kuryr/raven/service/leader"
	"github.com/kuryr/raven/service/log"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/ovn"
	"github.com/kuryr/raven/service/watch"
	"github.com/kuryr/raven/service/writeback"
)

const declarer = "kuryr.raven"

// The group of Raven's own options.
const ravenGroup = "raven"

func num(f float64) *float64 { return &f }

// ravenOptions are the options that the wiring itself uses.
func ravenOptions() []config.Option {
	return []config.Option{
		{
			Group: ravenGroup, Name: "drivers", Type: config.List, Default: "namespace,pod", Pattern: driverName, Declarer: declarer,
			Help: "The drivers to run, by name: each is a program raven-driver-<name>, looked for in plugin_dir and then " +
				"beside the raven program.",
		},
		{
			Group: ravenGroup, Name: "plugin_dir", Declarer: declarer, Default: "/usr/lib/raven/plugins",
			Help: "The folder with drivers from outside. It need not exist.",
		},
		{
			Group: ravenGroup, Name: "runtime_dir", Declarer: declarer, SampleDefault: "$XDG_RUNTIME_DIR/raven",
			Help: "The folder for sockets, made with mode 0700 if need be. Its path must be short: a socket's path has " +
				"at most 108 bytes. Default: raven below $RUNTIME_DIRECTORY, $XDG_RUNTIME_DIR or the folder for temporary files.",
		},
		{
			Group: ravenGroup, Name: "cluster_name", Declarer: declarer,
			Help: "A name of this cluster for people. Identity never rests on it.",
		},
		{
			Group: ravenGroup, Name: "cluster_id", Declarer: declarer,
			Help: "What tells this cluster's resources from those of others in the same cloud project. Default: the UID of " +
				"namespace kube-system. Changing it abandons what was made under the old one.",
		},
		{
			Group: ravenGroup, Name: "concurrency", Type: config.Integer, Default: "1024", Min: num(1), Max: num(100000),
			Advanced: true, Declarer: declarer,
			Help: "How many objects of one driver are worked on at once. Requests to the cloud are bounded by [neutron].",
		},
		{
			Group: ravenGroup, Name: "drift_check_interval", Type: config.Duration, Default: "300", Min: num(1), Declarer: declarer,
			Help: "The time between two checks of the cloud for changes that somebody else made, in seconds: a few lists per kind.",
		},
		{
			Group: ravenGroup, Name: "sweep_interval", Type: config.Duration, Default: "60", Min: num(1), Declarer: declarer,
			Help: "The time between two looks for resources whose objects are gone, in seconds.",
		},
		{
			Group: ravenGroup, Name: "sweep_limit", Type: config.Integer, Default: "100", Min: num(1), Advanced: true, Declarer: declarer,
			Help: "How many vanished objects one look clears up at most.",
		},
		{
			Group: ravenGroup, Name: "max_replay_deletes", Type: config.Integer, Default: "20", Min: num(0), Declarer: declarer,
			Help: "How many resources of objects that still exist may be deleted on a driver's word after it, or Raven, was " +
				"started anew. More is held back until an operator raises this; `raven plan` shows it.",
		},
		{
			Group: ravenGroup, Name: "max_replay_delete_share", Type: config.Float, Default: "0.1", Min: num(0), Max: num(1), Declarer: declarer,
			Help: "The same bound as a share of the driver's resources. The lower of the two holds, but ten deletions always pass if " +
				"max_replay_deletes lets them: in a small cluster a few pods are a large share.",
		},
		{
			Group: ravenGroup, Name: "translate_timeout", Type: config.Duration, Default: "30", Min: num(1), Advanced: true, Declarer: declarer,
			Help: "How long a driver may take over one object, in seconds.",
		},
	}
}

// laterOptions are options that operators know from kuryr-kubernetes and that have no effect here yet.
func laterOptions() []config.Option {
	const why = "Raven keeps no pool of ports: it creates ports in bulk when pods need them"
	later := func(name, value, help string) config.Option {
		return config.Option{
			Group: "vif_pool", Name: name, Type: config.Integer, Default: value, Help: help, NoEffect: why, Advanced: true,
			Declarer: declarer,
		}
	}
	const made = "neutron_defaults"
	return []config.Option{
		{
			Group: made, Name: "resource_tags", Type: config.List, Advanced: true, Declarer: declarer, Help: "Tags of all that is made.",
			NoEffect: "Raven marks what it makes by tags of its own, raven:cluster= and others; tags that an operator adds stay",
		},
		{
			Group: made, Name: "project", Advanced: true, Declarer: declarer, Help: "The project of what is made.",
			NoEffect: "it is that of the credentials in [neutron]",
		},
		{
			Group: made, Name: "pod_subnet", Advanced: true, Declarer: declarer, Help: "One subnet for all pods.",
			NoEffect: "every namespace has a subnet, from [namespace_subnet] pod_subnet_pool or cluster_subnet_pool",
		},
		later("ports_pool_max", "0", "The most ports that a pool keeps. 0 is no bound."),
		later("ports_pool_min", "5", "The fewest ports that a pool keeps."),
		later("ports_pool_batch", "10", "How many ports are made at once."),
		later("ports_pool_update_frequency", "20", "The time between two looks at a pool, in seconds."),
	}
}

// coreOptions are all options but those of drivers.
func coreOptions() []config.Option {
	return slices.Concat(
		ravenOptions(), sandboxOptions(), service.Options(), backdoor.Options(), log.Options(), health.Options(), watch.Options(), leader.Options(), writeback.Options(), openstack.Options(), ovn.Options(),
		laterOptions(),
	)
}

// driverOption is a driver's option in terms of the configuration.
func driverOption(driver string, o drivers.Option) config.Option {
	option := config.Option{
		Group: o.Group, Name: o.Name, Type: config.Type(o.Type), Default: o.Default, HasDefault: o.HasDefault, Help: o.Help,
		Choices: o.Choices, ChoiceHelp: o.ChoiceHelp, Min: o.Min, Max: o.Max, Secret: o.Secret, Required: o.Required, Env: o.Env,
		Item: config.Type(o.Item), Pattern: o.Pattern, IgnoreCase: o.IgnoreCase, MaxLength: o.MaxLength, Schemes: o.Schemes,
		IPVersion: o.IPVersion, SampleDefault: o.SampleDefault, Advanced: o.Advanced, DeprecatedForRemoval: o.DeprecatedForRemoval,
		DeprecatedSince: o.DeprecatedSince, Reason: o.DeprecatedReason, Declarer: "driver " + driver,
	}
	for _, d := range o.Deprecated {
		option.Deprecated = append(option.Deprecated, config.Name{Group: d[0], Name: d[1]})
	}
	return option
}

// driverProgram is an enabled driver, found and asked for what it declares.
type driverProgram struct {
	name      string
	path      string
	args      []string
	authority authority
	// runtimeDir is the folder for its socket.
	runtimeDir string
	sandbox    *host.Sandbox
	info       drivers.Info
	// down says why it could not be asked: info is empty then.
	down error
}

// loaded is a configuration with the drivers that it enables.
type loaded struct {
	values   *config.Values
	warnings []config.Warning
	programs []driverProgram
	sources  config.Sources
}

// sources returns where the configuration comes from.
func (g *globalFlags) sources() (config.Sources, error) {
	s := config.Sources{Environ: os.Environ(), Files: g.files, Dirs: g.dirs, Strict: g.strict, Args: map[config.Name][]string{}}
	for _, text := range g.set {
		group, name, value, err := splitSet(text)
		if err != nil {
			return s, err
		}
		key := config.Name{Group: group, Name: name}
		s.Args[key] = append(s.Args[key], value)
	}
	home, _ := os.UserHomeDir()
	s = s.WithDefaults(home, "/etc")
	if dir := os.Getenv("CREDENTIALS_DIRECTORY"); dir != "" {
		s.Dirs = append(s.Dirs, dir) // what systemd hands over: *.conf there win over all other files
	}
	return s, nil
}

// load reads the configuration in rounds: the first says which drivers there are, the second which programs they are, and they
// say which further options there are. All drivers must start for that.
func (g *globalFlags) load(ctx context.Context) (*loaded, error) {
	return g.loadDespite(ctx, func(string) bool { return false })
}

// loadDespite is load that goes on without drivers that do not start now, where without says so: what is set of their options is passed over.
func (g *globalFlags) loadDespite(ctx context.Context, without func(driver string) bool) (*loaded, error) {
	sources, err := g.sources()
	if err != nil {
		return nil, err
	}
	programs, err := enabled(ctx, sources)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(programs))
	for _, p := range programs {
		names = append(names, p.name)
	}
	options := append(coreOptions(), authorityOptions(names)...)
	for _, p := range programs {
		if p.down != nil && !without(p.name) {
			return nil, p.down
		}
		for _, o := range p.info.Options {
			options = append(options, driverOption(p.name, o))
		}
	}
	if slices.ContainsFunc(programs, driverProgram.isDown) {
		sources.Strict = false
		sources = known(sources, options)
	}
	values, warnings, err := config.Load(sources, options)
	if err != nil {
		return nil, err
	}
	return &loaded{values: values, warnings: warnings, programs: programs, sources: sources}, nil
}

// enabled finds the drivers that the configuration enables, by the first two rounds.
func enabled(ctx context.Context, sources config.Sources) ([]driverProgram, error) {
	programs, err := enabledBy(ctx, sources, coreOptions())
	if err == nil {
		return programs, nil
	}
	// An option elsewhere is wrong, or a driver is. In the former case the drivers can be asked nevertheless, and the last round
	// finds everything that is wrong at once.
	if programs, again := enabledBy(ctx, sources, placeOptions()); again == nil {
		return programs, nil
	}
	return nil, err
}

// placeOptions are those that finding and asking the drivers takes.
func placeOptions() []config.Option {
	return append(slices.DeleteFunc(ravenOptions(), func(o config.Option) bool {
		return !slices.Contains([]string{"drivers", "plugin_dir", "runtime_dir"}, o.Name)
	}), sandboxOptions()...)
}

func enabledBy(ctx context.Context, sources config.Sources, options []config.Option) ([]driverProgram, error) {
	sources.Strict = false
	first, _, err := config.Load(known(sources, options), options)
	if err != nil {
		return nil, err
	}
	names := first.List(ravenGroup, "drivers")
	options = append(options, authorityOptions(names)...)
	second, _, err := config.Load(known(sources, options), options)
	if err != nil {
		return nil, err
	}
	return inspectAll(ctx, names, second)
}

// loadCore reads what needs no driver.
func loadCore(sources config.Sources) (*config.Values, error) {
	sources.Strict = false
	values, _, err := config.Load(known(sources, coreOptions()), coreOptions())
	return values, err
}

// known drops command line values of options that only a later round knows.
func known(s config.Sources, options []config.Option) config.Sources {
	args := map[config.Name][]string{}
	for _, o := range options {
		if v, ok := s.Args[o.Key()]; ok {
			args[o.Key()] = v
		}
	}
	s.Args = args
	return s
}

// inspect finds drivers and asks each for what it declares.
func inspect(ctx context.Context, names []string, v *config.Values) ([]driverProgram, error) {
	programs, err := inspectAll(ctx, names, v)
	if err != nil {
		return nil, err
	}
	for _, p := range programs {
		if p.down != nil {
			return nil, p.down
		}
	}
	return programs, nil
}

// inspectAll is inspect that notes which drivers do not start.
func inspectAll(ctx context.Context, names []string, v *config.Values) ([]driverProgram, error) {
	if len(names) == 0 {
		return nil, fmt.Errorf("[%s] drivers is empty: name at least one, for example namespace,pod", ravenGroup)
	}
	sandbox, err := sandboxFrom(v)
	if err != nil {
		return nil, err
	}
	programs := make([]driverProgram, len(names))
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		if err := checkName(name); err != nil {
			return nil, err
		}
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("[%s] drivers names %q twice", ravenGroup, name)
		}
		wg.Go(func() {
			programs[i], errs[i] = inspectOne(ctx, name, v, sandbox)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return programs, checkSharedSecrets(programs)
}

func inspectOne(ctx context.Context, name string, v *config.Values, sandbox *host.Sandbox) (driverProgram, error) {
	p := driverProgram{name: name, authority: authorityOf(v, name), runtimeDir: runtimeDir(v), sandbox: sandbox}
	if p.authority.attach != "" && !v.Bool(ravenGroup, "allow_attach") {
		return p, fmt.Errorf("driver(%s): it is to be attached to at %s, which [%s] allow_attach = true must allow", name, p.authority.attach, ravenGroup)
	}
	var err error
	if p.path = p.authority.attach; p.path == "" {
		p.path, p.args, err = p.authority.program(name, v.String(ravenGroup, "plugin_dir"))
	}
	if err != nil {
		return p, err
	}
	plugin, err := host.Launch(ctx, p.launch(nil))
	if errors.Is(err, host.ErrNotStarted) {
		p.down = err
		return p, nil
	}
	if err != nil {
		return p, err
	}
	p.info = plugin.Info()
	return p, errors.Join(p.authority.checkInfo(name, p.info), checkDeclared(name, p.info), plugin.Stop(ctx))
}

func (p driverProgram) isDown() bool { return p.down != nil }

// launch is how the driver is launched, without what the caller adds.
func (p driverProgram) launch(values drivers.Values) host.Config {
	var accepted *drivers.Info
	if p.info.Name != "" { // it was inspected, and this is what was accepted of it
		accepted = &p.info
	}
	return host.Config{
		Accepted: accepted,
		Name:     p.name, Path: p.path, Args: p.args, SHA256: p.authority.sha256, CoreVersion: version, Values: values,
		RuntimeDir: p.runtimeDir, Sandbox: p.sandbox, AllowRead: p.authority.allowRead,
		Attach: p.authority.attach,
	}
}

// valuesFor picks what a driver declared, and nothing else.
func (l *loaded) valuesFor(p driverProgram) drivers.Values {
	options := make([]config.Option, 0, len(p.info.Options))
	for _, o := range p.info.Options {
		options = append(options, driverOption(p.name, o))
	}
	picked := drivers.Values{}
	for group, values := range l.values.Pick(options) {
		for name, value := range values {
			if d, ok := value.(time.Duration); ok { // drivers know no time, only numbers
				values[name] = d.Seconds()
			}
		}
		picked[group] = values
	}
	return picked
}

// runtimeDir returns the folder for sockets.
func runtimeDir(v *config.Values) string {
	if dir := v.String(ravenGroup, "runtime_dir"); dir != "" {
		return dir
	}
	for _, name := range []string{"RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"} {
		if dir, _, _ := strings.Cut(os.Getenv(name), ":"); dir != "" {
			return dir + "/raven"
		}
	}
	return fmt.Sprintf("%s/raven-%d", strings.TrimSuffix(os.TempDir(), "/"), os.Getuid())
}
