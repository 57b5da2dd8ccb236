// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kuryr/raven/test/e2e/stack"
)

// suiteBound is what go test gets as its -timeout, for all scenarios together: each wait has a bound of its own, and
// this one is for what hangs in spite of that. A night's sizes get more.
const suiteBound, fullBound = "3h", "8h"

// event is a line of go test -json.
type event struct {
	Time                 time.Time
	Action, Test, Output string
	Elapsed              float64
}

// scenario is a test and its outcome.
type scenario struct {
	name, result string // the result is ok, FAIL, skip, or cut, by an interrupt
	seconds      float64
	output       []string
	began        time.Time
	unended      bool // the tests ended before it did
}

// test runs the scenarios on the stack that stands, and prints the table.
func (o options) test(ctx context.Context, pattern string) int {
	s, err := stack.Open(o.dir)
	if err != nil {
		return o.harness(err)
	}
	if err := s.Dump(ctx, "before"); err != nil {
		return o.harness(err)
	}
	began := time.Now()
	scenarios, err := o.scenarios(ctx, s, pattern)
	if dumped := s.Dump(context.WithoutCancel(ctx), "after"); dumped != nil {
		err = errors.Join(err, dumped)
	}
	table(o.out, scenarios)
	fmt.Fprintf(o.out, "\n%d scenarios in %.0f s; logs, requests and dumps: %s\n", len(scenarios),
		time.Since(began).Seconds(), s.Artifacts())
	return o.verdict(scenarios, pattern, s.Ended(), err)
}

// errInterrupted says that somebody ended the run.
var errInterrupted = errors.New("interrupted")

// verdict says what a run has shown, and gives the status to exit with. ended are the servers that do not run at its
// end, each of which is a failure: scenarios start again what they end. err says that it did not get to its end.
func (o options) verdict(scenarios []*scenario, pattern string, ended []string, err error) int {
	failed, shown := false, false
	for _, one := range scenarios {
		failed = failed || one.result == "FAIL"
		shown = shown || one.result == "ok" && !parent(scenarios, one.name)
	}
	interrupted := errors.Is(err, errInterrupted)
	if !interrupted { // which may end a scenario before it has started again what it ended
		for _, server := range ended {
			failed = true
			fmt.Fprintln(o.out, "FAILED:", server)
		}
	}
	switch {
	case failed:
		o.harness(err) // it may be why
		return statusFailed
	case interrupted:
	case len(scenarios) == 0 && err == nil:
		err = fmt.Errorf("no scenario matches %q", pattern)
	case !shown && err == nil:
		err = errors.New("every scenario was skipped: nothing was shown")
	}
	return o.harness(err)
}

// parent says whether a scenario has parts.
func parent(scenarios []*scenario, name string) bool {
	return slices.ContainsFunc(scenarios, func(one *scenario) bool { return strings.HasPrefix(one.name, name+"/") })
}

// scenarios runs go test. Its error says that the suite could not be run to its end; a scenario that fails is none.
func (o options) scenarios(ctx context.Context, s *stack.Stack, pattern string) ([]*scenario, error) {
	bound := suiteBound
	if o.full {
		bound = fullBound
	}
	args := []string{"test", "-tags=e2e", "-json", "-count=1", "-timeout=" + bound}
	if pattern != "" {
		args = append(args, "-run="+pattern)
	}
	command := exec.CommandContext(ctx, "go", append(args, "-p=1", "./test/e2e/suite", "./test/e2e/systemd")...)
	command.Dir = o.repository
	repository, err := filepath.Abs(o.repository)
	if err != nil {
		return nil, err
	}
	command.Env = append(os.Environ(), "RAVEN_E2E_STACK="+s.Dir(), "RAVEN_E2E_BIN="+filepath.Join(repository, "bin"),
		"RAVEN_E2E_ARTIFACTS="+s.Artifacts(), s.Mark())
	if o.full {
		command.Env = append(command.Env, "RAVEN_E2E_FULL=1")
	}
	// An interrupt reaches the tests and all that they started, and not only go.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGINT) }
	command.WaitDelay = time.Minute
	command.Stderr = o.complaints
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(s.Artifacts(), "suite.log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // what could not be written is missing there, and nowhere else
	if err := command.Start(); err != nil {
		return nil, err
	}
	scenarios, rest, err := follow(out, log, o.out)
	waited := command.Wait()
	if ctx.Err() != nil {
		return cut(scenarios), errors.Join(errInterrupted, err)
	}
	for _, one := range scenarios {
		if one.result == "FAIL" {
			return scenarios, err
		}
	}
	if waited != nil {
		err = errors.Join(err,
			fmt.Errorf("the suite ended without a failed scenario: %w\n%s", waited, strings.Join(rest, "")))
	}
	return scenarios, err
}

// cut marks what an interrupt ended.
func cut(scenarios []*scenario) []*scenario {
	for _, one := range scenarios {
		if one.unended {
			one.result = "cut"
		}
	}
	return scenarios
}

// follow reads what go test prints until its end: one line for each scenario that ends, and all of it to the log.
// rest is what belongs to no scenario.
func follow(in io.Reader, log, out io.Writer) (scenarios []*scenario, rest []string, err error) {
	running := map[string]*scenario{}
	var last time.Time
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil { // what the compiler says is no JSON
				e = event{Action: "output", Output: string(line)}
			}
			if e.Output != "" {
				fmt.Fprint(log, e.Output)
			}
			if !e.Time.IsZero() {
				last = e.Time
			}
			if e.Test == "" {
				rest = append(rest, e.Output)
			} else if ended := track(running, e, &scenarios); ended != nil {
				fmt.Fprintf(out, "  %-4s %7.1fs  %s\n", ended.result, ended.seconds, ended.name)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return scenarios, rest, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(running)) { // a panic, the bound or an interrupt ended it
		one := running[name]
		one.result, one.unended, one.seconds = "FAIL", true, last.Sub(one.began).Seconds()
		scenarios = append(scenarios, one)
	}
	return scenarios, rest, nil
}

// track follows one test through its events, and gives it when it has ended.
func track(running map[string]*scenario, e event, ended *[]*scenario) *scenario {
	one := running[e.Test]
	if one == nil {
		one = &scenario{name: e.Test, began: e.Time}
		running[e.Test] = one
	}
	switch e.Action {
	case "output":
		if text := strings.TrimSpace(e.Output); text != "" && !strings.HasPrefix(text, "=== ") &&
			!strings.HasPrefix(text, "--- ") {
			one.output = append(one.output, strings.TrimRight(e.Output, "\n"))
		}
		return nil
	case "pass":
		one.result = "ok"
	case "fail":
		one.result = "FAIL"
	case "skip":
		one.result = "skip"
	default:
		return nil
	}
	one.seconds = e.Elapsed
	delete(running, e.Test)
	*ended = append(*ended, one)
	return one
}
