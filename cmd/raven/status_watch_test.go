// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kuryr/raven/service/daemon"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
)

// What is drawn on a terminal fits it, colours or not.
func TestRedrawFits(t *testing.T) {
	report := daemon.Report{}
	for i := range 40 {
		report.Objects = append(report.Objects, reconcile.ObjectStatus{
			Kind: "Pod", Namespace: "shop", Name: fmt.Sprintf("web-%d", i), Driver: "pod", State: state.Waiting,
			Since:   time.Now(),
			Reasons: []string{strings.Repeat("a very long reason ", 20)},
		})
	}
	for _, err := range []error{nil, errors.New(strings.Repeat("the daemon does not answer ", 10))} {
		var out strings.Builder
		s := streams{out: &out, colour: true, size: func() (int, int) { return 80, 24 }}
		redraw(s, report, err)
		text, cleared := strings.CutPrefix(out.String(), "\x1b[H\x1b[2J")
		if lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n"); !cleared || len(lines) > 23 {
			t.Errorf("%d lines:\n%s", len(lines), text)
		}
		for _, line := range strings.Split(text, "\n") {
			plain := strings.NewReplacer("\x1b[0m", "", "\x1b["+red+"m", "", "\x1b["+yellow+"m", "").Replace(line)
			if n := len([]rune(plain)); n > 80 {
				t.Errorf("%d columns: %q", n, line)
			}
		}
		if err == nil && !strings.Contains(text, "more lines") {
			t.Errorf("it does not say that there is more:\n%s", text)
		}
		if err == nil && !strings.Contains(text, "\n    a very long reason a very") {
			t.Errorf("it does not say why:\n%s", text)
		}
	}
}

// What an operator has to look at is on the first page, however many objects are done.
func TestRedrawShowsFailuresFirst(t *testing.T) {
	report := daemon.Report{}
	for i := range 40 {
		report.Objects = append(report.Objects, reconcile.ObjectStatus{
			Kind: "Pod", Namespace: "shop", Name: fmt.Sprintf("web-%d", i), Driver: "pod", State: state.Done,
			Messages: []string{"its namespace is excluded"},
		})
	}
	for _, phase := range []state.Phase{state.Waiting, state.Failing} {
		report.Objects = append(report.Objects, reconcile.ObjectStatus{
			Kind: "Pod", Namespace: "shop", Name: string(phase), Driver: "pod", State: phase,
			Reasons: []string{`creating port "web": 409 OverQuota: Quota exceeded for resources: ['port'].`},
		})
	}
	var out strings.Builder
	redraw(streams{out: &out, size: func() (int, int) { return 80, 24 }}, report, nil)
	text := out.String()
	failing, waiting, done := strings.Index(text, "shop/failing"), strings.Index(text, "shop/waiting"),
		strings.Index(text, "shop/web-0")
	if failing < 0 || waiting < failing || done < waiting {
		t.Errorf("the order is not failing, waiting, done:\n%s", text)
	}
	if strings.Contains(text, "excluded") {
		t.Errorf("it says why there is nothing of objects that are done:\n%s", text)
	}
	if n := strings.Count(text, `    creating port "web": 409 OverQuota: Quota exceeded for resources: ['port'].`); n != 2 {
		t.Errorf("it says %d times why:\n%s", n, text)
	}
}

// A reason takes a few lines of a terminal at most.
func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text  string
		lines int
		want  []string
	}{
		{"", 3, nil},
		{"one two three", 3, []string{"one two", "three"}},
		{"one two three four five", 2, []string{"one two", "three …"}},
		{"one two four five six", 1, []string{"one …"}},
		{"one two fourth six", 2, []string{"one two", "fourth …"}},
		{"one twothree four", 2, []string{"one", "twothr …"}},
		{"abcdefghijklmn op", 3, []string{"abcdefgh", "ijklmn", "op"}},
		{"abcdefghijklmnopqrs", 2, []string{"abcdefgh", "ijklmn …"}},
	} {
		if got := wrap(c.text, 8, c.lines); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, wanted %q", c.text, got, c.want)
		}
	}
}

// Only what is other than at the last look is a line.
func TestStatusChanges(t *testing.T) {
	var out strings.Builder
	s := &statusChanges{out: streams{out: &out}, last: map[string]string{}}
	said := func() string {
		defer out.Reset()
		return out.String()
	}
	pod := reconcile.ObjectStatus{Kind: "Pod", Namespace: "shop", Name: "a", Driver: "pod", State: state.Waiting}
	report := daemon.Report{Objects: []reconcile.ObjectStatus{pod}}
	for _, step := range []struct {
		change func()
		err    error
		want   string
	}{
		{change: func() {}, want: "Pod shop/a, driver pod  waiting\n"},
		{change: func() {}, want: ""},
		{change: func() { report.Objects[0].State = state.Done }, want: "Pod shop/a, driver pod  done\n"},
		{change: func() {}, err: errors.New("no answer"), want: "daemon  no answer\n"},
		{change: func() {}, err: errors.New("no answer"), want: ""},
		{change: func() { report.Objects = nil }, want: "Pod shop/a, driver pod  is gone\n"},
	} {
		step.change()
		s.show(report, step.err)
		if got := said(); !strings.Contains(got, step.want) || (step.want == "") != (got == "") {
			t.Errorf("it says %q, wanted %q", got, step.want)
		}
	}
}
