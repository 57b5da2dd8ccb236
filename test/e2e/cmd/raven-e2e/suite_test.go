package main

import (
	"bytes"
	"strings"
	"testing"

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
	if diff := cmp.Diff([]string{"FAIL TestPods/v4", "FAIL TestPods", "skip TestNight", "ok TestSpeed", "FAIL TestCut"}, got); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(log.String(), "no port") {
		t.Error("the log lacks what a scenario said")
	}
	if diff := cmp.Diff([]string{"", "FAIL\n", ""}, rest); diff != "" {
		t.Error(diff)
	}
	var out bytes.Buffer
	if !table(&out, scenarios) {
		t.Error("the table shows no failure")
	}
	for _, want := range []string{"no port", "panic: test timed out", "for make e2e-full", "    contestant     milliseconds\n    raven                     74\n"} {
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
	scenarios, rest, err := follow(strings.NewReader("# suite\n./x_test.go:1:1: undefined: y\n"), &bytes.Buffer{}, &bytes.Buffer{})
	if err != nil || len(scenarios) != 0 || !strings.Contains(strings.Join(rest, ""), "undefined: y") {
		t.Errorf("%v %q %v", scenarios, rest, err)
	}
	if table(&bytes.Buffer{}, scenarios) {
		t.Error("the table of no scenarios shows a failure")
	}
}
