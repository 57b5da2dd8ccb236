// SPDX-License-Identifier: Apache-2.0

// Package conformance puts a driver, in whatever language it is written, through what the contract asks of it: it
// starts the program as Raven does and asks, repeats, disturbs and measures. It must never need a cluster or a cloud,
// and never pass what it did not see.
//
// What cannot be seen from outside stays unproven: a driver that reads a file and closes it between two checks of
// it, or that behaves well while it is watched.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/kuryr/raven/drivers"
	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
)

// Verdict is the outcome of one check.
type Verdict string

// The verdicts. Only Fail makes a Report fail.
const (
	Pass Verdict = "pass"
	Warn Verdict = "warn"
	Fail Verdict = "fail"
	Skip Verdict = "skip"
)

// Result is one check's outcome.
type Result struct {
	// Check is the check's name, which stays the same over versions.
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	// What says in one sentence what was checked.
	What string `json:"what"`
	// Details are what was found, one sentence each; of a Skip the reason.
	Details []string `json:"details,omitempty"`
}

// Report is what a run of all checks found.
type Report struct {
	Driver  string   `json:"driver"`
	Version string   `json:"version,omitempty"`
	SDK     string   `json:"sdk,omitempty"`
	Results []Result `json:"results"`
}

// Failed says whether a check failed.
func (r Report) Failed() bool {
	for _, result := range r.Results {
		if result.Verdict == Fail {
			return true
		}
	}
	return false
}

// Target is one driver that was started: a connection to it, and what is known of its process.
type Target struct {
	Conn grpc.ClientConnInterface
	// PID is its process, 0 where it has none of its own: what can only be seen from outside of a process is then skipped.
	PID int
	// Printed returns the last lines that it wrote. May be nil.
	Printed func() string
	// Stop ends it. It returns whether it ended by itself when it was asked to.
	Stop func() (orderly bool)
	// Orphan closes Raven's end of the lifeline, and says whether the process ended by itself in time. Nil where PID
	// is 0.
	Orphan func(within time.Duration) bool
}

// Config says what to put to the test. Start is needed.
type Config struct {
	// Start starts the driver anew, with further variables (KEY=value) in its environment; see Program.
	Start func(ctx context.Context, env ...string) (*Target, error)
	// Values returns the options' values; nil means the defaults.
	Values func(drivers.Info) (drivers.Values, error)
	// Objects are objects, decoded from JSON, that the driver is to be asked about: those of its source watches are
	// translated, and all of them answer needs. Beside them come samples that are made from what it watches.
	Objects []map[string]any
	// Patience is how long the driver may take over anything that is asked of it; 0 means 10 s.
	Patience time.Duration
	// Load is for how long memory is watched under load; 0 means 4 s.
	Load time.Duration
	// Only names the checks to run after those up to translate, which all others rest on; nil means all.
	Only []string
}

// Run puts a driver through all checks. The error is only about the run itself, such as ctx having ended.
func Run(ctx context.Context, config Config) (Report, error) {
	if config.Start == nil {
		return Report{}, errors.New("conformance: Config.Start is missing")
	}
	if config.Patience <= 0 {
		config.Patience = 10 * time.Second
	}
	if config.Load <= 0 {
		config.Load = 4 * time.Second
	}
	s := &suite{config: config}
	s.run(ctx)
	return s.report, ctx.Err()
}

// suite is one run.
type suite struct {
	config Config
	report Report

	target  *Target
	session *session
	// described is what the driver said of itself at first; info is the same, read.
	described *ravenv1.GetInfoResponse
	info      drivers.Info
	values    drivers.Values
	watches   []drivers.Watch
	sources   []source
	atFirst   seen            // the process before it was asked for anything but its info
	first     map[int]outcome // what the first translation of each source gave
	began     time.Time
}

// check runs one check and notes what it found.
func (s *suite) check(name, what string, f func(*finding)) bool {
	found := &finding{result: Result{Check: name, What: what, Verdict: Pass}}
	if s.session != nil && s.session.ended() != nil {
		found.skip("the driver is gone: %v", s.session.ended())
	} else {
		f(found)
	}
	s.report.Results = append(s.report.Results, found.result)
	return found.result.Verdict != Fail
}

// finding collects what one check says.
type finding struct {
	result Result
	more   int
}

const keptDetails = 8

func (f *finding) say(format string, args ...any) {
	if len(f.result.Details) >= keptDetails {
		f.more++
		f.result.Details[keptDetails-1] = fmt.Sprintf("and %d more", f.more+1)
		return
	}
	f.result.Details = append(f.result.Details, fmt.Sprintf(format, args...))
}

func (f *finding) fail(format string, args ...any) {
	f.result.Verdict = Fail
	f.say(format, args...)
}

func (f *finding) warn(format string, args ...any) {
	if f.result.Verdict == Pass {
		f.result.Verdict = Warn
	}
	f.say(format, args...)
}

func (f *finding) skip(format string, args ...any) {
	f.result.Verdict = Skip
	f.say(format, args...)
}

func (s *suite) run(ctx context.Context) {
	if !s.check("start", "the program starts, shakes hands and opens its stream", func(f *finding) { s.start(ctx, f) }) {
		return
	}
	defer func() {
		if s.target != nil {
			s.session.close()
			s.target.Stop()
		}
	}()
	s.check("health", "it serves gRPC's health service under the name plugin", func(f *finding) { s.health(ctx, f) })
	if !s.check("info", "it says what it is, as the core can use it", s.checkInfo) ||
		!s.check("configure", "it takes its options, and refuses by diagnostics", func(f *finding) { s.configure(ctx, f) }) ||
		!s.check("watches", "its watches are complete and can be read", s.checkWatches) {
		return
	}
	s.sources = makeSources(s.watches, s.config.Objects)
	s.check("translate", "every object gives a valid Set or an error that says why", func(f *finding) {
		s.translate(ctx, f)
	})
	for _, c := range s.further() {
		if s.config.Only == nil || slices.Contains(s.config.Only, c.name) {
			s.check(c.name, c.what, func(f *finding) { c.run(ctx, f) })
		}
	}
}

// further are the checks that rest on the first ones, in their order: the last one ends the driver.
func (s *suite) further() []further {
	return []further{
		{"needs", "needs settle in three rounds, whatever the answers are", s.needs},
		{"determinism", "equal objects give equal Sets, again, side by side, and in any order", s.determinism},
		{"purity", "it opens nothing, writes nothing and starts nothing", s.purity},
		{"batch", "every item of a full batch gets exactly one result", s.batch},
		{"cancellation", "every cancelled item gets exactly one result", s.cancellation},
		{"deadline", "every item whose time is short gets exactly one result", s.deadline},
		{"memory", "memory does not grow with the number of objects that were seen", s.memory},
		{"bad-objects", "objects that are not as they should be give errors, and no panics", s.badObjects},
		{"huge-objects", "objects of up to 40 MiB are translated in time", s.hugeObjects},
		{"processes", "another process, with another environment, gives the same", s.processes},
		{"drain", "it drains, refuses what comes later, and ends when it is asked to", s.drain},
	}
}

type further struct {
	name, what string
	run        func(context.Context, *finding)
}
