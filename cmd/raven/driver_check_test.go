// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kuryr/raven/service/daemon"
	"github.com/kuryr/raven/service/host/confine"
	"github.com/kuryr/raven/test/programs"
)

// The test binary is a Raven that becomes a driver, too.
func TestMain(m *testing.M) {
	if confine.Called(os.Args) {
		confine.Main(os.Args)
	}
	os.Exit(m.Run())
}

// A program that is put to the test may be anything: nothing of it runs with what its tester may do, unless he says so.
func TestCheckedProgramIsConfined(t *testing.T) {
	if confine.Landlock() == 0 {
		t.Skip("this kernel has no Landlock, which keeps files from a driver")
	}
	folder := t.TempDir()
	driver := filepath.Join(folder, "raven-driver-hostile")
	if err := programs.Put(folder, programs.Hostile); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil { // whoever it runs as
		t.Fatal(err)
	}
	trace := filepath.Join(open, "trace")
	script := filepath.Join(t.TempDir(), daemon.ProgramPrefix+"hostile")
	text := "#!/bin/sh\n: 2>/dev/null >" + trace + " || true\nexec " + driver + ` "$@"` + "\n"
	text = strings.Replace(text, ": 2>", "command : 2>", 1) // a redirection that fails does not end a shell then
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	check := []string{"driver", "check", "--set", "driver:hostile.allow_read=" + driver}
	status, out, errs := command(t, append(check, script, "--", "garbage-answers")...)
	if status != exitError || !strings.Contains(out, "pass  host") || !strings.Contains(out, "pass  start") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	if _, err := os.Stat(trace); err == nil {
		t.Error("it wrote where a driver may not")
	}
	if status, out, errs := command(t, append(check, "--unconfined", script, "--",
		"garbage-answers")...); status != exitError {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	if _, err := os.Stat(trace); err != nil {
		t.Errorf("this test does not show what it should: %v", err)
	}
}
