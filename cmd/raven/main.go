// SPDX-License-Identifier: Apache-2.0

// Command raven watches a Kubernetes API and keeps an OpenStack cloud's network in step with it. It must never do more
// than wire the packages of service together and talk to people.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kuryr/raven/service/host"
	"github.com/kuryr/raven/service/host/confine"
)

// The exit statuses.
const (
	exitOK      = 0
	exitError   = 1
	exitChanges = 2 // raven plan: there is something to do
	exitUsage   = 64

	exitInterrupted = 130 // a command other than run was ended by a signal
)

// version is set by the build.
var version = "dev"

// exitError carries an exit status; an empty message was printed already.
type statusError struct {
	status int
	err    error
}

func (s statusError) Error() string {
	if s.err == nil {
		return ""
	}
	return s.err.Error()
}

func (s statusError) Unwrap() error { return s.err }

func main() {
	if confine.Called(os.Args) {
		confine.Main(os.Args) // this process becomes a driver
	}
	if err := host.Shield(); err != nil {
		fmt.Fprintln(os.Stderr, "raven: "+err.Error())
		os.Exit(exitError)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], standardStreams())
	stop()
	os.Exit(status)
}

// run is main without the process: it returns the exit status.
func run(ctx context.Context, args []string, io streams) int {
	root := newRoot(io) //nolint:contextcheck // commands get theirs from cobra
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	status := exitError
	var s statusError
	switch {
	case errors.As(err, &s):
		status = s.status // run's among them, which hears signals itself
	case ctx.Err() != nil:
		status = exitInterrupted
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(io.err, "raven: "+text)
	}
	return status
}

const rootHelp = `Raven watches a Kubernetes API and keeps an OpenStack cloud's network in step with it:
namespaces become networks, subnets and routers; pods become ports. Services become load balancers when one of the
drivers lbaas (Octavia) and kubeproxy (OVN) is enabled; neither is by default: raven run --set
raven.drivers=namespace,pod,lbaas

Exit statuses:
  0    done as asked; for plan: nothing to do
  1    an error, which is printed
  2    plan: there are changes; cleanup: there is something to remove; policy explain: closed
  3    policy explain: policies and cloud differ
  64   the command line is wrong
  130  ended by a signal; for run see its help`

func newRoot(io streams) *cobra.Command {
	flags := &globalFlags{}
	root := &cobra.Command{
		Use:           "raven",
		Short:         "The Kubernetes API watcher of Kuryr",
		Long:          rootHelp,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.SetOut(io.out)
	root.SetErr(io.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return statusError{exitUsage, fmt.Errorf("%w; see %q", err, cmd.CommandPath()+" --help")}
	})
	flags.register(root)
	root.AddCommand(
		newRunCommand(flags, io), newPlanCommand(flags, io), newTranslateCommand(flags, io), newStatusCommand(flags, io),
		newDescribeCommand(flags, io), newPolicyCommand(flags, io),
		newConfigCommand(flags, io), newDriverCommand(flags, io), newCleanupCommand(flags, io), newServiceCommand(flags, io),
		newSupportBundleCommand(flags, io), newVersionCommand(io),
		newNodeCommand(flags, io),
	)
	addManual(root)
	usageErrors(root)
	return root
}

// usageErrors gives wrong arguments the exit status of a wrong command line.
func usageErrors(cmd *cobra.Command) {
	if args := cmd.Args; args != nil {
		cmd.Args = func(c *cobra.Command, a []string) error {
			if err := args(c, a); err != nil {
				return statusError{exitUsage, fmt.Errorf("%w; see %q", err, c.CommandPath()+" --help")}
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		usageErrors(sub)
	}
}
