// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"gopkg.in/ini.v1"
)

// assignment is one "name = value" of a file as the pre-pass sees it; it knows where, ini.v1 knows what.
type assignment struct {
	section, name string
	line          int
	empty         bool
}

// parseFile reads one file by oslo's rules. ini.v1 knows neither lines nor oslo's strictness, so a pre-pass refuses
// what the two would read differently, notes the line of each assignment and strips trailing white space; then ini.v1
// splits names and values, and both are put together again in order.
func parseFile(path string, data []byte) ([]written, error) {
	clean, assignments, err := scan(path, data)
	if err != nil {
		return nil, err
	}
	file, err := ini.LoadSources(ini.LoadOptions{
		IgnoreInlineComment:        true,
		IgnoreContinuation:         true,
		AllowPythonMultilineValues: true,
		PreserveSurroundedQuote:    true,
		AllowShadows:               true,
		AllowDuplicateShadowValues: true,
		ChildSectionDelimiter:      "\x00",
		// Continuation lines are found by peeking into this buffer: a smaller one cuts long values.
		ReaderBufferSize: len(clean) + 1,
	}, clean)
	if err != nil {
		return nil, &Error{File: path, Message: "reading the configuration file: " + err.Error()}
	}
	values := make([]written, 0, len(assignments))
	left := map[Name][]string{} // values not yet taken, by section and name as written; ini.v1 leaves empty ones out
	for _, section := range file.Sections() {
		for _, key := range section.Keys() {
			left[Name{section.Name(), key.Name()}] = key.ValueWithShadows()
		}
	}
	for _, a := range assignments {
		var text string
		if !a.empty {
			n := Name{a.section, a.name}
			if len(left[n]) == 0 {
				return nil, &Error{File: path, Line: a.line, Group: a.section, Option: a.name, Message: "the value cannot be read"}
			}
			text, left[n] = unfold(left[n][0]), left[n][1:]
		}
		values = append(values, written{
			name: Name{a.section, a.name}.canonical(), text: text,
			origin: Origin{Source: FromFile, File: path, Line: a.line},
		})
	}
	return values, nil
}

// unfold joins continuation lines with newlines and strips matching outer quotes of the first line.
func unfold(raw string) string {
	lines := strings.Split(raw, "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	if first := lines[0]; len(first) > 1 && first[0] == first[len(first)-1] && (first[0] == '"' || first[0] == '\'') {
		lines[0] = first[1 : len(first)-1]
	}
	if lines[0] == "" && len(lines) > 1 {
		lines = lines[1:]
	}
	return strings.Join(lines, "\n")
}

// scanner is the state of the pre-pass.
type scanner struct {
	path    string
	line    int
	section string
	open    bool // the last line belongs to an assignment, so that an indented one continues it
	found   []assignment
	errs    []error
}

// scan returns the cleaned text and its assignments, or every error in the file, joined.
func scan(path string, data []byte) ([]byte, []assignment, error) {
	s := &scanner{path: path}
	var clean bytes.Buffer
	for line := range strings.Lines(strings.TrimPrefix(string(data), "\ufeff")) {
		s.line++
		line = strings.TrimRight(line, " \t\r\n\f\v")
		s.scanLine(line)
		clean.WriteString(line + "\n")
	}
	return clean.Bytes(), s.found, errors.Join(s.errs...)
}

func (s *scanner) fail(format string, args ...any) {
	s.errs = append(s.errs, &Error{File: s.path, Line: s.line, Group: s.section, Message: fmt.Sprintf(format, args...)})
}

func (s *scanner) scanLine(line string) {
	switch {
	case line == "" || line[0] == '#' || line[0] == ';':
		s.open = false
	case line[0] == ' ' || line[0] == '\t':
		if !s.open {
			s.fail("an indented line continues the value above it, and there is none")
			return
		}
		if last := len(s.found) - 1; last >= 0 {
			s.found[last].empty = false
		}
	case line[0] == '[':
		s.open = false
		name := strings.TrimSuffix(line[1:], "]")
		if len(name) == len(line)-1 || name == "" {
			s.fail("a group looks like [name], alone on its line")
			return
		}
		s.section = name
	default:
		s.open = true
		s.scanAssignment(line)
	}
}

func (s *scanner) scanAssignment(line string) {
	at := strings.IndexAny(line, "=:")
	if at < 0 {
		s.fail("neither a [group], nor name = value, nor a comment") // no text: it may be half a secret
		return
	}
	name, text := strings.TrimSpace(line[:at]), strings.TrimSpace(line[at+1:])
	switch {
	case name == "":
		s.fail("a value without a name")
	case name == "-" || strings.ContainsAny(name, "\"`"):
		s.fail("%q is not the name of an option", name)
	case s.section == "":
		s.fail("option %q stands before any group; put [%s] above it", name, DefaultGroup)
	case strings.HasPrefix(text, "`"):
		s.fail("%s: a value that begins with a backtick must stand in double quotes", name)
	case strings.HasPrefix(text, `"""`):
		s.fail("%s: a value must not begin with three double quotes; one pair around it is enough", name)
	default:
		s.found = append(s.found, assignment{s.section, name, s.line, text == ""})
	}
}
