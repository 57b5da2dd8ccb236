// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kuryr/raven/service"
	"github.com/kuryr/raven/service/daemon"
	"github.com/kuryr/raven/service/log"
)

func newRunCommand(flags *globalFlags, out streams) *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Run the daemon",
		Long: `Run the daemon in the foreground: watch the cluster, and keep the cloud in step.

Signals:
  SIGTERM, SIGINT  cancel every watch task, close connections, drain and stop the drivers, inside
                   graceful_shutdown_timeout; a second one ends at once
  SIGHUP           read the configuration again; restart_method says whether to stop and go on with it, or to take
                   over the mutable options in place; a bad one is logged and the old one stays

Exit statuses: 0 stopped as asked, 1 an error, 130 and 143 ended at once by a second SIGINT or SIGTERM.`,
		Example: `  raven run
  raven run --config-file /etc/kuryr/kuryr.conf
  raven run --set DEFAULT.debug=true --set raven.drivers=namespace,pod`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDaemon(cmd.Context(), flags, out) },
	}
}

func runDaemon(ctx context.Context, flags *globalFlags, out streams) error {
	daemon.PaceGarbageCollection()
	// From here on a signal is either heard by the daemon or ends the load: none gets lost between them, nor ends the
	// process.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	d, err := daemon.New(ctx, daemon.Config{
		Loader: flags.loader(), Signals: signals, Notify: service.NewNotifier(os.Getenv),
		Stderr: out.err, Color: log.Terminal(os.Stderr, os.Getenv),
	})
	if ctx.Err() != nil && err != nil {
		return nil // stopped as asked, before there was anything to stop
	}
	if err != nil {
		return err
	}
	if err := d.Run(ctx); err != nil {
		return statusError{service.ExitStatus(err), err}
	}
	return nil
}
