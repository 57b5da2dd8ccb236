package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/host"
	"github.com/kuryr/raven/service/leader"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/watch"
)

func newConfigCommand(flags *globalFlags, io streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show, check and sample the configuration, the drivers' options included",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:     "sample",
		Short:   "Print a sample kuryr.conf with every option of Raven and of the drivers that are installed, or enabled by the flags",
		Example: "  raven config sample > kuryr.conf.sample\n  raven config sample --set raven.plugin_dir=$PWD --set raven.drivers=mine",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options, err := installedOptions(cmd.Context(), flags)
			if err != nil {
				return err
			}
			return config.Sample(io.out, options, optionGroups()...)
		},
	}, &cobra.Command{
		Use:     "validate",
		Short:   "Check the configuration and print everything that is wrong with it",
		Example: "  raven config validate --strict --config-file kuryr.conf",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runValidate(cmd.Context(), flags, io)
		},
	}, &cobra.Command{
		Use:     "show",
		Short:   "Print every option's value and where it comes from, secrets masked",
		Example: "  raven config show | grep neutron",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := flags.load(cmd.Context())
			if err != nil {
				return err
			}
			return l.values.Show(io.out)
		},
	}, &cobra.Command{
		Use:     "diff-default",
		Short:   "Print the options whose value is not the default, with the default",
		Example: "  raven config diff-default --config-file kuryr.conf",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := flags.load(cmd.Context())
			if err != nil {
				return err
			}
			return l.values.ShowChanged(io.out)
		},
	}, &cobra.Command{
		Use:     "docs",
		Short:   "Print a reference of every option of Raven and of the drivers that are installed, or enabled by the flags, in Markdown",
		Example: "  raven config docs > options.md",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options, err := installedOptions(cmd.Context(), flags)
			if err != nil {
				return err
			}
			return config.Docs(io.out, options, optionGroups()...)
		},
	})
	return cmd
}

// runValidate checks all that can be checked without reaching out: the options, the drivers' own opinion of theirs, and whether
// they suffice to find a cluster and a cloud.
func runValidate(ctx context.Context, flags *globalFlags, io streams) error {
	l, err := flags.load(ctx)
	if err != nil {
		return err
	}
	l.warn(io)
	var problems []error
	cloud, err := openstack.FromConfig(l.values)
	if err == nil {
		err = cloud.Validate()
	}
	problems = append(problems, err)
	_, err = watch.RESTConfig(l.values, version)
	problems = append(problems, err)
	if leader.Enabled(l.values) {
		_, err = leader.FromConfig(l.values, cloud.Timeout)
		problems = append(problems, err)
	}
	for _, p := range l.programs {
		plugin, err := host.Launch(ctx, p.launch(l.valuesFor(p)))
		if err == nil {
			err = errors.Join(p.authority.checkWatches(p.name, plugin.Watches()), plugin.Stop(ctx))
		}
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	fmt.Fprintln(io.out, "The configuration is valid.")
	return nil
}

// warn prints what an operator should mend in the configuration.
func (l *loaded) warn(io streams) {
	for _, w := range l.warnings {
		fmt.Fprintln(io.err, "warning: "+w.String())
	}
}

// installedOptions are the options of the core and of every driver beside the raven program; where a configuration is named on the
// command line, of the drivers that it enables as well.
func installedOptions(ctx context.Context, flags *globalFlags) ([]config.Option, error) {
	names, err := installed()
	if err != nil {
		return nil, err
	}
	sources := config.Sources{}
	if len(flags.files)+len(flags.dirs)+len(flags.set) > 0 {
		if sources, err = flags.sources(); err != nil {
			return nil, err
		}
		core, err := loadCore(sources)
		if err != nil {
			return nil, err
		}
		for _, name := range core.List(ravenGroup, "drivers") {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	sources.Strict = false
	options := append(coreOptions(), authorityOptions(names)...)
	values, _, err := config.Load(known(sources, options), options)
	if err != nil {
		return nil, err
	}
	programs, err := inspect(ctx, names, values)
	if err != nil {
		return nil, err
	}
	for _, p := range programs {
		for _, o := range p.info.Options {
			options = append(options, driverOption(p.name, o))
		}
	}
	return options, nil
}

// programPrefix is what the name of a driver's program begins with.
const programPrefix = "raven-driver-"

// installed lists the drivers beside the raven program.
func installed() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the drivers beside the raven program: %w", err)
	}
	paths, err := filepath.Glob(filepath.Join(filepath.Dir(self), programPrefix+"*"))
	if err != nil {
		return nil, fmt.Errorf("finding the drivers beside the raven program: %w", err)
	}
	names := make([]string, 0, len(paths))
	for _, path := range paths {
		names = append(names, strings.TrimPrefix(filepath.Base(path), programPrefix))
	}
	slices.Sort(names)
	if len(names) == 0 {
		return nil, fmt.Errorf("there are no programs %s* in %s", programPrefix, filepath.Dir(self))
	}
	return names, nil
}

func optionGroups() []config.Group {
	return []config.Group{
		{Name: "raven", Help: "Raven itself: which drivers run and how the loop behaves."},
		{Name: "kubernetes", Help: "How the Kubernetes API is reached."},
		{Name: "neutron", Help: "How the OpenStack cloud is reached, by the keystoneauth options."},
		{Name: "neutron_defaults", Help: "What resources are made with."},
		{Name: "namespace_subnet", Help: "The networks of namespaces."},
		{Name: "octavia_defaults", Help: "The load balancers of Services."},
	}
}

// statusAddress returns where the daemon of this configuration serves its status. No driver is started for it.
func (g *globalFlags) statusAddress() (string, error) {
	sources, err := g.sources()
	if err != nil {
		return "", err
	}
	values, err := loadCore(sources)
	if err != nil {
		return "", err
	}
	return hostPort(values.String("health_server", "host"), values.Int("health_server", "port")), nil
}
