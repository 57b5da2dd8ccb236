// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kuryr/raven/plugins/wire"
)

// processLogger is made once, because lines from two handlers could run into each other on the one standard error.
var processLogger = sync.OnceValue(newLogger) //nolint:gochecknoglobals // a constant of the process

// Logger returns the logger whose lines become lines of Raven's own log, with their levels and attributes. Its level
// is Raven's.
func Logger() *slog.Logger { return processLogger() }

func newLogger() *slog.Logger {
	var level slog.Level // info, where Raven says nothing
	if err := level.UnmarshalText([]byte(os.Getenv(wire.LogLevelEnv))); err != nil {
		level = slog.LevelInfo
	}
	return slog.New(slog.NewJSONHandler(stderr{}, &slog.HandlerOptions{Level: level, ReplaceAttr: hclogKeys}))
}

// hclogKeys gives the keys of a record the names that hclog uses and go-plugin's hosts understand.
func hclogKeys(groups []string, attr slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return attr
	}
	switch attr.Key {
	case slog.TimeKey:
		if at, ok := attr.Value.Any().(time.Time); ok {
			return slog.String("@timestamp", at.Format("2006-01-02T15:04:05.000000Z07:00"))
		}
	case slog.LevelKey:
		return slog.String("@level", strings.ToLower(attr.Value.String()))
	case slog.MessageKey:
		return slog.Attr{Key: "@message", Value: attr.Value}
	}
	return attr
}

// stderr writes to the process's own standard error, whatever os.Stderr is: go-plugin puts a pipe there.
type stderr struct{}

// Write implements io.Writer.
func (stderr) Write(data []byte) (int, error) {
	written := 0
	for written < len(data) {
		count, err := syscall.Write(syscall.Stderr, data[written:])
		if err == syscall.EINTR || err == syscall.EAGAIN { // system calls return bare errnos
			continue
		}
		if err != nil {
			return written, err
		}
		written += count
	}
	return written, nil
}
