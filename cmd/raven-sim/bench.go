// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/spf13/cobra"
)

// benchOptions are the flags of bench.
type benchOptions struct {
	raven    string
	scenario string
	format   string
	quick    bool
	pods     int
	limit    time.Duration
}

func newBenchCommand(hurry <-chan struct{}) *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the real raven against the simulations, and print a report",
		Long: `Measure the speed and size of the real raven, with its real drivers, against simulations in this
process. Everything shares this machine: the simulations' own work is part of every time. Nothing is asserted: the
report says what was measured, and what was aimed at.

Exit statuses: 0 everything was measured, 1 something was not, and the report says why.

` + scenarioHelp(),
		Example: `  raven-sim bench --quick
  raven-sim bench --scenario 'burst|single' -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), hurry, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	runsRaven(cmd, &o.raven)
	f := cmd.Flags()
	f.StringVar(&o.scenario, "scenario", "", "only the scenarios whose name matches this regular `expression`")
	f.StringVarP(&o.format, "output", "o", "markdown", "the report's `format`: markdown or json")
	f.BoolVar(&o.quick, "quick", false, "fewer pods: for trying, not for comparing")
	f.IntVar(&o.pods, "pods", 0,
		"`number` of pods of a burst; the large ones have ten times that (default: 1000; 200 with --quick)")
	f.DurationVar(&o.limit, "limit", 5*time.Minute,
		"the longest `time` to wait for a burst; what is missing then counts as lost")
	return cmd
}

func (o benchOptions) run(ctx context.Context, hurry <-chan struct{}, out, progress io.Writer) error {
	pattern, err := regexp.Compile(o.scenario)
	if err != nil {
		return fmt.Errorf("--scenario: %w", err)
	}
	if o.format != "markdown" && o.format != "json" {
		return fmt.Errorf("--output %q: it must be markdown or json", o.format)
	}
	if o.pods == 0 {
		o.pods = 1000
		if o.quick {
			o.pods = 200
		}
	}
	if o.pods < 10 {
		return fmt.Errorf("--pods %d: it must be at least 10", o.pods)
	}
	b := &bench{
		options: o, hurry: hurry, progress: progress,
		report: benchReport{Machine: machine(), Started: time.Now(), Pods: o.pods},
	}
	var errs []error
	found := false
	for _, s := range scenarios() {
		if !pattern.MatchString(s.name) {
			continue
		}
		found = true
		fmt.Fprintf(progress, "%s: %s\n", s.name, s.about)
		r := scenarioReport{Name: s.name, About: s.about}
		if err := s.run(ctx, b, &r); err != nil {
			r.Problem = err.Error()
			errs = append(errs, fmt.Errorf("scenario %s: %w", s.name, err))
		}
		b.report.Scenarios = append(b.report.Scenarios, r)
		if ctx.Err() != nil {
			errs = append(errs, errors.New("interrupted"))
			break
		}
	}
	if !found {
		return fmt.Errorf("--scenario %q matches none of the scenarios; see raven-sim bench --help", o.scenario)
	}
	if o.format == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		errs = append(errs, encoder.Encode(b.report))
	} else {
		b.report.markdown(out)
	}
	return errors.Join(errs...)
}

// bench is one run of some scenarios.
type bench struct {
	options  benchOptions
	hurry    <-chan struct{}
	progress io.Writer
	report   benchReport
	// bursts are the times of bursts by scenario, for comparing.
	bursts map[string]time.Duration
}

func (b *bench) say(format string, args ...any) { fmt.Fprintf(b.progress, "  "+format+"\n", args...) }
