package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/kuryr/raven/test/e2e/stack"
)

// suiteBound is what go test gets as its -timeout, for all scenarios together: each wait has a bound of its own, and this one is for what hangs in
// spite of that. A night's sizes get more.
const suiteBound, fullBound = "3h", "8h"

// event is a line of go test -json.
type event struct {
	Action, Test, Output string
	Elapsed              float64
}

// scenario is a test and its outcome.
type scenario struct {
	name, result string
	seconds      float64
	output       []string
}

// test runs the scenarios on the stack that stands, and prints the table.
func (o options) test(ctx context.Context, pattern string) int {
	s, err := stack.Open(o.dir)
	if err != nil {
		return harness(err)
	}
	if err := s.Dump(ctx, "before"); err != nil {
		return harness(err)
	}
	began := time.Now()
	since, err := s.FaultMark()
	if err != nil {
		return harness(err)
	}
	scenarios, err := o.scenarios(ctx, s, pattern)
	if dumped := s.Dump(context.WithoutCancel(ctx), "after"); dumped != nil {
		err = errors.Join(err, dumped)
	}
	failed := table(o.out, scenarios)
	fmt.Fprintf(o.out, "\n%d scenarios in %.0f s; logs, requests and dumps: %s\n", len(scenarios), time.Since(began).Seconds(), s.Artifacts())
	faults, faultErr := s.EnvironmentFaults(since)
	for _, fault := range faults {
		fmt.Fprintln(o.out, "environment fault:", fault)
	}
	switch {
	case (failed || err != nil) && len(faults) > 0:
		fmt.Fprintln(o.out, "ENVIRONMENT FAULT: servers of the stack broke by themselves; this run proves nothing about Raven")
		return statusEnvironment
	case failed:
		return statusFailed
	case len(scenarios) == 0 && err == nil:
		err = fmt.Errorf("no scenario matches %q", pattern)
	}
	return harness(errors.Join(err, faultErr))
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
	command.Env = append(os.Environ(), "RAVEN_E2E_STACK="+s.Dir(), "RAVEN_E2E_BIN="+filepath.Join(repository, "bin"), "RAVEN_E2E_ARTIFACTS="+s.Artifacts(), s.Mark())
	if o.full {
		command.Env = append(command.Env, "RAVEN_E2E_FULL=1")
	}
	// An interrupt reaches the tests and all that they started, and not only go.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGINT) }
	command.WaitDelay = time.Minute
	command.Stderr = os.Stderr
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
	for _, one := range scenarios {
		if one.result == "FAIL" {
			return scenarios, err
		}
	}
	if waited != nil {
		err = errors.Join(err, fmt.Errorf("the suite ended without a failed scenario: %w\n%s", waited, strings.Join(rest, "")))
	}
	return scenarios, err
}

// follow reads what go test prints until its end: one line for each scenario that ends, and all of it to the log. rest is what
// belongs to no scenario.
func follow(in io.Reader, log, out io.Writer) (scenarios []*scenario, rest []string, err error) {
	running := map[string]*scenario{}
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
	for _, one := range running { // a panic or the bound cut it
		one.result = "FAIL"
		scenarios = append(scenarios, one)
	}
	return scenarios, rest, nil
}

// track follows one test through its events, and gives it when it has ended.
func track(running map[string]*scenario, e event, ended *[]*scenario) *scenario {
	one := running[e.Test]
	if one == nil {
		one = &scenario{name: e.Test}
		running[e.Test] = one
	}
	switch e.Action {
	case "output":
		if text := strings.TrimSpace(e.Output); text != "" && !strings.HasPrefix(text, "=== ") && !strings.HasPrefix(text, "--- ") {
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

// said is what a scenario has logged by itself: measurements, known differences, why it was left out. What programs print beside is not in it.
func (s *scenario) said() []string {
	var lines []string
	within := false
	for _, line := range s.output {
		indent := len(line) - len(strings.TrimLeft(line, " "))
		switch at := logged.FindStringIndex(line); {
		case at != nil:
			within = true
			line = line[at[1]:]
		case !within || indent < continued:
			within = false
			continue
		default:
			line = line[continued:]
		}
		if text := strings.TrimRight(line, " "); text != "" {
			lines = append(lines, text)
		}
	}
	return lines
}

// logged is how a line begins that a test logs; those after it are indented by more.
var logged = regexp.MustCompile(`^ +[a-z_]+_test\.go:\d+: ?`)

const continued = 8

// table prints the scenarios and what they said, and before that all of what failed ones printed; true says that one failed.
func table(w io.Writer, scenarios []*scenario) (failed bool) {
	for _, one := range scenarios {
		if one.result == "FAIL" {
			failed = true
			fmt.Fprintf(w, "\n%s said:\n", one.name)
			for _, line := range one.output[max(0, len(one.output)-60):] {
				fmt.Fprintln(w, line)
			}
		}
	}
	fmt.Fprintf(w, "\n%-60s %-6s %9s\n", "scenario", "result", "seconds")
	for _, one := range scenarios {
		indent := strings.Repeat("  ", strings.Count(one.name, "/"))
		fmt.Fprintf(w, "%-60s %-6s %9.1f\n", indent+strings.TrimPrefix(one.name, "Test"), one.result, one.seconds)
		if one.result == "FAIL" {
			continue // said above
		}
		for _, line := range one.said() {
			fmt.Fprintf(w, "    %s%s\n", indent, line)
		}
	}
	return failed
}
