// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kuryr/raven/service"
	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/daemon"
	"github.com/kuryr/raven/service/log"
	"github.com/kuryr/raven/service/node"
)

func newNodeCommand(flags *globalFlags, out streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Run and check what a node needs: the daemon that plugs its pods into their ports",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "run",
		Short: "Run the node's daemon",
		Long: `Run the node's daemon in the foreground: plug this node's pods into the Neutron ports that Raven has made,
as raven-cni asks, and the node itself into its own. It runs as root, on each node, in the network namespace of the
node's Open vSwitch. It needs no credential of OpenStack.

Signals:
  SIGTERM, SIGINT  stop inside graceful_shutdown_timeout; pods stay plugged in; a second one ends at once

Exit statuses: 0 stopped as asked, 1 an error, 130 and 143 ended at once by a second SIGINT or SIGTERM.`,
		Example: "  raven node run --config-file /etc/kuryr/raven-node.conf",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runNode(cmd.Context(), flags, out) },
	}, &cobra.Command{
		Use:   "check",
		Short: "Say what this node lacks to run pods on Neutron's networks",
		Long: `Look at Open vSwitch, OVN, the kernel, the API server and the folders of CNI, and print what this node lacks.
Nothing is changed. Exit status 1 when something is lacking.`,
		Example: "  raven node check --config-file /etc/kuryr/raven-node.conf",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return checkNode(cmd.Context(), flags, out) },
	})
	return cmd
}

// nodeValues reads the configuration without the drivers' options, which a node has no use for.
func nodeValues(flags *globalFlags) (*config.Values, []config.Warning, error) {
	sources, err := flags.sources()
	if err != nil {
		return nil, nil, err
	}
	return config.Load(sources, daemon.Options())
}

func runNode(ctx context.Context, flags *globalFlags, out streams) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	values, warnings, err := nodeValues(flags)
	if err != nil {
		return err
	}
	err = node.Run(ctx, node.Process{
		Values: values, Warnings: warnings, Version: version, Signals: signals,
		Notify: service.NewNotifier(os.Getenv), Stderr: out.err, Color: log.Terminal(os.Stderr, os.Getenv),
	})
	if err != nil {
		return statusError{service.ExitStatus(err), err}
	}
	return nil
}

func checkNode(ctx context.Context, flags *globalFlags, out streams) error {
	values, warnings, err := nodeValues(flags)
	if err != nil {
		return err
	}
	warn(out, warnings)
	findings, err := node.Check(ctx, values, version)
	if err != nil {
		return err
	}
	lacking := 0
	for _, f := range findings {
		word, colour := "ok", green
		switch {
		case f.Lack != "" && f.Advice:
			word, colour = "note", yellow
		case f.Lack != "":
			word, colour = "lacks", red
			lacking++
		}
		text := f.Found
		if f.Lack != "" {
			text = f.Lack
		}
		fmt.Fprintf(out.out, "%s  %s: %s\n", out.paint(colour, fmt.Sprintf("%-5s", word)), f.What, text)
	}
	if lacking > 0 {
		return statusError{exitError, fmt.Errorf("this node lacks %d of %d things", lacking, len(findings))}
	}
	return nil
}
