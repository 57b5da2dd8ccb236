// SPDX-License-Identifier: Apache-2.0

package modules_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kuryr/raven/ci/release/modules"
)

const isc = `Copyright (c) 2020 A. Person

Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted,
provided that the above copyright notice and this permission notice appear in all copies.

THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH REGARD TO THIS SOFTWARE INCLUDING ALL
IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT,
INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES WHATSOEVER RESULTING FROM LOSS OF USE, DATA OR PROFITS, WHETHER IN AN
ACTION OF CONTRACT, NEGLIGENCE OR OTHER TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR PERFORMANCE OF
THIS SOFTWARE.
`

func TestLicenses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, file, text string
		want             []string
		says             string
	}{
		{name: "a known license", file: "LICENSE", text: isc, want: []string{"ISC"}},
		{name: "by another name", file: "licence.txt", text: isc, want: []string{"ISC"}},
		{name: "no license", file: "README.md", text: isc, says: "there is no file with a license"},
		{name: "an unknown license", file: "COPYING", text: "Give me all that you have.\n", says: "0% of COPYING"},
		{name: "a known one with more", file: "LICENSE", text: isc + strings.Repeat("And pay me a fee. ", 100),
			says: "read it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cache := t.TempDir()
			folder := filepath.Join(cache, "example.org", "!upper", "lib@v1.0.0") // as the cache writes Upper
			if err := os.MkdirAll(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(folder, test.file), []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := modules.Module{Path: "example.org/Upper/lib", Version: "v1.0.0"}.Licenses(cache)
			switch {
			case test.says == "" && (err != nil || !slices.Equal(got, test.want)):
				t.Errorf("%v (%v), want %v", got, err, test.want)
			case test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)):
				t.Errorf("the error is %v, and does not say %q", err, test.says)
			}
		})
	}
}

func TestModulesOfAProgram(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "licenses")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", program, "../licenses")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building licenses: %v\n%s", err, out)
	}
	all, golang, err := modules.Of([]string{program, program})
	if err != nil || !strings.HasPrefix(golang, "go1.") {
		t.Fatalf("built with %q (%v)", golang, err)
	}
	var paths []string
	for _, m := range all {
		paths = append(paths, m.Path)
	}
	if want := []string{"github.com/google/licensecheck", "golang.org/x/mod"}; !slices.Equal(paths, want) {
		t.Errorf("the modules are %q, want %q", paths, want)
	}
	// The program of a test does not say it.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if all, _, err := modules.Of([]string{self}); err == nil {
		t.Errorf("a program that says nothing is made of %v", all)
	}
}
