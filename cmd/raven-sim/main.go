// Command raven-sim runs a simulated Kubernetes API and a simulated OpenStack cloud on loopback, for trying and measuring
// Raven. It must never listen on, or talk to, anything but this machine.
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
	ctx, hurry, release := stopSignals()
	status := run(ctx, hurry, os.Args[1:], os.Stdout, os.Stderr)
	release()
	os.Exit(status)
}

// stopSignals returns a context that ends with the first signal to stop, and a channel that is closed by the second. A terminal
// that was closed and an output that nobody reads any more are signals to stop too, so that nothing is left behind.
func stopSignals() (ctx context.Context, hurry <-chan struct{}, release func()) {
	ctx, cancel := context.WithCancel(context.Background())
	now := make(chan struct{})
	signals, pipe := make(chan os.Signal, 2), make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	signal.Notify(pipe, syscall.SIGPIPE)
	go func() {
		for seen := 0; seen < 2; {
			select {
			case <-pipe:
			case <-signals:
				seen++
			}
			cancel()
		}
		close(now)
	}()
	return ctx, now, cancel
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
	root.AddCommand(newServeCommand(), newDemoCommand(hurry), newBenchCommand(hurry))
	root.SetArgs(args)
	if err := root.ExecuteContext(ctx); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(errs, "raven-sim: "+err.Error())
		return 1
	}
	return 0
}
