package host

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
)

const (
	maxLine   = 64 << 10 // a longer line is cut into several
	keptLines = 5
	keptBytes = 400 // of the last lines, in an error message
)

// lines turns what a driver writes into records of our log and remembers the last of it.
type lines struct {
	logger *slog.Logger

	mu     sync.Mutex
	part   []byte
	kept   []string
	traced bool // a panic's trace has begun: all plain lines from here on belong to it
}

func newLines(logger *slog.Logger) *lines { return &lines{logger: logger} }

// leastLevel is the least level that a logger writes, as drivers are told it.
func leastLevel(ctx context.Context, logger *slog.Logger) string {
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn} {
		if logger.Enabled(ctx, level) {
			return strings.ToLower(level.String())
		}
	}
	return "error"
}

// Write implements io.Writer.
func (l *lines) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part = append(l.part, data...)
	for {
		end := bytes.IndexByte(l.part, '\n')
		switch {
		case end >= 0:
			l.say(string(bytes.TrimRight(l.part[:end], "\r")))
			l.part = l.part[end+1:]
		case len(l.part) >= maxLine:
			l.say(string(l.part[:maxLine]))
			l.part = l.part[maxLine:]
		default:
			return len(data), nil
		}
	}
}

func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.say(string(l.part))
	l.part = nil
}

// last returns the last lines in one.
func (l *lines) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := strings.Join(l.kept, " / ")
	if len(text) > keptBytes {
		text = strings.ToValidUTF8(text[:keptBytes], "") + "…"
	}
	return text
}

func (l *lines) say(line string) {
	if strings.TrimSpace(line) == "" {
		return
	}
	level, message, attrs := l.parse(line)
	if len(l.kept) == keptLines && !l.traced { // of a trace the beginning counts
		l.kept = l.kept[1:]
	}
	if len(l.kept) < keptLines {
		l.kept = append(l.kept, strings.TrimSpace(message))
	}
	l.logger.LogAttrs(context.Background(), level, message, attrs...) //nolint:sloglint // the driver's words
}

// parse reads a line of hclog's JSON form; any other line is a message by itself.
func (l *lines) parse(line string) (slog.Level, string, []slog.Attr) {
	var record map[string]any
	if line[0] == '{' && json.Unmarshal([]byte(line), &record) == nil {
		if message, ok := record["@message"].(string); ok {
			level := levelOf(record["@level"])
			var attrs []slog.Attr
			for _, key := range slices.Sorted(maps.Keys(record)) {
				if !strings.HasPrefix(key, "@") {
					attrs = append(attrs, slog.Any(key, record[key]))
				}
			}
			return level, message, attrs
		}
	}
	if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
		l.traced, l.kept = true, nil
	}
	if l.traced {
		return slog.LevelError, line, nil
	}
	return slog.LevelInfo, line, nil
}

func levelOf(name any) slog.Level {
	switch name {
	case "trace", "debug":
		return slog.LevelDebug
	case "warn":
		return slog.LevelWarn
	case "error":
		return slog.LevelError
	default:
		return slog.LevelInfo
	}
}
