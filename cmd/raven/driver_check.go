// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/kuryr/raven/plugins/sdktest/conformance"
	"github.com/kuryr/raven/service/daemon"
	"github.com/kuryr/raven/service/host"
)

func newDriverCheckCommand(flags *globalFlags, out streams) *cobra.Command {
	var (
		files      []string
		format     string
		unconfined bool
	)
	cmd := &cobra.Command{
		Use:   "check PATH [-- ARGUMENT...]",
		Short: "Put a driver's program through what the contract asks of it, with no cluster and no cloud",
		Long: `Start a driver's program as Raven does, confined, and ask, repeat, disturb and measure: the contract,
determinism, purity as far as it can be seen from outside, needs, bad and huge objects, cancellation, deadlines,
memory, and the end.

The driver is asked about objects that are made up from what it watches, and about those of the files that are given
with -f: those of its source watches are translated, and all of them answer needs. Without files little is seen of a
driver of custom resources. Options have their defaults, or what --set and --config-file say.

The program never runs with more than Raven would give it, whatever [raven] driver_sandbox says; the first result
names what this machine lacks for that. What confinement refuses, a file that the driver would open or a process
that it would start, is not seen by the check of purity. For a program that you wrote or trust, --unconfined runs
all but the first check with all that you may do yourself, and shows it.

Exit statuses: 0 nothing failed, 1 a check failed, 64 the command line is wrong.`,
		Example: `  raven driver check ./raven-driver-floatingip -f examples/claim.yaml
  raven driver check /usr/lib/raven/plugins/raven-driver-x --set x.pool=10.0.0.0/8 -o json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			return runDriverCheck(cmd.Context(), flags, out, driverCheck{args[0], args[1:], files, unconfined}, format)
		},
	}
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "manifest `file` with objects to translate, and others "+
		"that they need, - for standard input; may be given again")
	cmd.Flags().BoolVar(&unconfined, "unconfined", false, "run the program with all that you may do: only for one that "+
		"you trust")
	cmd.Flags().StringVarP(&format, "output", "o", "table", "output `format`: table, json or yaml")
	return cmd
}

type driverCheck struct {
	path       string
	args       []string
	files      []string
	unconfined bool
}

func runDriverCheck(ctx context.Context, flags *globalFlags, out streams, c driverCheck, format string) error {
	as, err := flags.loader().Hosting(c.path, c.args)
	if err != nil {
		return err
	}
	settings := conformance.Config{
		Start:  c.starting(as),
		Values: flags.loader().DeclaredValues,
	}
	if len(c.files) > 0 {
		objects, err := readManifests(out.in, c.files)
		if err != nil {
			return err
		}
		for _, o := range objects {
			settings.Objects = append(settings.Objects, o.Object)
		}
	}
	report := conformance.Report{Driver: filepath.Base(c.path)}
	hosted := c.underHost(ctx, as)
	if hosted.Verdict != conformance.Fail {
		if report, err = conformance.Run(ctx, settings); err != nil {
			return err
		}
	}
	report.Results = append([]conformance.Result{hosted}, report.Results...)
	if format != "table" {
		err = structured(out.out, format, report)
	} else {
		err = printReport(out, report)
	}
	if err != nil {
		return err
	}
	if report.Failed() {
		return statusError{exitError, errors.New("the driver does not keep the contract; docs/plugin-protocol.md says what " +
			"it asks")}
	}
	return nil
}

// starting says how the checks start the program.
func (c driverCheck) starting(as host.Config) func(context.Context, ...string) (*conformance.Target, error) {
	if c.unconfined {
		return conformance.Program(c.path, c.args...)
	}
	as.Logger = slog.New(slog.DiscardHandler) // it says what it has to say
	return func(ctx context.Context, env ...string) (*conformance.Target, error) {
		as.Env = env
		bare, err := host.Open(ctx, as)
		if err != nil {
			return nil, err
		}
		lasting := context.WithoutCancel(ctx)
		return &conformance.Target{
			Conn: bare.Conn(), PID: bare.PID(), Printed: bare.Printed, Orphan: bare.Orphan,
			Stop: sync.OnceValue(func() bool { return bare.Stop(lasting) }),
		}, nil
	}
}

// underHost starts the driver as the daemon would, and looks at what it declares as the daemon does.
func (c driverCheck) underHost(ctx context.Context, as host.Config) conformance.Result {
	result := conformance.Result{Check: "host", Verdict: conformance.Pass, What: "Raven's host starts it, confined, and " +
		"its options read nothing of Raven's"}
	refuse := func(err error) conformance.Result {
		result.Verdict, result.Details = conformance.Fail, []string{err.Error()}
		return result
	}
	for _, m := range as.Sandbox.Measures() {
		if !m.Active && (m.Name == "landlock" || m.Name == "seccomp") {
			result.Verdict = conformance.Warn
			result.Details = append(result.Details, "it is not confined by "+m.Name+": "+m.Detail)
		}
	}
	plugin, err := host.Launch(ctx, as)
	if err != nil {
		return refuse(err)
	}
	info := plugin.Info()
	if err := errors.Join(plugin.Stop(ctx), daemon.CheckName(info.Name),
		daemon.CheckDeclared(info.Name, info)); err != nil {
		return refuse(err)
	}
	if want := daemon.ProgramPrefix + info.Name; filepath.Base(as.Path) != want {
		result.Verdict = conformance.Warn
		result.Details = append(result.Details, fmt.Sprintf("the program is called %s; Raven looks for %s unless "+
			"[driver:%s] command says otherwise",
			filepath.Base(as.Path), want, info.Name))
	}
	return result
}

func printReport(io streams, report conformance.Report) error {
	colours := map[conformance.Verdict]string{
		conformance.Pass: green, conformance.Warn: yellow, conformance.Fail: red, conformance.Skip: dim,
	}
	counts := map[conformance.Verdict]int{}
	for _, r := range report.Results {
		counts[r.Verdict]++
		fmt.Fprintf(io.out, "%s  %-14s %s\n", io.paint(colours[r.Verdict], string(r.Verdict)), r.Check, r.What)
		for _, detail := range r.Details {
			fmt.Fprintf(io.out, "                      %s\n", strings.ReplaceAll(detail, "\n", " "))
		}
	}
	_, err := fmt.Fprintf(io.out, "\n%s %s: %d passed, %d warnings, %d failed, %d skipped.\n", report.Driver,
		report.Version,
		counts[conformance.Pass], counts[conformance.Warn], counts[conformance.Fail], counts[conformance.Skip])
	return err
}
