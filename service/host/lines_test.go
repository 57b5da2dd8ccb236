package host

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestFloodOfLinesIsBounded(t *testing.T) {
	var log bytes.Buffer
	c := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	l := newLines(slog.New(slog.NewJSONHandler(&log, nil)), c)
	line := []byte(strings.Repeat("x", 250) + "\n")
	for range 100_000 {
		_, _ = l.Write(line)
	}
	if most := 2*logBurst + 1<<20; log.Len() > most {
		t.Errorf("%d bytes of log, more than %d", log.Len(), most)
	}
	log.Reset()
	c.SetTime(time.Unix(1020, 0))
	_, _ = l.Write([]byte("later\n"))
	if text := log.String(); !strings.Contains(text, `"later"`) || !strings.Contains(text, "lines are dropped") {
		t.Errorf("after a while: %s", text)
	}
	_, _ = l.Write([]byte("panic: boom\n"))
	if words := l.last(); words != "panic: boom" {
		t.Errorf("last words %q", words)
	}
}
