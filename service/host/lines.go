// SPDX-License-Identifier: Apache-2.0

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
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/utils/clock"
)

const (
	maxLine   = 64 << 10 // a longer line is cut into several
	keptLines = 5
	keptBytes = 400 // of the last lines, in an error message

	// A driver may write so many bytes per second on the average, and so many at once; a line costs some by itself. The
	// rest is dropped.
	logRate  = 256 << 10
	logBurst = 4 << 20
	lineCost = 128
	dropSaid = 10 * time.Second // how often is said that lines are dropped
)

// lines turns what a driver writes into records of our log and remembers the last of it.
type lines struct {
	logger *slog.Logger
	clock  clock.PassiveClock

	mu     sync.Mutex
	part   []byte
	kept   []string
	traced bool // a panic's trace has begun: all plain lines from here on belong to it

	room    int // what may be written now
	filled  time.Time
	dropped int
	said    time.Time
}

func newLines(logger *slog.Logger, c clock.PassiveClock) *lines {
	return &lines{logger: logger, clock: c, room: logBurst, filled: c.Now()}
}

// admit says whether a line of a length may go to the log, and at times how many could not.
func (l *lines) admit(length int) bool {
	now := l.clock.Now()
	gained := now.Sub(l.filled).Seconds() * logRate
	if gained >= 1 {
		l.room, l.filled = int(min(float64(l.room)+gained, logBurst)), now
	}
	cost := length + lineCost
	fits := l.room >= cost
	if fits {
		l.room -= cost
	} else {
		l.dropped++
	}
	if l.dropped > 0 && now.Sub(l.said) >= dropSaid {
		l.logger.Warn("driver writes too much: lines are dropped", "dropped", l.dropped, "bytes_per_second", logRate)
		l.dropped, l.said = 0, now
	}
	return fits
}

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
	if l.dropped > 0 {
		l.logger.Warn("driver wrote too much: lines were dropped", "dropped", l.dropped)
		l.dropped = 0
	}
}

// last returns the last lines in one.
func (l *lines) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := printable(strings.Join(l.kept, " / "))
	if len(text) > keptBytes {
		text = strings.ToValidUTF8(text[:keptBytes], "") + "…"
	}
	return text
}

func (l *lines) say(line string) {
	if strings.TrimSpace(line) == "" {
		return
	}
	fits := l.admit(len(line))
	if !fits && !l.traced && !strings.HasPrefix(line, "panic: ") && !strings.HasPrefix(line, "fatal error: ") {
		return
	}
	level, message, attrs := l.parse(line)
	if len(l.kept) == keptLines && !l.traced { // of a trace the beginning counts
		l.kept = l.kept[1:]
	}
	if len(l.kept) < keptLines {
		l.kept = append(l.kept, strings.TrimSpace(message))
	}
	if !fits {
		return
	}
	l.logger.LogAttrs(context.Background(), level, message, attrs...) //nolint:sloglint // the driver's words
}

// printable keeps a driver's words from moving about on the terminal of whoever reads an error; the log does so by
// itself.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && unicode.IsControl(r) {
			return utf8.RuneError
		}
		return r
	}, text)
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
					attrs = append(attrs, slog.Any(saidKey(key), record[key]))
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

// saidKey keeps a driver from giving its line a second time, level, source or driver, of which readers may take the
// last, or a stack, which the log writes as it is.
func saidKey(key string) string {
	switch key {
	case slog.TimeKey, slog.LevelKey, slog.MessageKey, slog.SourceKey, "driver", "stack", "":
		return "said." + key
	default:
		return key
	}
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
