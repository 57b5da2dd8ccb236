// Command testreport reads the events of go test -json and prints what a person wants to know: what failed with its output,
// what was skipped and why, the time of each package, and the counts.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

type event struct {
	Action      string
	Package     string
	ImportPath  string
	Test        string
	Output      string
	Elapsed     float64
	FailedBuild string
}

type testID struct{ pkg, name string }

type report struct {
	output                  map[testID]*strings.Builder
	build                   map[string]*strings.Builder
	running                 map[testID]bool
	failedIn                map[string]int // failed tests by package
	passed, failed, skipped int
	broken                  []string
	out                     io.Writer
}

func main() {
	r := &report{
		output: map[testID]*strings.Builder{}, build: map[string]*strings.Builder{},
		running: map[testID]bool{}, failedIn: map[string]int{}, out: os.Stdout,
	}
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
	if !r.end() {
		os.Exit(1)
	}
}

func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				fmt.Fprint(r.out, string(line))
			} else {
				r.take(e)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the events: %w", err)
		}
	}
}

func (r *report) take(e event) {
	id := testID{e.Package, e.Test}
	switch e.Action {
	case "run":
		r.running[id] = true
	case "output":
		if !strings.HasPrefix(e.Output, "=== ") { // RUN, PAUSE, CONT, NAME
			buffer(r.output, id).WriteString(e.Output)
		}
	case "build-output":
		buffer(r.build, e.ImportPath).WriteString(e.Output)
	case "pass", "fail", "skip":
		r.result(e, id)
	}
}

func buffer[K comparable](m map[K]*strings.Builder, key K) *strings.Builder {
	b := m[key]
	if b == nil {
		b = &strings.Builder{}
		m[key] = b
	}
	return b
}

func (r *report) result(e event, id testID) {
	text := buffer(r.output, id).String()
	delete(r.output, id)
	if e.Test == "" {
		r.packageResult(e, text)
		return
	}
	delete(r.running, id)
	switch e.Action {
	case "pass":
		r.passed++
	case "fail":
		r.fail(id, text)
	case "skip":
		r.skipped++
		fmt.Fprintf(r.out, "--- SKIP: %s %s\n%s", e.Package, e.Test, text)
	}
}

func (r *report) fail(id testID, text string) {
	r.failed++
	r.failedIn[id.pkg]++
	fmt.Fprintf(r.out, "--- FAIL: %s %s\n%s", id.pkg, id.name, text)
}

// packageResult closes a package. One that failed without a failed test, since it could not be built or ended outside of a test,
// counts as one failure.
func (r *report) packageResult(e event, text string) {
	switch e.Action {
	case "pass":
		fmt.Fprintf(r.out, "ok   %s (%.1fs)\n", e.Package, e.Elapsed)
	case "fail":
		for id := range r.running { // a panic or a timeout ended the process
			if id.pkg == e.Package {
				delete(r.running, id)
				r.fail(id, buffer(r.output, id).String()+"did not end\n")
			}
		}
		if r.failedIn[e.Package] == 0 {
			r.failed++
		}
		r.broken = append(r.broken, e.Package)
		if b := r.build[e.FailedBuild]; b != nil {
			text = b.String() + text
		}
		fmt.Fprintf(r.out, "FAIL %s (%.1fs)\n%s", e.Package, e.Elapsed, text)
	}
}

// end prints the counts and says whether all is well.
func (r *report) end() bool {
	slices.Sort(r.broken)
	if len(r.broken) > 0 {
		fmt.Fprintf(r.out, "packages that failed: %s\n", strings.Join(r.broken, ", "))
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
	return r.failed == 0 && r.passed > 0
}
