// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kuryr/raven/plugins/sdk/scaffold"
	"github.com/kuryr/raven/service/daemon"
)

func newDriverNewCommand(_ *globalFlags, io streams) *cobra.Command {
	m := scaffold.Module{}
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Write the first files of a driver of your own, in a module of its own: it builds, tests and runs at once",
		Long: `Write the first files of a driver of your own, in a folder of its own: the driver, its main program,
goldens, an example and a Makefile. It builds, tests and runs at once, with no cluster and no cloud.

A module in Go requires the release that this raven is. One that is no release leads to its source instead: to
--raven, else to the checkout that this program was built in.`,
		Example: `  raven driver new floatingip
  raven driver new firewall --lang python --dir ../firewall
  raven driver new floatingip --module github.com/me/raven-driver-floatingip --raven ~/src/raven`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			m.Name = args[0]
			if err := daemon.CheckName(m.Name); err != nil {
				return statusError{exitUsage, err}
			}
			if m.Dir == "" {
				m.Dir = daemon.ProgramPrefix + m.Name
			}
			return runDriverNew(io, m)
		},
	}
	f := cmd.Flags()
	f.StringVar(&m.Lang, "lang", scaffold.Go, "`language`: go or python")
	f.StringVar(&m.Dir, "dir", "", "`folder` to write to; it must not exist, or be empty (default: raven-driver-NAME)")
	f.StringVar(&m.Module, "module", "", "`path` of the Go module (default: example.org/raven-driver-NAME)")
	f.StringVar(&m.Checkout, "raven", "", "`folder` with Raven's source to build against, in place of a release")
	return cmd
}

func runDriverNew(io streams, m scaffold.Module) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	m.Program = self
	if m.Lang == scaffold.Go {
		if err := findSource(&m, self); err != nil {
			return err
		}
	}
	files, err := scaffold.Write(m)
	if err != nil {
		return err
	}
	for _, name := range files {
		fmt.Fprintln(io.out, "  "+filepath.Join(m.Dir, name))
	}
	fmt.Fprintf(io.out, "\nNow: cd %s && make test check run\n", m.Dir)
	return nil
}

var releaseVersion = regexp.MustCompile(`^v?(\d+\.\d+\.\d+)$`)

// findSource says what a module in Go requires: a checkout that was named, the release that this raven is, or the
// checkout that it was built in.
func findSource(m *scaffold.Module, self string) error {
	if m.Checkout != "" {
		path, err := filepath.Abs(m.Checkout)
		m.Checkout = path
		return err
	}
	if found := releaseVersion.FindStringSubmatch(version); found != nil {
		m.Release = "v" + found[1]
		return nil
	}
	checkout := filepath.Dir(filepath.Dir(self)) // bin/raven
	mod, err := os.ReadFile(filepath.Join(checkout, "go.mod"))
	if err != nil || !strings.HasPrefix(string(mod), "module github.com/kuryr/raven\n") {
		return errors.New("this raven (" + version + ") is no release, and was not built in a checkout: say with --raven " +
			"where Raven's source is")
	}
	m.Checkout = checkout
	return nil
}
