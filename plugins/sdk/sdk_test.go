// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/plugins/wire"
)

type nothing struct{}

func (nothing) Info() drivers.Info {
	return drivers.Info{
		Name: "nothing", Version: "1.2", Description: "Does nothing.",
		Options: []drivers.Option{
			{
				Group: "nothing", Name: "colour", Type: drivers.StringOption, Default: "red", HasDefault: true,
				Choices: []string{"red", "blue"}, Help: "Which.",
			},
			{
				Group: "nothing", Name: "key", Type: drivers.StringOption, Default: "hidden", HasDefault: true, Secret: true,
				Required: true,
			},
		},
	}
}
func (nothing) Configure(context.Context, drivers.Values) error { return nil }
func (nothing) Watches() []drivers.Watch                        { return nil }
func (nothing) Translate(context.Context, drivers.Object, *drivers.Needs) (drivers.Set, error) {
	return drivers.Set{}, nil
}

func TestByHand(t *testing.T) {
	started := func(string) string { return wire.CookieValue }
	person := func(string) string { return "" }
	for name, c := range map[string]struct {
		args   []string
		env    func(string) string
		status int
		done   bool
		says   []string
	}{
		"by Raven": {[]string{"x"}, started, 0, false, nil},
		"by hand": {
			[]string{"x"}, person, 1, true, []string{"x is a driver of Raven", "raven-driver-nothing", "--help"},
		},
		"another time": {[]string{"x", "unknown"}, person, 1, true, []string{"is a driver of Raven"}},
		"version":      {[]string{"x", "--version"}, person, 0, true, []string{"nothing 1.2 (driver protocol 1)"}},
		"help": {
			[]string{"x", "--help"},
			person, 0, true,
			[]string{"Does nothing.", `[nothing] colour (string, default "red", one of red, blue)`, "Which.", "required"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var said bytes.Buffer
			status, done := byHand(nothing{}, "", c.args, c.env, &said, &said)
			if status != c.status || done != c.done {
				t.Errorf("status %d, done %t", status, done)
			}
			for _, want := range c.says {
				if !strings.Contains(said.String(), want) {
					t.Errorf("%q does not say %q", said.String(), want)
				}
			}
			if strings.Contains(said.String(), "hidden") {
				t.Error("a secret's default is shown")
			}
		})
	}
}

func TestLinesAreHclogs(t *testing.T) {
	var line bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&line, &slog.HandlerOptions{ReplaceAttr: hclogKeys}))
	logger.WithGroup("group").Warn("text", "level", "inner")
	var record map[string]any
	if err := json.Unmarshal(line.Bytes(), &record); err != nil {
		t.Fatal(err)
	}
	inner, _ := record["group"].(map[string]any)
	if record["@level"] != "warn" || record["@message"] != "text" || record["@timestamp"] == nil ||
		inner["level"] != "inner" {
		t.Errorf("got %s", line.String())
	}
}

func TestLifelineMustBeThere(t *testing.T) {
	if held, err := holdLifeline(""); held || err != nil {
		t.Errorf("none: %t, %v", held, err)
	}
	for _, number := range []string{"x", "1", "-1", "1000000"} {
		if _, err := holdLifeline(number); err == nil {
			t.Errorf("%q: want an error", number)
		}
	}
}
