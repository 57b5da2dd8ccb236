// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"unicode/utf8"
)

// columns lines up cells, which may be painted, by their widths as they are seen.
func columns(rows [][]string) []string {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], seen(cell))
		}
	}
	lines := make([]string, len(rows))
	for n, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-seen(cell)+2))
			}
		}
		lines[n] = b.String()
	}
	return lines
}

// seen is how many characters of a text are seen: paint is not.
func seen(text string) int {
	n := 0
	walk(text, func(_ string, visible bool) bool {
		if visible {
			n++
		}
		return true
	})
	return n
}

// cut returns what of a line fits into a width, with all paint up to there.
func cut(line string, width int) string {
	var b strings.Builder
	n := 0
	walk(line, func(piece string, visible bool) bool {
		if visible {
			if n == width {
				return false
			}
			n++
		}
		b.WriteString(piece)
		return true
	})
	return b.String()
}

// walk goes through a text by characters and by escape sequences for paint, until f returns false.
func walk(text string, f func(piece string, visible bool) bool) {
	for text != "" {
		size, visible := 0, true
		if strings.HasPrefix(text, "\x1b[") {
			if end := strings.IndexByte(text, 'm'); end > 0 {
				size, visible = end+1, false
			}
		}
		if size == 0 {
			_, size = utf8.DecodeRuneInString(text)
		}
		if !f(text[:size], visible) {
			return
		}
		text = text[size:]
	}
}
