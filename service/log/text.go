// SPDX-License-Identifier: Apache-2.0

package log

import (
	"context"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"unicode"
)

// textHandler writes "2026-01-02 15:04:05.000 INFO  message key=value group.key="a value"".
type textHandler struct {
	out   io.Writer
	mu    *sync.Mutex // one line at a time
	level slog.Leveler
	color bool
	bare  bool   // without time and level
	attrs string // formatted already, with a leading blank each
	group string // prefix of keys, with a trailing dot
}

func newTextHandler(out io.Writer, level slog.Leveler, color bool) *textHandler {
	return &textHandler{out: out, mu: &sync.Mutex{}, level: level, color: color}
}

func (h *textHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level.Level()
}

func (h *textHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	clone := *h
	var b strings.Builder
	b.WriteString(h.attrs)
	for _, a := range attrs {
		h.write(&b, h.group, a)
	}
	clone.attrs = b.String()
	return &clone
}

func (h *textHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	clone := *h
	clone.group = h.group + name + "."
	return &clone
}

func (h *textHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	if !h.bare {
		if !r.Time.IsZero() {
			b.WriteString(r.Time.Format("2006-01-02 15:04:05.000 "))
		}
		before, after := h.paint(r.Level)
		name := levelName(r.Level)
		b.WriteString(before + name + after + strings.Repeat(" ", max(1, 6-len(name))))
	}
	b.WriteString(oneLine(r.Message))
	b.WriteString(h.attrs)
	var stack string
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "stack" && a.Value.Kind() == slog.KindString && !h.bare {
			stack = strings.TrimRight(a.Value.String(), "\n") // for people: below the line, not in it
			return true
		}
		h.write(&b, h.group, a)
		return true
	})
	b.WriteByte('\n')
	if stack != "" {
		b.WriteString("    " + strings.ReplaceAll(stack, "\n", "\n    ") + "\n")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := io.WriteString(h.out, b.String())
	return err
}

func levelName(l slog.Level) string {
	if l >= slog.LevelError {
		return "ERROR"
	}
	if l >= slog.LevelWarn {
		return "WARN"
	}
	return l.String()
}

func (h *textHandler) paint(l slog.Level) (before, after string) {
	switch {
	case !h.color:
		return "", ""
	case l >= slog.LevelError:
		before = "\x1b[31m"
	case l >= slog.LevelWarn:
		before = "\x1b[33m"
	case l >= slog.LevelInfo:
		before = "\x1b[32m"
	default:
		before = "\x1b[2m"
	}
	return before, "\x1b[0m"
}

func (h *textHandler) write(b *strings.Builder, prefix string, a slog.Attr) {
	value := a.Value.Resolve()
	if a.Equal(slog.Attr{}) {
		return
	}
	if value.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, member := range value.Group() {
			h.write(b, prefix, member)
		}
		return
	}
	b.WriteString(" " + quoted(prefix+a.Key) + "=")
	if value.Kind() == slog.KindTime {
		b.WriteString(value.Time().Format("2006-01-02T15:04:05.000Z07:00"))
		return
	}
	b.WriteString(quoted(value.String()))
}

// quoted quotes a text that would otherwise not read as one word.
func quoted(text string) string {
	if text == "" || strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || r == '"' || r == '=' || !unicode.IsPrint(r)
	}) {
		return strconv.Quote(text)
	}
	return text
}

// oneLine keeps a message from starting lines or colours of its own.
func oneLine(text string) string {
	if !strings.ContainsFunc(text, unicode.IsControl) {
		return text
	}
	text = strconv.Quote(text)
	return text[1 : len(text)-1]
}
