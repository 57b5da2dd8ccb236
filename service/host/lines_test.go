// SPDX-License-Identifier: Apache-2.0

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

// What a driver says of itself in a line must not be taken for what its host says of it.
func TestDriverCannotSpeakForOthers(t *testing.T) {
	var log bytes.Buffer
	l := newLines(slog.New(slog.NewJSONHandler(&log, nil)).With("driver", "hostile"),
		clocktesting.NewFakePassiveClock(time.Unix(1000, 0)))
	_, _ = l.Write(
		[]byte(`{"@level":"info","@message":"x","driver":"pod","time":"t","level":"ERROR","msg":"y","source":"core","stack":"a\nb","object":"shop/web"}` + "\n"),
	)
	text := log.String()
	for key, most := range map[string]int{"driver": 1, "time": 1, "level": 1, "msg": 1, "source": 0, "stack": 0} {
		if strings.Count(text, `"`+key+`":`) > most {
			t.Errorf("%s is there as if its host had said it: %s", key, text)
		}
		if !strings.Contains(text, `"said.`+key+`":`) {
			t.Errorf("what it said of its %s is lost: %s", key, text)
		}
	}
	if !strings.Contains(text, `"driver":"hostile"`) || !strings.Contains(text, `"object":"shop/web"`) {
		t.Errorf("got %s", text)
	}
}
