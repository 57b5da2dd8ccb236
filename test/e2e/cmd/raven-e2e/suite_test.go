// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const events = `{"Action":"start","Package":"p"}
{"Action":"run","Test":"TestPods"}
{"Action":"output","Test":"TestPods","Output":"=== RUN   TestPods\n"}
{"Action":"run","Test":"TestPods/v4"}
{"Action":"output","Test":"TestPods/v4","Output":"    pods_test.go:10: no port\n"}
{"Action":"output","Test":"TestPods/v4","Output":"    --- FAIL: TestPods/v4 (1.50s)\n"}
{"Action":"fail","Test":"TestPods/v4","Elapsed":1.5}
{"Action":"fail","Test":"TestPods","Elapsed":2}
{"Action":"run","Test":"TestNight"}
{"Action":"output","Test":"TestNight","Output":"    night_test.go:5: for make e2e-full\n"}
{"Action":"skip","Test":"TestNight","Elapsed":0}
{"Action":"run","Test":"TestSpeed"}
{"Action":"output","Test":"TestSpeed","Output":"I1121 12:00:00.0 1 warnings.go:107] deprecated\n"}
{"Action":"output","Test":"TestSpeed","Output":"    speed_test.go:7: contestant     milliseconds\n"}
{"Action":"output","Test":"TestSpeed","Output":"        raven                     74\n"}
{"Action":"output","Test":"TestSpeed","Output":"printed by a program\n"}
{"Action":"pass","Test":"TestSpeed","Elapsed":3}
{"Action":"run","Test":"TestCut"}
{"Action":"output","Test":"TestCut","Output":"panic: test timed out\n"}
{"Action":"output","Package":"p","Output":"FAIL\n"}
{"Action":"fail","Package":"p","Elapsed":3}
`

func TestTheTableOfScenarios(t *testing.T) {
	var log bytes.Buffer
	scenarios, rest, err := follow(strings.NewReader(events), &log, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, one := range scenarios {
		got = append(got, one.result+" "+one.name)
	}
	if diff := cmp.Diff([]string{"FAIL TestPods/v4", "FAIL TestPods", "skip TestNight", "ok TestSpeed", "FAIL TestCut"},
		got); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(log.String(), "no port") {
		t.Error("the log lacks what a scenario said")
	}
	if diff := cmp.Diff([]string{"", "FAIL\n", ""}, rest); diff != "" {
		t.Error(diff)
	}
	var out bytes.Buffer
	table(&out, scenarios)
	for _, want := range []string{
		"no port", "panic: test timed out", "for make e2e-full",
		"    contestant     milliseconds\n    raven                     74\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
	for _, not := range []string{"deprecated", "printed by a program"} {
		if strings.Contains(out.String(), not) {
			t.Errorf("the table has %q:\n%s", not, out.String())
		}
	}
}

func TestCompilersAreHeard(t *testing.T) {
	scenarios, rest, err := follow(strings.NewReader("# suite\n./x_test.go:1:1: undefined: y\n"), &bytes.Buffer{},
		&bytes.Buffer{})
	if err != nil || len(scenarios) != 0 || !strings.Contains(strings.Join(rest, ""), "undefined: y") {
		t.Errorf("%v %q %v", scenarios, rest, err)
	}
}

// A server that is gone at the end of a run is a failure, also where all scenarios passed.
func TestAServerThatEndedIsAFailure(t *testing.T) {
	passed := []*scenario{{name: "TestA", result: "ok"}}
	for name, test := range map[string]struct {
		ended []string
		err   error
		want  int
		says  string
	}{
		"none":        {nil, nil, 0, ""},
		"one":         {[]string{"ovs-vswitchd does not run"}, nil, statusFailed, "FAILED: ovs-vswitchd does not run\n"},
		"interrupted": {[]string{"ovs-vswitchd does not run"}, errInterrupted, statusHarness, "interrupted"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			status := options{out: &out, complaints: &out}.verdict(passed, "", test.ended, test.err)
			if status != test.want || !strings.Contains(out.String(), test.says) {
				t.Errorf("the status is %d, not %d, or it does not say %q:\n%s", status, test.want, test.says, out.String())
			}
		})
	}
}

func TestARunThatShowsNothingIsNoSuccess(t *testing.T) {
	night := []*scenario{{name: "TestNight", result: "skip"}}
	for name, test := range map[string]struct {
		scenarios []*scenario
		err       error
		want      int
		says      string
	}{
		"none ran": {nil, nil, statusHarness, `no scenario matches "X"`},
		"skipped":  {night, nil, statusHarness, "every scenario was skipped"},
		"every part of it": {
			[]*scenario{{name: "TestA/v4", result: "skip"}, {name: "TestA", result: "ok"}},
			nil, statusHarness,
			"every scenario was skipped",
		},
		"one of them": {append([]*scenario{{name: "TestA", result: "ok"}}, night...), nil, 0, ""},
		"a part of one": {
			[]*scenario{{name: "TestA/v4", result: "skip"}, {name: "TestA/v6", result: "ok"}, {name: "TestA", result: "ok"}},
			nil, 0, "",
		},
		"interrupted": {
			[]*scenario{{name: "TestA", result: "ok"}, {name: "TestB", result: "cut"}},
			errInterrupted, statusHarness,
			"interrupted",
		},
		"failed, and interrupted": {
			[]*scenario{{name: "TestA", result: "FAIL"}, {name: "TestB", result: "cut"}},
			errInterrupted, statusFailed,
			"interrupted",
		},
		"not run to its end": {[]*scenario{{name: "TestA", result: "ok"}}, errors.New("no space"), statusHarness, "no space"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if status := (options{out: &out, complaints: &out}).verdict(test.scenarios, "X", nil,
				test.err); status != test.want || !strings.Contains(out.String(), test.says) {
				t.Errorf("the status is %d and not %d, or it does not say %q:\n%s", status, test.want, test.says, out.String())
			}
		})
	}
}

func TestWhatAnInterruptEndedIsNoFailure(t *testing.T) {
	const events = `{"Time":"2026-11-21T12:00:00Z","Action":"run","Test":"TestA"}
{"Time":"2026-11-21T12:00:05Z","Action":"run","Test":"TestA/v4"}
{"Time":"2026-11-21T12:00:30Z","Action":"output","Test":"TestA/v4","Output":"    a_test.go:1: measured\n"}
`
	scenarios, _, err := follow(strings.NewReader(events), &bytes.Buffer{}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	table(&out, cut(scenarios))
	for _, want := range []string{
		"A                                                            cut         30.0\n    interrupted",
		"cut         25.0\n      interrupted: it shows nothing\n      measured\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
}

// What stands is somebody's, who may be an hour into his scenarios: packages that cannot be installed are no reason
// to take it down.
func TestAStackThatStandsIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	state := filepath.Join(dir, "stack.json")
	if err := os.WriteFile(state, []byte(`{"network":{"prefix":"rvtest"}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // an interrupt, from the first moment on
	var out bytes.Buffer
	o := options{dir: dir, repository: "../../../..", upBound: time.Second, out: &out, complaints: &out}
	if status := o.run(ctx, ""); status != statusHarness ||
		!strings.Contains(out.String(), "make e2e-down E2E_DIR="+dir+" takes it down") {
		t.Errorf("the status is %d, and it says:\n%s", status, out.String())
	}
	if _, err := os.Stat(state); err != nil {
		t.Errorf("the stack was taken down: %v", err)
	}
	// And where none stood there are no logs of one.
	out.Reset()
	o.dir = filepath.Join("/tmp", "rv-none")
	if status := o.run(ctx, ""); status == 0 || strings.Contains(out.String(), "logs") {
		t.Errorf("the status is %d, and it says:\n%s", status, out.String())
	}
}
