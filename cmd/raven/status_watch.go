// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/service"
	"github.com/kuryr/raven/service/daemon"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
)

// watchInterval is the time between two looks of `raven status -w`.
const watchInterval = time.Second

// watchStatus shows the status until ctx ends: on a terminal it is drawn anew, elsewhere each change is a line.
func watchStatus(ctx context.Context, out streams, address string, query url.Values) error {
	var show func(daemon.Report, error)
	if out.size != nil {
		show = func(r daemon.Report, err error) { redraw(out, r, err) }
	} else {
		changes := &statusChanges{out: out, last: map[string]string{}}
		show = changes.show
	}
	loop := service.Loop{Clock: clock.RealClock{}, Name: "status", Interval: watchInterval}
	_ = loop.Run(ctx, func(ctx context.Context) error {
		report, err := askStatus(ctx, address, query)
		if ctx.Err() == nil {
			show(report, err)
		}
		return nil
	})
	return nil // it ends when it is asked to
}

// redraw fills a terminal, from its first line on.
func redraw(out streams, r daemon.Report, err error) {
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s  raven status, every %s; Ctrl-C ends it\n\n", time.Now().Format(time.TimeOnly), watchInterval)
	inner := out
	inner.out = &text
	width, height := out.size()
	if err == nil {
		if err = printDaemon(inner, r); err == nil && len(r.Objects) > 0 {
			err = printObjects(inner, r.Objects, width)
		}
	}
	if err != nil {
		fmt.Fprintln(&text, out.paint(red, err.Error()))
	}
	fmt.Fprintf(out.out, "\x1b[H\x1b[2J%s", fit(text.String(), width, height))
}

// maxReasonLines is how many lines of a terminal the reason of one object takes.
const maxReasonLines = 3

// printObjects prints a line for each object, those first that an operator has to look at, and beneath it why it is not
// done.
func printObjects(out streams, objects []reconcile.ObjectStatus, width int) error {
	order := []state.Phase{state.Terminal, state.Failing, state.Waiting, state.Pending, state.Done}
	objects = slices.Clone(objects)
	slices.SortStableFunc(objects, func(a, b reconcile.ObjectStatus) int {
		return cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State))
	})
	var rows [][]string
	for _, o := range objects {
		name := strings.TrimPrefix(objectText(o), o.Kind+" ")
		rows = append(rows, []string{o.Kind, name, o.Driver, string(o.State), age(o.Since), addressesText(o)})
	}
	var lines bytes.Buffer
	if err := table(&lines, []string{"KIND", "OBJECT", "DRIVER", "STATE", "SINCE", "ADDRESSES"}, rows); err != nil {
		return err
	}
	header, rest, _ := strings.Cut(lines.String(), "\n")
	fmt.Fprintf(out.out, "\n%s\n", header)
	next := strings.Split(strings.TrimSuffix(rest, "\n"), "\n")
	for _, o := range objects {
		fmt.Fprintln(out.out, out.paint(stateColour(string(o.State)), next[0]))
		if next = next[1:]; o.State == state.Done {
			continue
		}
		for _, part := range wrap(reasonText(o), width-reasonIndent, maxReasonLines) {
			fmt.Fprintf(out.out, "%*s%s\n", reasonIndent, "", part)
		}
	}
	return nil
}

const reasonIndent = 4

// wrap breaks a text between words, and words that are longer than a line, into lines of at most width columns; what is
// beyond the last line is cut.
func wrap(text string, width, lines int) []string {
	width = max(width, len("x …"))
	var parts []string
	for _, word := range strings.Fields(text) {
		for pieces := slices.Collect(slices.Chunk([]rune(word), width)); len(pieces) > 0; pieces = pieces[1:] {
			piece := string(pieces[0])
			last := len(parts) - 1
			switch {
			case last >= 0 && utf8.RuneCountInString(parts[last])+1+len(pieces[0]) <= width:
				parts[last] += " " + piece
			case len(parts) == lines:
				parts[last] = cutShort(parts[last], width)
				return parts
			default:
				parts = append(parts, piece)
			}
		}
	}
	return parts
}

// cutShort ends a line with a sign that there is more: after its last word that leaves room for that, if there is one.
func cutShort(line string, width int) string {
	const sign = " …"
	room := width - utf8.RuneCountInString(sign)
	if runes := []rune(line); len(runes) > room {
		line = string(runes[:room])
		if runes[room] != ' ' {
			line = line[:cmp.Or(max(strings.LastIndex(line, " "), 0), len(line))]
		}
	}
	return strings.TrimRight(line, " ") + sign
}

// fit cuts a text to the lines and columns of a terminal, and says what is missing. Colours take no room.
func fit(text string, width, height int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if missing := len(lines) - (height - 1); missing > 0 && height > 2 {
		lines = append(lines[:height-2], fmt.Sprintf("… %d more lines; filter with -n, --kind, --state", missing+1))
	}
	for i, line := range lines {
		lines[i] = cutColumns(line, width)
	}
	return strings.Join(lines, "\n") + "\n"
}

// cutColumns cuts a line to a width, without counting sequences that colour it.
func cutColumns(line string, width int) string {
	column, coloured, escape := 0, false, false
	for i, r := range line {
		switch {
		case escape:
			escape = r != 'm'
			continue
		case r == '\x1b':
			escape, coloured = true, true
			continue
		case column == width-1 && i+len(string(r)) < len(line):
			if coloured {
				return line[:i] + "\x1b[0m…"
			}
			return line[:i] + "…"
		}
		column++
	}
	return line
}

// statusChanges prints what is other than at the last look.
type statusChanges struct {
	out  streams
	last map[string]string // by what it is about
}

func (s *statusChanges) show(r daemon.Report, err error) {
	now := map[string]string{}
	switch {
	case err != nil:
		s.line("daemon", err.Error())
		return
	case r.WaitsFor != "":
		now["daemon"] = "the start waits for " + r.WaitsFor
	default:
		now["daemon"] = "answers"
	}
	for _, d := range r.Drivers {
		now["driver "+d.Name] = strings.TrimSpace(d.State + " " + d.Problem)
	}
	for _, o := range r.Objects {
		text := string(o.State)
		if addresses := addressesText(o); addresses != "" {
			text += " " + addresses
		}
		if len(o.Reasons) > 0 {
			text += ": " + o.Reasons[0]
		}
		now[objectText(o)+", driver "+o.Driver] = text
	}
	for _, what := range sortedKeys(now) {
		s.line(what, now[what])
	}
	for _, what := range sortedKeys(s.last) {
		if _, there := now[what]; !there {
			s.line(what, "is gone")
			delete(s.last, what)
		}
	}
}

func (s *statusChanges) line(what, text string) {
	if s.last[what] != text {
		s.last[what] = text
		fmt.Fprintf(s.out.out, "%s  %s  %s\n", time.Now().Format(time.TimeOnly), what, text)
	}
}

func objectText(o reconcile.ObjectStatus) string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// addressesText are the addresses that an object's own resources have.
func addressesText(o reconcile.ObjectStatus) string {
	var list []string
	for _, r := range o.Resources {
		if address := addressOf(r); !r.Shared && address != "" && !slices.Contains(list, address) {
			list = append(list, address)
		}
	}
	return strings.Join(list, " ")
}
