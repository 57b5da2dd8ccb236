// SPDX-License-Identifier: Apache-2.0

package log_test

import (
	"io"
	"strings"
	"testing"

	"github.com/kuryr/raven/service/log"
)

// What was logged last is kept within a bound, without secrets, whatever the format of the log.
func TestRecent(t *testing.T) {
	redactor := log.NewRedactor()
	redactor.Add("Corvus-corax")
	l, err := log.New(log.Config{Stderr: io.Discard, JSON: true}, redactor)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	l.Logger().Info("first", "text", "it is Corvus-corax", "password", "short")
	if text := string(l.Recent()); !strings.Contains(text, "first") || strings.Contains(text, "Corvus") ||
		strings.Contains(text, "short") {
		t.Errorf("it has kept %q", text)
	}
	l.Logger().Debug("below the level")
	for range 3000 {
		l.Logger().Info("more", "text", strings.Repeat("x", 1000))
	}
	l.Logger().Info("last")
	text := string(l.Recent())
	if len(text) > 1<<20 || strings.Contains(text, "first") || strings.Contains(text, "below") ||
		!strings.HasSuffix(strings.TrimSpace(text), "last") {
		t.Errorf("it has kept %d bytes, which end in %q", len(text), text[max(0, len(text)-100):])
	}
}
