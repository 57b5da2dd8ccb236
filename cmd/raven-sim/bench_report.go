// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// benchReport is what bench prints.
type benchReport struct {
	Machine   machineFacts     `json:"machine"`
	Started   time.Time        `json:"started"`
	Pods      int              `json:"pods"` // of a burst; the large ones have ten times that
	Scenarios []scenarioReport `json:"scenarios"`
}

// scenarioReport is what one scenario measured.
type scenarioReport struct {
	Name     string    `json:"name"`
	About    string    `json:"about"`
	Measures []measure `json:"measures"`
	Problem  string    `json:"problem,omitempty"` // why there are not all measures
}

// measure is one measured number, or a text where there is no unit.
type measure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"`
	Text  string  `json:"text,omitempty"`
	Aim   string  `json:"aim,omitempty"`
	Note  string  `json:"note,omitempty"`
}

func (r *scenarioReport) add(m measure) { r.Measures = append(r.Measures, m) }

func (r *scenarioReport) addTime(name string, d time.Duration, aim, note string) {
	m := measure{Name: name, Value: d.Seconds(), Unit: "s", Aim: aim, Note: note}
	if d < time.Second {
		m.Value, m.Unit = d.Seconds()*1000, "ms"
	}
	r.add(m)
}

// addNone adds a count of what there should be none of.
func (r *scenarioReport) addNone(name string, n int) {
	r.add(measure{Name: name, Value: float64(n), Aim: "0"})
}

// String is the value as people read it.
func (m measure) String() string {
	text := m.Text
	if text == "" {
		switch {
		case m.Value == math.Trunc(m.Value):
			text = fmt.Sprintf("%.0f", m.Value)
		case math.Abs(m.Value) < 1:
			text = fmt.Sprintf("%.3f", m.Value)
		case math.Abs(m.Value) < 100:
			text = fmt.Sprintf("%.2f", m.Value)
		default:
			text = fmt.Sprintf("%.0f", m.Value)
		}
	}
	return strings.TrimSpace(text + " " + m.Unit)
}

func (r benchReport) markdown(out io.Writer) {
	m := r.Machine
	fmt.Fprintf(out, "# Raven on the simulations, %s\n\n", r.Started.Format("2006-01-02 15:04"))
	fmt.Fprintf(out,
		"%d cores, %s, %s memory, %s, %s; load average before: %s. Core, drivers, simulations and load generator share "+
			"them.\n",
		m.Cores, m.CPU, m.Memory, m.System, m.Go, m.Load)
	for _, s := range r.Scenarios {
		fmt.Fprintf(out, "\n## %s\n\n%s\n", s.Name, s.About)
		if len(s.Measures) > 0 {
			rows := [][]string{{"", "measured", "aim", ""}}
			for _, m := range s.Measures {
				rows = append(rows, []string{m.Name, m.String(), m.Aim, m.Note})
			}
			writeTable(out, rows)
		}
		if s.Problem != "" {
			fmt.Fprintf(out, "\n**Not measured to the end:** %s\n", s.Problem)
		}
	}
}

func writeTable(out io.Writer, rows [][]string) {
	rows = slices.Insert(rows, 1, []string{"---", "---:", "---", "---"})
	for i, row := range rows {
		for n, cell := range row {
			row[n] = " " + cell + strings.Repeat(" ", max(0, widest(rows, n)-seen(cell))) + " "
			if i == 1 {
				row[n] = " " + cell + " "
			}
		}
	}
	fmt.Fprintln(out)
	for _, row := range rows {
		fmt.Fprintf(out, "|%s|\n", strings.Join(row, "|"))
	}
}

// widest is the width of a column before it is padded.
func widest(rows [][]string, column int) int {
	width := 0
	for _, row := range rows {
		width = max(width, seen(strings.TrimSpace(row[column])))
	}
	return width
}

// percentile returns the value below which that share of the sorted values lies.
func percentile(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(math.Ceil(share*float64(len(sorted))))-1)]
}

// sumText lists counts by name, the largest first.
func sumText(counts map[string]int) string {
	names := make([]string, 0, len(counts))
	for name, n := range counts {
		if n > 0 {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if counts[a] != counts[b] {
			return counts[b] - counts[a]
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%d %s", counts[name], name)
	}
	return strings.Join(names, ", ")
}
