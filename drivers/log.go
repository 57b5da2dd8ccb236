// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"context"
	"log/slog"
)

type loggerKey struct{}

// WithLogger returns a context whose Logger is this one. The SDK calls it before each Translate.
func WithLogger(ctx context.Context, logger *slog.Logger) context.Context {
	return context.WithValue(ctx, loggerKey{}, logger)
}

// Logger returns the logger for what is said about the object at hand: its lines arrive in Raven's log with their
// level, the driver and the object. Without one, in a test for example, it discards them.
func Logger(ctx context.Context) *slog.Logger {
	if logger, ok := ctx.Value(loggerKey{}).(*slog.Logger); ok {
		return logger
	}
	return slog.New(slog.DiscardHandler)
}
