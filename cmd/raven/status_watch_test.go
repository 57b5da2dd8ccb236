// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
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
