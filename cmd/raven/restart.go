// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kuryr/raven/service/daemon"
)

func newDriverRestartCommand(flags *globalFlags, io streams) *cobra.Command {
	return &cobra.Command{
		Use:   "restart NAME",
		Short: "Replace a driver's process in a running daemon, by the program that stands in its place now",
		Long: `Replace a driver's process in a running daemon on this machine, by the program that stands in its place now.
The new process is started and configured first; if that does not succeed the old one goes on. Then all of the
driver's objects are translated anew; what comes out as before is not written again. Other drivers and their watches
are not touched.

A program that declares other options, kinds, keys or watches than the old one needs a reload (SIGHUP) besides.`,
		Example: "  install -m 0755 raven-driver-pod /usr/lib/raven/plugins/ && raven driver restart pod",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runDriverRestart(cmd.Context(), flags, io, args[0])
		},
	}
}

func runDriverRestart(ctx context.Context, flags *globalFlags, out streams, name string) error {
	if err := daemon.CheckName(name); err != nil {
		return statusError{exitUsage, err}
	}
	values, err := flags.loader().LoadCore()
	if err != nil {
		return err
	}
	report, err := daemon.OrderRestart(ctx, daemon.RuntimeDir(values), name)
	if err != nil {
		return err
	}
	fmt.Fprintf(out.out, "driver %s was restarted: version %s, before %s; process %d\n", report.Driver, report.Version,
		report.Before, report.PID)
	if report.Replaced != "" {
		fmt.Fprintln(out.err, "warning: "+report.Replaced)
	}
	return nil
}
