// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
)

// said is what a scenario has logged by itself: measurements, known differences, why it was left out. What programs
// print beside is not in it.
func (s *scenario) said() []string {
	var lines []string
	within := false
	for _, line := range s.output {
		indent := len(line) - len(strings.TrimLeft(line, " "))
		switch at := logged.FindStringIndex(line); {
		case at != nil:
			within = true
			line = line[at[1]:]
		case !within || indent < continued:
			within = false
			continue
		default:
			line = line[continued:]
		}
		if text := strings.TrimRight(line, " "); text != "" {
			lines = append(lines, text)
		}
	}
	return lines
}

// logged is how a line begins that a test logs; those after it are indented by more.
var logged = regexp.MustCompile(`^ +[a-z_]+_test\.go:\d+: ?`)

const continued = 8

// table prints the scenarios and what they said, and before that all of what failed ones printed.
func table(w io.Writer, scenarios []*scenario) {
	for _, one := range scenarios {
		if one.result == "FAIL" {
			fmt.Fprintf(w, "\n%s said:\n", one.name)
			for _, line := range one.output[max(0, len(one.output)-60):] {
				fmt.Fprintln(w, line)
			}
		}
	}
	fmt.Fprintf(w, "\n%-60s %-6s %9s\n", "scenario", "result", "seconds")
	for _, one := range scenarios {
		indent := strings.Repeat("  ", strings.Count(one.name, "/"))
		fmt.Fprintf(w, "%-60s %-6s %9.1f\n", indent+strings.TrimPrefix(one.name, "Test"), one.result, one.seconds)
		if one.result == "FAIL" {
			continue // what it said is above
		}
		if one.result == "cut" {
			fmt.Fprintf(w, "    %sinterrupted: it shows nothing\n", indent)
		}
		for _, line := range one.said() {
			fmt.Fprintf(w, "    %s%s\n", indent, line)
		}
	}
}
