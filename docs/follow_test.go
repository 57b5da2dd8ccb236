// SPDX-License-Identifier: Apache-2.0

//go:build examples

// Package docs_test follows a page of the documentation to the letter, as a reader would. It must never know more
// than the page says.
package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// step is a part of a page: commands to type, a file to write, or what the commands before it print.
type step struct {
	line     int
	commands string
	file     string
	text     string
	prints   []string
}

var named = regexp.MustCompile("^`([^`]+)`[^`]*:$")

// read takes a page apart. Commands stand in blocks of "sh", what they print in blocks of "text"; any other block is
// the content of the file that the paragraph before it names, or is only shown.
func read(page string) []step {
	var steps []step
	lines := strings.Split(page, "\n")
	paragraph := ""
	for i := 0; i < len(lines); i++ {
		kind, fence := strings.CutPrefix(lines[i], "```")
		if !fence {
			if lines[i] != "" {
				paragraph = lines[i]
			}
			continue
		}
		begin := i + 1
		for i++; lines[i] != "```"; i++ {
		}
		content := strings.Join(lines[begin:i], "\n") + "\n"
		switch file := named.FindStringSubmatch(paragraph); {
		case kind == "sh":
			steps = append(steps, step{line: begin, commands: content})
		case kind == "text":
			steps[len(steps)-1].prints = append(steps[len(steps)-1].prints, lines[begin:i]...)
		case file != nil:
			steps = append(steps, step{line: begin, file: file[1], text: content})
		}
		paragraph = ""
	}
	return steps
}

// script is all of a page in one shell, with a mark before each step.
func script(steps []step) string {
	var b strings.Builder
	b.WriteString("set -euo pipefail\nexec 2>&1\n")
	for i, s := range steps {
		fmt.Fprintf(&b, "echo '::step %d'\n", i)
		if s.file != "" {
			fmt.Fprintf(&b, "mkdir -p %q\ncat > %q <<'END-OF-FILE'\n%sEND-OF-FILE\n", filepath.Dir(s.file), s.file, s.text)
			continue
		}
		b.WriteString(s.commands)
	}
	return b.String()
}

func TestWritingADriver(t *testing.T) {
	page, err := os.ReadFile("writing-a-driver.md")
	if err != nil {
		t.Fatal(err)
	}
	steps := read(string(page))
	if len(steps) < 10 {
		t.Fatalf("the page has %d steps only", len(steps))
	}
	dir, err := os.MkdirTemp("", "f") //nolint:usetesting // short: sockets are below it
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	bash := exec.CommandContext(t.Context(), "bash")
	bash.Dir, bash.Stdin = "..", strings.NewReader(script(steps))
	bash.Env = append(os.Environ(), "TMPDIR="+dir, "MAKEFLAGS=", "MAKELEVEL=")
	out, failed := bash.CombinedOutput()
	parts := regexp.MustCompile(`(?m)^::step \d+\n`).Split(string(out), -1)[1:]
	if failed != nil {
		t.Fatalf("the commands of line %d do not work: %v\n%s", steps[len(parts)-1].line, failed, parts[len(parts)-1])
	}
	for i, s := range steps {
		for _, want := range s.prints {
			var pattern []string
			for _, piece := range strings.Split(strings.TrimSpace(want), "…") {
				pattern = append(pattern, regexp.QuoteMeta(piece))
			}
			if !regexp.MustCompile(strings.Join(pattern, ".*")).MatchString(parts[i]) {
				t.Errorf("the commands of line %d do not print %q:\n%s", s.line, want, parts[i])
			}
		}
	}
}
