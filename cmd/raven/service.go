// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kuryr/raven/etc"
	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/daemon"
	"github.com/kuryr/raven/service/log"
	"github.com/kuryr/raven/service/system"
)

// The exit statuses of `raven service status`, as init scripts have them.
const (
	exitStopped      = 3
	exitNotInstalled = 4
)

const serviceHelp = `Install Raven as a service of this machine, and start and stop it.

On systemd that is a unit that confines it: a user of its own, no privileges, nothing to write but its own folders.
It is the unit that packages install; where one did, it is used. On OpenRC, Upstart, procd and System V it is what
there is, as root. Raven runs on Linux only.

The flags --config-file, --config-dir, --set and --strict become part of the service's command line. Secrets need
not be in those files: what is in /etc/credstore/raven.conf, readable by root only, systemd hands to the service as
its last configuration file.

Exit statuses: 0 done, or it is so already; 1 an error, also where root is needed; 3 status: it does not run; 4 it
is not installed; 64 the command line is wrong.`

func newServiceCommand(flags *globalFlags, io streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "service",
		Short: "Install Raven as a system service, and start and stop it",
		Long:  serviceHelp,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	add := func(use, short string, do func(context.Context, *system.Manager) error) {
		cmd.AddCommand(&cobra.Command{
			Use: use, Short: short, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				m, err := flags.manager()
				if err != nil {
					return serviceError(err)
				}
				return serviceError(do(cmd.Context(), m))
			},
		})
	}
	add("install", "Make the service, and let it start with the machine; again, it takes over what has changed",
		func(ctx context.Context, m *system.Manager) error {
			if err := flags.publicSet(); err != nil {
				return err
			}
			done, err := m.Install(ctx)
			if err == nil {
				done = append(done, "start it with: raven service start")
			}
			printLines(io, done)
			return err
		})
	add("uninstall", "Stop the service and remove all of it but the configuration",
		func(ctx context.Context, m *system.Manager) error {
			done, err := m.Uninstall(ctx)
			printLines(io, done)
			return err
		})
	add("start", "Start the service and wait until it is ready",
		func(ctx context.Context, m *system.Manager) error { return m.Start(ctx) })
	add("stop", "Stop the service and wait until it has ended",
		func(ctx context.Context, m *system.Manager) error { return m.Stop(ctx) })
	add("restart", "Stop the service and start it again",
		func(ctx context.Context, m *system.Manager) error { return m.Restart(ctx) })
	cmd.AddCommand(newServiceStatusCommand(flags, io), newServiceLogsCommand(flags))
	return cmd
}

// publicSet refuses a secret on the command line of a service: everybody may read its unit and see its processes.
func (g *globalFlags) publicSet() error {
	secret := map[config.Name]bool{}
	for _, o := range daemon.Options() {
		for _, n := range append([]config.Name{o.Key()}, o.Deprecated...) {
			if n.Group == "" {
				n.Group = o.Group
			}
			if n.Name == "" {
				n.Name = o.Name
			}
			secret[config.Option{Group: n.Group, Name: n.Name}.Key()] = o.Secret
		}
	}
	for _, text := range g.set {
		group, name, _, err := splitSet(text)
		if err != nil {
			return err
		}
		key := config.Option{Group: group, Name: name}.Key()
		// a driver's are known by what they are called
		if known, declared := secret[key]; known || !declared && log.SecretName(name) {
			return statusError{exitUsage, fmt.Errorf("--set %s.%s: a service's command line can be read by everybody; put the "+
				"secret into /etc/credstore/raven.conf, or a file that --config-file names", group, name)}
		}
	}
	return nil
}

func printLines(io streams, lines []string) {
	for _, line := range lines {
		fmt.Fprintln(io.out, line)
	}
}

func newServiceStatusCommand(flags *globalFlags, io streams) *cobra.Command {
	format := "table"
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show whether the service runs; `raven status` shows what it does",
		Long: "Show whether the service runs.\n\n" +
			"Exit statuses: 0 it runs, 3 it does not, 4 it is not installed, 1 an error.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			m, err := flags.manager()
			if err != nil {
				return serviceError(err)
			}
			st, err := m.Status(cmd.Context())
			if err != nil {
				return serviceError(err)
			}
			if format != "table" {
				err = structured(io.out, format, st)
			} else {
				fmt.Fprintln(io.out, st)
			}
			if err == nil && !st.Running() {
				err = statusError{status: exitStopped}
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", format, "output `format`: table, json or yaml")
	return cmd
}

func newServiceLogsCommand(flags *globalFlags) *cobra.Command {
	o := system.LogOptions{Lines: 100}
	cmd := &cobra.Command{
		Use:   "logs",
		Short: "Show what the service has logged",
		Example: `  raven service logs -f
  raven service logs -n 0 --since today`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := flags.manager()
			if err != nil {
				return serviceError(err)
			}
			return m.Logs(cmd.Context(), o)
		},
	}
	cmd.Flags().IntVarP(&o.Lines, "lines", "n", o.Lines, "how many `lines`, the last ones; 0: all")
	cmd.Flags().BoolVarP(&o.Follow, "follow", "f", false, "go on until Ctrl-C")
	cmd.Flags().StringVar(&o.Since, "since", "", "only from this `time` on, as journalctl takes it")
	return cmd
}

func serviceError(err error) error {
	if errors.Is(err, system.ErrNotInstalled) {
		return statusError{exitNotInstalled, fmt.Errorf("%w; %q does that", err, "raven service install")}
	}
	return err
}

// manager speaks to the service manager of this machine about Raven with these flags.
func (g *globalFlags) manager() (*system.Manager, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the raven program: %w", err)
	}
	c := system.Config{
		Name: "raven", DisplayName: "Raven", Description: "Raven, the Kubernetes API watcher of Kuryr", Executable: self,
		Arguments: []string{"run"}, Unit: etc.Unit, Program: "/usr/bin/raven", Sysusers: etc.Sysusers, User: "raven",
		Kept: []string{"/var/lib/raven", "/var/log/raven"}, Shared: []string{"/etc/kuryr"},
	}
	for _, named := range []struct {
		flag  string
		paths []string
	}{{"--config-file", g.files}, {"--config-dir", g.dirs}} {
		for _, path := range named.paths {
			if path, err = filepath.Abs(path); err != nil {
				return nil, fmt.Errorf("%s: %w", named.flag, err)
			}
			if _, err := os.Stat(path); err != nil {
				return nil, fmt.Errorf("%s: %w", named.flag, err)
			}
			c.Files = append(c.Files, path)
			c.Arguments = append(c.Arguments, named.flag+"="+path)
		}
	}
	for _, text := range g.set {
		if strings.ContainsAny(text, "\n") {
			return nil, statusError{exitUsage, fmt.Errorf("--set %q: a service's command line is one line", text)}
		}
		c.Arguments = append(c.Arguments, "--set="+text)
	}
	if g.strict {
		c.Arguments = append(c.Arguments, "--strict")
	}
	return system.New(c, os.Stdout, os.Stderr)
}
