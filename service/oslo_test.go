// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	osloTable = "../docs/oslo.md"
	osloNames = "testdata/oslo-api.txt"
)

func readLines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// TestOsloTable fails where a public name of oslo.service or oslo.config has no row in docs/oslo.md, where a row says
// neither what is here instead nor why nothing is, and where it names a test that does not exist.
func TestOsloTable(t *testing.T) {
	lines := readLines(t, osloTable)
	rows := map[string]bool{}
	code := regexp.MustCompile("`([^`]+)`")
	for i, line := range lines {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| oslo.") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 3 || strings.TrimSpace(cells[1]) == "" {
			t.Errorf("%s:%d: a row has three cells, and says what is here or why there is nothing", osloTable, i+1)
			continue
		}
		for _, name := range code.FindAllStringSubmatch(cells[0], -1) {
			rows[name[1]] = true
		}
		tests := code.FindAllStringSubmatch(cells[2], -1)
		if here := strings.TrimSpace(cells[1]); len(tests) == 0 && !strings.HasPrefix(here, "none") {
			t.Errorf("%s:%d: no test shows %q", osloTable, i+1, here)
		}
		for _, test := range tests {
			if !testExists(t, test[1]) {
				t.Errorf("%s:%d: there is no test %s", osloTable, i+1, test[1])
			}
		}
	}
	for _, name := range readLines(t, osloNames) {
		if !rows[strings.TrimPrefix(name, "option ")] {
			t.Errorf("%s has no row for %s", osloTable, name)
		}
	}
}

// testExists looks for a test that is written as folder.TestName.
func testExists(t *testing.T, name string) bool {
	t.Helper()
	folder, function, _ := strings.Cut(name, ".")
	place, known := map[string]string{
		"service": ".", "config": "config", "backdoor": "backdoor", "log": "log", "health": "health",
		"daemon": "daemon", "system": "../test/system",
	}[folder]
	files, err := filepath.Glob(filepath.Join(place, "*_test.go"))
	if err != nil || !known {
		return false
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte("\nfunc "+function+"(")) {
			return true
		}
	}
	return false
}

// TestOsloNamesAreFresh asks the Python packages for their public names again.
func TestOsloNamesAreFresh(t *testing.T) {
	var tried []string
	for _, python := range []string{"/usr/bin/python3", "python3"} { // Debian's packages belong to the former
		command := exec.CommandContext(t.Context(), python, "testdata/oslo-api.py")
		var said bytes.Buffer
		command.Stderr = &said
		out, err := command.Output()
		if err == nil {
			want := strings.Join(readLines(t, osloNames), "\n") + "\n"
			if diff := cmp.Diff(want, string(out)); diff != "" {
				t.Errorf("%s is stale, python3 testdata/oslo-api.py prints it (-file +now):\n%s", osloNames, diff)
			}
			return
		}
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		tried = append(tried, python+": "+err.Error()+" "+lines[len(lines)-1])
	}
	t.Skipf("the names of oslo.service and oslo.config are those in %s: no Python here knows them (%s); apt-get "+
		"install python3-oslo.service python3-oslo.config",
		osloNames, strings.Join(tried, "; "))
}
