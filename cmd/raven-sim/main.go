// SPDX-License-Identifier: Apache-2.0

// Command raven-sim runs a simulated Kubernetes API and a simulated OpenStack cloud on loopback, for trying and
// measuring Raven. It must never listen on, or talk to, anything but this machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop, hurry := stopSignals()
	status := run(ctx, hurry, os.Args[1:], &output{os.Stdout, stop}, os.Stderr)
	stop()
	os.Exit(status)
}

// stopSignals returns a context that ends with the first signal to stop, and a channel that is closed by the second.
// That a terminal was closed is a signal to stop too, so that nothing is left behind.
func stopSignals() (ctx context.Context, stop func(), hurry <-chan struct{}) {
	ctx, stop = context.WithCancel(context.Background())
	now := make(chan struct{})
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // so that writing fails instead of ending the process
	go func() {
		<-signals
		stop()
		<-signals
		close(now)
	}()
	return ctx, stop, now
}

// output is standard output; when no process reads it any more, that is a signal to stop.
type output struct {
	*os.File
	stop func()
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	n, err := o.File.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		o.stop()
	}
	return n, err
}

// run is main without the process: it returns the exit status.
func run(ctx context.Context, hurry <-chan struct{}, args []string, out, errs io.Writer) int {
	root := &cobra.Command{
		Use:   "raven-sim",
		Short: "A simulated Kubernetes API and OpenStack cloud on loopback",
		Long: `A simulated Kubernetes API and OpenStack cloud on loopback, for trying and measuring Raven.

Exit statuses: 0 done as asked, 1 an error, which is printed.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(out)
	root.SetErr(errs)
	//nolint:contextcheck // the command has its own
	root.AddCommand(newServeCommand(), newDemoCommand(hurry), newBenchCommand(hurry), newTryCommand(hurry))
	root.SetArgs(args)
	if err := root.ExecuteContext(ctx); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(errs, "raven-sim: "+err.Error())
		return 1
	}
	return 0
}
