// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/host"
)

// Commands need every driver; a daemon goes on without one that does not start, and a reload without one that it has no
// use of.
func TestADriverThatDoesNotStartIsLeftOut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.set(DriverGroup(configmaps), "command", r.script("driver", "echo no database today >&2; exit 3"))
	r.set(DriverGroup(configmaps), "allow_read", namer)
	from := r.loader(nil)
	if _, err := from.Load(t.Context()); !errors.Is(err, host.ErrNotStarted) ||
		!strings.Contains(err.Error(), "no database today") {
		t.Fatalf("commands that need every driver: %v", err)
	}
	l, err := from.loadDespite(t.Context(), func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	made, err := prepare(t.Context(), l, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer made.stop(t.Context())
	signals := make(chan os.Signal, 1)
	d := &Daemon{config: Config{Signals: signals}, log: made.log, loaded: l, runtime: made}
	if !d.without(configmaps) || d.without(serviceaccounts) {
		t.Error("a reload must go on without the one that does not start, and never without the other")
	}
	if _, err := d.restartDriver(t.Context(), configmaps); err == nil ||
		!strings.Contains(err.Error(), "no database today") || len(signals) > 0 {
		t.Errorf("raven driver restart: %v", err)
	}
	r.script("driver", "exec "+serving(configmaps))
	_, err = d.restartDriver(t.Context(), configmaps)
	if err == nil || !strings.Contains(err.Error(), "it starts now") || len(signals) != 1 || <-signals != syscall.SIGHUP {
		t.Errorf("raven driver restart, repaired: %v", err)
	}
	l, err = from.loadDespite(t.Context(), d.without)
	if err != nil || l.Programs[0].down != nil || l.Programs[0].Info.Name != configmaps {
		t.Errorf("the reload: %+v, %v", l, err)
	}
}

// What is configured wrongly is no driver that does not start: it ends the start, as ever.
func TestConfigurationErrorsEndTheStart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	all := func(string) bool { return true }
	for option, c := range map[config.Name][2]string{
		{Group: DriverGroup(configmaps), Name: "sha256"}:      {strings.Repeat("0", 64), "sha256"},
		{Group: DriverGroup(configmaps), Name: "allow_kinds"}: {"port", "allow_kinds"},
		{Group: OptionGroup, Name: "drivers"}:                 {configmaps + ",none", "none"},
	} {
		_, err := r.loader(map[config.Name][]string{option: {c[0]}}).loadDespite(t.Context(), all)
		if err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%s: %v", option, err)
		}
	}
	l, err := r.loader(map[config.Name][]string{
		{Group: OptionGroup, Name: "drivers"}:             {configmaps},
		{Group: DriverGroup(configmaps), Name: "command"}: {"/bin/false"},
	}).loadDespite(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	if made, err := prepare(t.Context(), l, slog.New(slog.DiscardHandler), nil); !errors.Is(err, host.ErrNotStarted) {
		if err == nil {
			made.stop(t.Context())
		}
		t.Errorf("with no driver at all: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(r.dir, "run", "*")); err != nil || len(left) > 0 {
		t.Errorf("there are %v left, %v", left, err)
	}
}
