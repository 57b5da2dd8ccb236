// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/daemon"
	"github.com/kuryr/raven/service/leader"
)

func newConfigCommand(flags *globalFlags, io streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show, check and sample the configuration, the drivers' options included",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use: "sample",
		Short: "Print a sample kuryr.conf with every option of Raven and of the drivers that are installed, or enabled " +
			"by the flags",
		Example: "  raven config sample > kuryr.conf.sample\n  raven config sample --set raven.plugin_dir=$PWD --set " +
			"raven.drivers=mine",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options, err := flags.loader().InstalledOptions(cmd.Context(), flags.given())
			if err != nil {
				return err
			}
			return config.Sample(io.out, options, daemon.OptionGroups()...)
		},
	}, newValidateCommand(flags, io), &cobra.Command{
		Use: "docs",
		Short: "Print a reference of every option of Raven and of the drivers that are installed, or enabled by the " +
			"flags, in Markdown",
		Example: "  raven config docs > options.md",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options, err := flags.loader().InstalledOptions(cmd.Context(), flags.given())
			if err != nil {
				return err
			}
			return config.Docs(io.out, options, daemon.OptionGroups()...)
		},
	})
	cmd.AddCommand(configShowCommands(flags, io)...)
	return cmd
}

// configShowCommands print the values that are in force.
func configShowCommands(flags *globalFlags, io streams) []*cobra.Command {
	return []*cobra.Command{{
		Use:     "show",
		Short:   "Print every option's value and where it comes from, secrets masked",
		Example: "  raven config show | grep neutron",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := flags.loader().Load(cmd.Context())
			if err != nil {
				return err
			}
			return l.Values.Show(io.out)
		},
	}, {
		Use:     "diff-default",
		Short:   "Print the options whose value is not the default, with the default",
		Example: "  raven config diff-default --config-file kuryr.conf",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := flags.loader().Load(cmd.Context())
			if err != nil {
				return err
			}
			return l.Values.ShowChanged(io.out)
		},
	}}
}

func newValidateCommand(flags *globalFlags, io streams) *cobra.Command {
	var online bool
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check the configuration and print everything that is wrong with it",
		Long: `Check values, sections, drivers, credentials and the drivers' own opinion of their options, all in one answer.
Each line begins with ok, warn or error, and says what to do. Without --online nothing is asked of a cluster or a
cloud.

Exit statuses: 0 there are no errors, 1 there are.`,
		Example: `  raven config validate --strict --config-file kuryr.conf
  raven config validate --online`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runValidate(cmd.Context(), flags, io, online)
		},
	}
	cmd.Flags().BoolVar(&online, "online", false, "also log in to the cloud, look at its catalog, quota and external "+
		"network, ask the cluster for this account's permissions, and connect to OVN; nothing is changed")
	return cmd
}

// runValidate prints what a check of the configuration found.
func runValidate(ctx context.Context, flags *globalFlags, io streams, online bool) error {
	check := flags.loader().Check(ctx)
	if online && check.Settings != nil {
		account := rbacAccount{namespace: leader.OwnNamespace()}
		needed, err := neededRights(ctx, check.Settings, account)
		if err != nil {
			needed = nil // the driver's refusal is among the findings
		}
		check.Online(ctx, needed.list())
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	colours := map[daemon.Level]string{daemon.LevelOK: green, daemon.LevelWarn: yellow, daemon.LevelError: red}
	for _, f := range check.Findings {
		fmt.Fprintf(io.out, "%s %s\n", io.paint(colours[f.Level], fmt.Sprintf("%-5s", f.Level)), f.Message)
	}
	switch n := check.Errors(); n {
	case 0:
	case 1:
		return errors.New("the configuration has 1 error, which is above")
	default:
		return fmt.Errorf("the configuration has %d errors, which are above", n)
	}
	fmt.Fprintln(io.out, "The configuration is valid.")
	return nil
}

// warn prints what an operator should fix in the configuration.
func warn(io streams, warnings []config.Warning) {
	for _, w := range warnings {
		fmt.Fprintln(io.err, "warning: "+w.String())
	}
}

// statusAddress returns where the daemon of this configuration serves its status. No driver is started for it.
func (g *globalFlags) statusAddress() (string, error) {
	values, err := g.loader().LoadCore()
	if err != nil {
		return "", err
	}
	return hostPort(values.String("health_server", "host"), values.Int("health_server", "port")), nil
}
