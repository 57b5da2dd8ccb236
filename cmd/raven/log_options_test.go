package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/kuryr/raven/service/config"
)

// TestLogOptions: log_options prints every option with its origin at debug level, secrets masked; without it nothing.
func TestLogOptions(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "false": false} {
		values, _, err := config.Load(config.Sources{Environ: []string{"OS_NEUTRON__PASSWORD=hush", "OS_DEFAULT__LOG_OPTIONS=" + value}}, coreOptions())
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		l := &loaded{values: values}
		l.report(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
		text := out.String()
		shown := strings.Contains(text, "level=DEBUG") && strings.Contains(text, "graceful_shutdown_timeout = 1m0s") && strings.Contains(text, "# default") &&
			strings.Contains(text, "password = ****") && strings.Contains(text, "environment OS_NEUTRON__PASSWORD")
		if shown != want || strings.Contains(text, "hush") {
			t.Errorf("log_options = %s:\n%s", value, text)
		}
	}
}
