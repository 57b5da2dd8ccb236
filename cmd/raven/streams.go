// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/term"
	"sigs.k8s.io/yaml"
)

// streams is where a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
	colour   bool
	// size is that of the terminal that out is, in columns and lines; nil: it is none.
	size func() (width, height int)
}

func standardStreams() streams {
	s := streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	if terminal := int(os.Stdout.Fd()); term.IsTerminal(terminal) {
		s.colour = os.Getenv("NO_COLOR") == ""
		s.size = func() (int, int) {
			width, height, err := term.GetSize(terminal)
			if err != nil || width < 2 || height < 2 {
				return 80, 24
			}
			return width, height
		}
	}
	return s
}

// The colours of a terminal.
const (
	green  = "32"
	yellow = "33"
	red    = "31"
	dim    = "2"
	bold   = "1"
)

// paint colours a text where the output is a terminal that wants it.
func (s streams) paint(code, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// outputFormats are the values of -o.
func outputFormats() []string { return []string{"table", "json", "yaml"} }

func checkFormat(format string) error {
	if !slices.Contains(outputFormats(), format) {
		return statusError{exitUsage, fmt.Errorf("-o %q: it must be one of %s", format, strings.Join(outputFormats(), ", "))}
	}
	return nil
}

// structured prints a value as JSON or YAML.
func structured(w io.Writer, format string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("rendering %s: %w", format, err)
	}
	if format == "yaml" {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return fmt.Errorf("rendering yaml: %w", err)
		}
	} else {
		text = append(text, '\n')
	}
	_, err = w.Write(text)
	return err
}

// table prints rows in aligned columns.
func table(w io.Writer, header []string, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, strings.Join(header, "\t"))
	for _, row := range rows {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	return tw.Flush()
}
