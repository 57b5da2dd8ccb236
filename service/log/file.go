// SPDX-License-Identifier: Apache-2.0

package log

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
)

// reopener is a log file that can be opened anew.
type reopener struct {
	path   string
	stderr io.Writer // where lines go that the file does not take, as on a full disk

	mu      sync.Mutex // guards the rest; held while writing, so that a line goes to one file
	file    *os.File
	refused bool // the file did not take the last line
}

func openFile(path string, stderr io.Writer) (*reopener, error) {
	r := &reopener{path: path, stderr: stderr}
	file, err := r.open()
	if err != nil {
		return nil, err
	}
	r.file = file
	return r, nil
}

func (r *reopener) open() (*os.File, error) {
	//nolint:gosec // operators' groups read logs
	file, err := os.OpenFile(r.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, fmt.Errorf("opening the log file %q: %w", r.path, cause(err))
	}
	return file, nil
}

func (r *reopener) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, err := r.file.Write(p)
	if err == nil {
		r.refused = false
		return n, nil
	}
	if !r.refused {
		fmt.Fprintf(r.stderr, "writing the log file %q: %v; the log goes to standard error until it can be written\n",
			r.path, cause(err))
	}
	r.refused = true
	rest, err := r.stderr.Write(p[n:])
	return n + rest, err
}

func (r *reopener) reopen() error {
	file, err := r.open()
	if err != nil {
		return err
	}
	r.mu.Lock()
	old := r.file
	r.file, r.refused = file, false
	r.mu.Unlock()
	if err := old.Close(); err != nil {
		return fmt.Errorf("closing the old log file: %w", err)
	}
	return nil
}

func (r *reopener) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.file.Close()
}

// Syslog is what of *syslog.Writer the log uses.
type Syslog interface {
	Debug(string) error
	Info(string) error
	Warning(string) error
	Err(string) error
	Close() error
}

// syslogHandler sends each record, formatted by another handler, at its own severity.
type syslogHandler struct {
	out    Syslog
	format *format
}

// format is a handler with the buffer that it writes to.
type format struct {
	slog.Handler
	mu     *sync.Mutex // guards buffer, which all derived handlers share
	buffer *lineBuffer
}

type lineBuffer struct{ line []byte }

func (b *lineBuffer) Write(p []byte) (int, error) {
	b.line = append(b.line, p...)
	return len(p), nil
}

func newFormat(level slog.Leveler, json bool) *format {
	buffer := &lineBuffer{}
	f := &format{mu: &sync.Mutex{}, buffer: buffer}
	if json {
		f.Handler = slog.NewJSONHandler(buffer, &slog.HandlerOptions{Level: level})
		return f
	}
	text := newTextHandler(buffer, level, false)
	text.bare = true // syslog knows time and level
	f.Handler = text
	return f
}

func (f *format) with(h slog.Handler) *format {
	return &format{Handler: h, mu: f.mu, buffer: f.buffer}
}

func (h *syslogHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.format.Enabled(ctx, level)
}

func (h *syslogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &syslogHandler{h.out, h.format.with(h.format.Handler.WithAttrs(attrs))}
}

func (h *syslogHandler) WithGroup(name string) slog.Handler {
	return &syslogHandler{h.out, h.format.with(h.format.Handler.WithGroup(name))}
}

func (h *syslogHandler) Handle(ctx context.Context, r slog.Record) error {
	h.format.mu.Lock()
	h.format.buffer.line = h.format.buffer.line[:0]
	err := h.format.Handler.Handle(ctx, r)
	line := string(h.format.buffer.line)
	h.format.mu.Unlock()
	if err != nil {
		return err
	}
	switch {
	case r.Level < slog.LevelInfo:
		return h.out.Debug(line)
	case r.Level < slog.LevelWarn:
		return h.out.Info(line)
	case r.Level < slog.LevelError:
		return h.out.Warning(line)
	}
	return h.out.Err(line)
}
