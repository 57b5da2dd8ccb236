// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTheCacheForgetsWhatNobodyUses(t *testing.T) {
	dir := t.TempDir()
	for name, age := range map[string]time.Duration{
		"e2e-databases-a.tar": 6 * 24 * time.Hour, "e2e-databases-b.tar": 8 * 24 * time.Hour,
		"e2e-databases-c.tar.1.new": time.Hour, "e2e-databases-d.tar.2.new": 25 * time.Hour,
		"golangci-lint": 1000 * time.Hour,
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Now(), time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	(&builder{Options: Options{Cache: dir}}).forgetDatabases()
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range left {
		left[i] = filepath.Base(left[i])
	}
	if diff := cmp.Diff([]string{"e2e-databases-a.tar", "e2e-databases-c.tar.1.new", "golangci-lint"}, left); diff != "" {
		t.Error(diff)
	}
}
