package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/plugins/sdktest/conformance"
	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/host"
)

func newDriverCheckCommand(flags *globalFlags, io streams) *cobra.Command {
	var (
		files  []string
		format string
	)
	cmd := &cobra.Command{
		Use:   "check PATH [-- ARGUMENT...]",
		Short: "Put a driver's program through what the contract asks of it, with no cluster and no cloud",
		Long: `Start a driver's program as Raven does and ask, repeat, disturb and measure: the contract, determinism, purity as far as it
can be seen from outside, needs, bad and huge objects, cancellation, deadlines, memory, and the end.

The driver is asked about objects that are made up from what it watches, and about those of the files that are given with -f:
those of its source watches are translated, and all of them answer needs. Without files little is seen of a driver of custom
resources. Options have their defaults, or what --set and --config-file say.

Exit statuses: 0 nothing failed, 1 a check failed, 64 the command line is wrong.`,
		Example: `  raven driver check ./raven-driver-floatingip -f examples/claim.yaml
  raven driver check /usr/lib/raven/plugins/raven-driver-x --set x.pool=10.0.0.0/8 -o json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			return runDriverCheck(cmd.Context(), flags, io, driverCheck{path: args[0], args: args[1:], files: files}, format)
		},
	}
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "manifest `file` with objects to translate, and others that they need, - for "+
		"standard input; may be given again")
	cmd.Flags().StringVarP(&format, "output", "o", "table", "output `format`: table, json or yaml")
	return cmd
}

type driverCheck struct {
	path  string
	args  []string
	files []string
}

func runDriverCheck(ctx context.Context, flags *globalFlags, io streams, c driverCheck, format string) error {
	sources, err := flags.sources()
	if err != nil {
		return err
	}
	settings := conformance.Config{
		Start:  conformance.Program(c.path, c.args...),
		Values: func(info drivers.Info) (drivers.Values, error) { return checkedValues(sources, info) },
	}
	if len(c.files) > 0 {
		objects, err := readManifests(io.in, c.files)
		if err != nil {
			return err
		}
		for _, o := range objects {
			settings.Objects = append(settings.Objects, o.Object)
		}
	}
	report := conformance.Report{Driver: filepath.Base(c.path)}
	hosted, err := c.underHost(ctx, sources)
	if err != nil {
		return err
	}
	if hosted.Verdict != conformance.Fail {
		if report, err = conformance.Run(ctx, settings); err != nil {
			return err
		}
	}
	report.Results = append([]conformance.Result{hosted}, report.Results...)
	if format != "table" {
		err = structured(io.out, format, report)
	} else {
		err = printReport(io, report)
	}
	if err != nil {
		return err
	}
	if report.Failed() {
		return statusError{exitError, errors.New("the driver does not keep the contract; docs/plugin-protocol.md says what it asks")}
	}
	return nil
}

// underHost starts the driver as the daemon would, confined as the configuration says, and looks at what it declares as the daemon does.
func (c driverCheck) underHost(ctx context.Context, sources config.Sources) (conformance.Result, error) {
	result := conformance.Result{Check: "host", Verdict: conformance.Pass, What: "Raven's host starts it, confined, and its options read nothing of Raven's"}
	refuse := func(err error) (conformance.Result, error) {
		result.Verdict, result.Details = conformance.Fail, []string{err.Error()}
		return result, nil
	}
	path, err := filepath.Abs(c.path)
	if err != nil {
		return result, err
	}
	name := strings.TrimPrefix(filepath.Base(path), programPrefix)
	options := append(coreOptions(), authorityOptions([]string{name})...)
	sources.Strict = false
	values, _, err := config.Load(known(sources, options), options)
	if err != nil {
		return result, err
	}
	sandbox, err := sandboxFrom(values)
	if err != nil {
		return result, err
	}
	plugin, err := host.Launch(ctx, host.Config{
		Path: path, Args: c.args, CoreVersion: version, Sandbox: sandbox, AllowRead: authorityOf(values, name).allowRead,
		RuntimeDir: runtimeDir(values),
	})
	if err != nil {
		return refuse(err)
	}
	info := plugin.Info()
	if err := errors.Join(plugin.Stop(ctx), checkName(info.Name), checkDeclared(info.Name, info)); err != nil {
		return refuse(err)
	}
	if want := programPrefix + info.Name; filepath.Base(path) != want {
		result.Verdict = conformance.Warn
		result.Details = []string{fmt.Sprintf("the program is called %s; Raven looks for %s unless [driver:%s] command says otherwise",
			filepath.Base(path), want, info.Name)}
	}
	return result, nil
}

// checkedValues are the values of a driver's options as the configuration has them.
func checkedValues(sources config.Sources, info drivers.Info) (drivers.Values, error) {
	options := make([]config.Option, 0, len(info.Options))
	for _, o := range info.Options {
		options = append(options, driverOption(info.Name, o))
	}
	sources.Strict = false
	values, _, err := config.Load(known(sources, options), options)
	if err != nil {
		return nil, err
	}
	picked := drivers.Values{}
	for group, of := range values.Pick(options) {
		picked[group] = of
	}
	return picked, nil
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
	_, err := fmt.Fprintf(io.out, "\n%s %s: %d passed, %d warnings, %d failed, %d skipped.\n", report.Driver, report.Version,
		counts[conformance.Pass], counts[conformance.Warn], counts[conformance.Fail], counts[conformance.Skip])
	return err
}
