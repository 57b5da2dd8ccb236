// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kuryr/raven/plugins/sdktest/conformance"
)

// command runs a command and returns its exit status and what it printed.
func command(t *testing.T, args ...string) (status int, out, errs string) {
	t.Helper()
	t.Setenv("HOME", t.TempDir()) // whose configuration is not ours
	var printed, said bytes.Buffer
	status = run(t.Context(), args, streams{in: strings.NewReader(""), out: &printed, err: &said})
	return status, printed.String(), said.String()
}

func TestCheckOfWhatIsNoDriver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "raven-driver-x")
	status, out, errs := command(t, "driver", "check", path, "-o", "json")
	var report conformance.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if status != exitError || len(report.Results) != 1 || report.Results[0].Check != "host" ||
		report.Results[0].Verdict != conformance.Fail {
		t.Errorf("status %d, %+v", status, report)
	}
	if !strings.Contains(report.Results[0].Details[0], path) || !strings.Contains(errs, "plugin-protocol.md") {
		t.Errorf("%v; %s", report.Results[0].Details, errs)
	}
	for _, args := range [][]string{{"driver", "check"}, {"driver", "check", path, "-o", "xml"}} {
		if status, _, _ := command(t, args...); status != exitUsage {
			t.Errorf("%v: status %d", args, status)
		}
	}
}

func TestNewDriver(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	status, out, errs := command(t, "driver", "new", "salut", "--lang", "python", "--dir", dir)
	if status != exitOK || !strings.Contains(out, "make test check run") {
		t.Fatalf("status %d: %s%s", status, out, errs)
	}
	if _, err := os.Stat(filepath.Join(dir, "raven_driver", "contract.py")); err != nil {
		t.Error(err)
	}
	for why, test := range map[string]struct {
		args   []string
		status int
		says   string
	}{
		"there already": {[]string{"salut", "--lang", "python", "--dir", dir}, exitError, "not empty"},
		"a bad name":    {[]string{"Salut"}, exitUsage, "no name of a driver"},
		"no source":     {[]string{"salut", "--dir", dir + "2"}, exitError, "--raven"},
		"no checkout":   {[]string{"salut", "--dir", dir + "2", "--raven", dir}, exitError, "checkout of Raven"},
	} {
		status, _, errs := command(t, append([]string{"driver", "new"}, test.args...)...)
		if status != test.status || !strings.Contains(errs, test.says) {
			t.Errorf("%s: status %d, %s", why, status, errs)
		}
		if _, err := os.Stat(dir + "2"); err == nil {
			t.Errorf("%s: something was written", why)
		}
	}
}
