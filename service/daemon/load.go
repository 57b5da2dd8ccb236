// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/host"
)

// Program is an enabled driver, found and asked for what it declares.
type Program struct {
	Name      string
	Path      string
	Args      []string
	Authority Authority
	// runtimeDir is the folder for its socket.
	runtimeDir string
	Sandbox    *host.Sandbox
	version    string   // Raven's
	enabled    []string // all drivers that are
	// startTimeout is how long its start may take; 0: the host's default.
	startTimeout time.Duration
	Info         drivers.Info
	// down says why it could not be asked: info is empty then.
	down error
}

// Loader reads the configuration, and asks the drivers that it enables for what they declare.
type Loader struct {
	// Sources says where the configuration is; it is asked at each load.
	Sources func() (config.Sources, error)
	// Version is Raven's, for drivers and for the Kubernetes API.
	Version string
	// DriverStartTimeout is how long the start of a driver's process may take; 0: as host.Timeouts has it.
	DriverStartTimeout time.Duration
}

// Settings is a configuration with the drivers that it enables.
type Settings struct {
	Values   *config.Values
	Warnings []config.Warning
	Programs []Program
	sources  config.Sources
	loader   Loader
}

// Load reads the configuration in rounds: the first says which drivers there are, the second which programs they are,
// and they say which further options there are. All drivers must start for that.
func (l Loader) Load(ctx context.Context) (*Settings, error) {
	return l.loadDespite(ctx, func(string) bool { return false })
}

// loadDespite is Load that goes on without drivers that do not start now, where without says so: what is set of their
// options is passed over.
func (l Loader) loadDespite(ctx context.Context, without func(driver string) bool) (*Settings, error) {
	sources, err := l.Sources()
	if err != nil {
		return nil, err
	}
	programs, err := l.enabled(ctx, sources)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(programs))
	for _, p := range programs {
		names = append(names, p.Name)
	}
	options := append(Options(), authorityOptions(names)...)
	for _, p := range programs {
		if p.down != nil && !without(p.Name) {
			return nil, p.down
		}
		for _, o := range p.Info.Options {
			options = append(options, driverOption(p.Name, o))
		}
	}
	if slices.ContainsFunc(programs, Program.isDown) {
		sources.Strict = false
		sources = known(sources, options)
	}
	values, warnings, err := config.Load(sources, options)
	if err != nil {
		return nil, err
	}
	return &Settings{Values: values, Warnings: warnings, Programs: programs, sources: sources, loader: l}, nil
}

// Enabled finds the drivers that the configuration enables, by the first two rounds.
func (l Loader) Enabled(ctx context.Context) ([]Program, error) {
	sources, err := l.Sources()
	if err != nil {
		return nil, err
	}
	return l.enabled(ctx, sources)
}

func (l Loader) enabled(ctx context.Context, sources config.Sources) ([]Program, error) {
	programs, err := l.enabledBy(ctx, sources, Options())
	if err == nil {
		return programs, nil
	}
	// An option elsewhere is wrong, or a driver is. In the former case the drivers can be asked nevertheless, and the
	// last round finds everything that is wrong at once.
	if programs, again := l.enabledBy(ctx, sources, placeOptions()); again == nil {
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

func (l Loader) enabledBy(ctx context.Context, sources config.Sources, options []config.Option) ([]Program, error) {
	sources.Strict = false
	first, _, err := config.Load(known(sources, options), options)
	if err != nil {
		return nil, err
	}
	names := first.List(OptionGroup, "drivers")
	options = append(options, authorityOptions(names)...)
	second, _, err := config.Load(known(sources, options), options)
	if err != nil {
		return nil, err
	}
	return l.inspectAll(ctx, names, second)
}

// LoadCore reads what needs no driver.
func (l Loader) LoadCore() (*config.Values, error) {
	sources, err := l.Sources()
	if err != nil {
		return nil, err
	}
	sources.Strict = false
	values, _, err := config.Load(known(sources, Options()), Options())
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
func (l Loader) inspect(ctx context.Context, names []string, v *config.Values) ([]Program, error) {
	programs, err := l.inspectAll(ctx, names, v)
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
func (l Loader) inspectAll(ctx context.Context, names []string, v *config.Values) ([]Program, error) {
	if len(names) == 0 {
		return nil, fmt.Errorf("[%s] drivers is empty: name at least one, for example namespace,pod", OptionGroup)
	}
	sandbox, err := sandboxFrom(v)
	if err != nil {
		return nil, err
	}
	programs := make([]Program, len(names))
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		if err := CheckName(name); err != nil {
			return nil, err
		}
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("[%s] drivers names %q twice", OptionGroup, name)
		}
		wg.Go(func() {
			programs[i], errs[i] = l.inspectOne(ctx, name, v, sandbox)
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

func (l Loader) inspectOne(
	ctx context.Context, name string, v *config.Values, sandbox *host.Sandbox,
) (Program, error) {
	p := Program{
		Name: name, Authority: authorityOf(v, name), runtimeDir: RuntimeDir(v), Sandbox: sandbox,
		version: l.Version, enabled: v.List(OptionGroup, "drivers"), startTimeout: l.DriverStartTimeout,
	}
	if p.Authority.attach != "" && !v.Bool(OptionGroup, "allow_attach") {
		return p, fmt.Errorf("driver(%s): it is to be attached to at %s, which [%s] allow_attach = true must allow", name,
			p.Authority.attach, OptionGroup)
	}
	var err error
	if p.Path = p.Authority.attach; p.Path == "" {
		p.Path, p.Args, err = p.Authority.program(name, v.String(OptionGroup, "plugin_dir"))
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
	p.Info = plugin.Info()
	return p, errors.Join(p.Authority.checkInfo(name, p.Info), CheckDeclared(name, p.Info), plugin.Stop(ctx))
}

func (p Program) isDown() bool { return p.down != nil }

// launch is how the driver is launched, without what the caller adds.
func (p Program) launch(values drivers.Values) host.Config {
	var accepted *drivers.Info
	if p.Info.Name != "" { // it was inspected, and this is what was accepted of it
		accepted = &p.Info
	}
	return host.Config{
		Accepted: accepted,
		Name:     p.Name, Path: p.Path, Args: p.Args, SHA256: p.Authority.SHA256, CoreVersion: p.version, Values: values,
		Enabled:    p.enabled,
		RuntimeDir: p.runtimeDir, Sandbox: p.Sandbox, AllowRead: p.Authority.allowRead,
		Attach: p.Authority.attach, Timeouts: host.Timeouts{Start: p.startTimeout},
	}
}

// valuesFor picks what a driver declared, and nothing else.
func (l *Settings) valuesFor(p Program) drivers.Values {
	options := make([]config.Option, 0, len(p.Info.Options))
	for _, o := range p.Info.Options {
		options = append(options, driverOption(p.Name, o))
	}
	picked := drivers.Values{}
	for group, values := range l.Values.Pick(options) {
		for name, value := range values {
			if d, ok := value.(time.Duration); ok { // drivers know no time, only numbers
				values[name] = d.Seconds()
			}
		}
		picked[group] = values
	}
	return picked
}

// Launch starts a driver for a command, with its options as the configuration has them. The caller stops it.
func (l *Settings) Launch(ctx context.Context, p Program, log *slog.Logger) (*host.Plugin, error) {
	c := p.launch(l.valuesFor(p))
	c.Logger = log
	return host.Launch(ctx, c)
}

// Watches asks a driver what it would watch with its options as the configuration has them, and checks that the
// operator allows it.
func (l *Settings) Watches(ctx context.Context, p Program) ([]drivers.Watch, error) {
	plugin, err := l.Launch(ctx, p, nil)
	if err != nil {
		return nil, err
	}
	watches := plugin.Watches()
	return watches, errors.Join(p.Authority.checkWatches(p.Name, watches), plugin.Stop(ctx))
}
