// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/kuryr/raven/plugins/sdktest/conformance"
	"github.com/kuryr/raven/test/programs"
)

// defective is the driver that the suite is tried on, built without the race detector as drivers are.
var defective string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "conformance")
	if err == nil {
		defer func() { _ = os.RemoveAll(folder) }()
		defective = filepath.Join(folder, "defective")
		err = errors.Join(programs.Put(folder, programs.Defective), flag.Set("test.parallel", "4")) // they wait for processes
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance tests:", err)
		return 1
	}
	return m.Run()
}

func check(t *testing.T, defect string, patience time.Duration, only ...string) conformance.Report {
	t.Helper()
	report, err := conformance.Run(t.Context(), conformance.Config{
		Start: conformance.Program(defective, defect), Patience: patience, Load: time.Second, Only: only,
		Objects: []map[string]any{
			{
				"apiVersion": "example.org/v1", "kind": "Widget",
				"metadata": map[string]any{"name": "mine", "namespace": "default", "labels": map[string]any{"shown": "yes"}},
				"spec":     map[string]any{"size": int64(3)},
			},
			{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "default"}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func failed(report conformance.Report) []string {
	var names []string
	for _, result := range report.Results {
		if result.Verdict == conformance.Fail {
			names = append(names, result.Check)
		}
	}
	return names
}

func TestGoodDriverPasses(t *testing.T) {
	t.Parallel()
	report := check(t, "none", 2*time.Minute)
	if report.Failed() || report.Driver != "widget" || len(report.Results) != 17 {
		t.Errorf("%d results: %+v", len(report.Results), report)
	}
	for _, result := range report.Results {
		if result.Verdict != conformance.Pass {
			t.Errorf("%+v", result)
		}
	}
}

// Each defect must be found by the check that is there for it.
func TestDefectsAreFound(t *testing.T) {
	t.Parallel()
	for defect, by := range map[string]string{
		"no-driver": "start", "name": "info", "kind": "info", "default": "info", "refuses": "configure",
		"no-source": "watches",
		"selector":  "watches", "invalid": "translate", "unknown-watch": "translate", "unsettled": "needs",
		"state": "determinism",
		"order": "determinism", "clock": "processes", "environment": "processes", "opens": "purity", "starts": "purity",
		"keeps":  "memory",
		"panics": "bad-objects", "dies": "bad-objects", "hangs": "huge-objects", "orphan": "processes",
	} {
		t.Run(defect, func(t *testing.T) {
			t.Parallel()
			if names := failed(check(t, defect, 2*time.Second, by)); !slices.Contains(names, by) {
				t.Errorf("it is not found by %q; failed: %v", by, names)
			}
		})
	}
}
