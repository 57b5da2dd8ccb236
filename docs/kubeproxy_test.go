// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every test that the table of kube-proxy's features names is there.
func TestKubeProxyTable(t *testing.T) {
	page, err := os.ReadFile("kubeproxy.md")
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for line := range strings.Lines(string(page)) {
		for _, found := range regexp.MustCompile("`([a-z0-9/]+) "+
			"(Test[A-Za-z]+)(?:/([a-z0-9-]+))?`").FindAllStringSubmatch(line, -1) {
			named++
			if why := missing(t, found[1], found[2], found[3]); why != "" {
				t.Errorf("%s: %s", strings.TrimSpace(found[0]), why)
			}
		}
	}
	if named < 50 {
		t.Errorf("only %d tests are named", named)
	}
}

// missing says why there is no such test, "" if there is one.
func missing(t *testing.T, folder, test, part string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	if !strings.Contains(all.String(), "func "+test+"(") {
		return "there is no such test"
	}
	if part == "" || strings.Contains(all.String(), `"`+part+`"`) {
		return ""
	}
	if _, err := os.Stat(filepath.Join("..", folder, "testdata", part, "want.yaml")); err != nil {
		return "there is no such case"
	}
	return ""
}
