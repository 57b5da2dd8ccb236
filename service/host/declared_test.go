// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
)

// TestADeclarationThatGrows: a program that declares more when it is started anew gives no opinion until it is
// accepted; one that declares less, or is another version, is none the worse for that.
func TestADeclarationThatGrows(t *testing.T) {
	file := filepath.Join(t.TempDir(), "info")
	declare := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	declare(`{"Kinds": ["network", "port"], "Annotations": ["example.org/a"]}`)
	config := testConfig(t, "declares:"+file)
	config.MaxLosses, config.Timeouts.Quarantine = 3, time.Hour
	p := launch(t, config)
	declare(`{"Version": "2", "Kinds": ["network"], "Annotations": ["example.org/a"]}`)
	if err := p.Restart(t.Context()); err != nil || p.Info().Version != "2" {
		t.Errorf("less: %v, %+v", err, p.Info())
	}
	const more = `{"Version": "3", "Kinds": ["network", "router"]}`
	declare(more)
	pid := p.Status().PID
	if err := p.Restart(t.Context()); err == nil ||
		!strings.Contains(err.Error(), `changed its declaration, it now has the kind "router": send Raven a SIGHUP`) {
		t.Errorf("more: %v", err)
	}
	if s := p.Status(); s.PID != pid || s.State != Ready {
		t.Errorf("the old one was to go on: %+v", s)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "quarantined", func() bool { return p.Status().State == Quarantined })
	if s := p.Status(); !strings.Contains(s.LastExit, "changed its declaration") {
		t.Errorf("%+v", s)
	}
	if _, err := ask(t, p, "fine", ""); !errors.Is(err, ErrUnavailable) {
		t.Errorf("after a loss: %v", err)
	}
	if got := p.Info().Version; got != "2" {
		t.Errorf("it is of version %s", got)
	}
	accepted := drivers.Info{Name: "subject", Kinds: []drivers.Kind{drivers.KindNetwork}}
	config = testConfig(t, "declares:"+file)
	config.Accepted = &accepted
	if _, err := Launch(t.Context(), config); err == nil || !strings.Contains(err.Error(), "changed its declaration") {
		t.Errorf("between the question and the first start: %v", err)
	}
}

func TestTextsForTerminals(t *testing.T) {
	const escape = "\x1b]0;hacked\a"
	for name, info := range map[string]drivers.Info{
		"version":     {Version: escape},
		"kind":        {Kinds: []drivers.Kind{escape}},
		"annotation":  {Annotations: []string{escape}},
		"label":       {Labels: []string{escape}},
		"status":      {Status: []string{escape}},
		"help":        {Options: []drivers.Option{{Help: "Two\nlines" + escape}}},
		"long help":   {Options: []drivers.Option{{Help: strings.Repeat("x", maxHelp+1)}}},
		"option":      {Options: []drivers.Option{{Name: "two\nlines"}}},
		"default":     {Options: []drivers.Option{{Default: escape}}},
		"choice":      {Options: []drivers.Option{{Choices: []string{escape}}}},
		"choice help": {Options: []drivers.Option{{ChoiceHelp: map[string]string{"a": escape}}}},
		"deprecated":  {Options: []drivers.Option{{Deprecated: [][2]string{{"g", escape}}}}},
		"reason":      {Options: []drivers.Option{{DeprecatedReason: escape}}},
	} {
		if err := checkTexts(info); err == nil || !strings.Contains(err.Error(), "must be printable") ||
			strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := checkTexts(drivers.Info{
		Description: "Größe", Options: []drivers.Option{{Help: "Two\nlines, é."}},
	}); err != nil {
		t.Error(err)
	}
	for name, w := range map[string]drivers.Watch{
		"field": {Fields: []string{escape}}, "selector": {LabelSelector: escape},
		"resource": {GVR: schema.GroupVersionResource{Resource: escape}},
	} {
		if err := checkWatchTexts([]drivers.Watch{w}); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}
