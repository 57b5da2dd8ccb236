// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// Nothing fails until the time is over: then the one that others wait for is to be seen.
func TestAServerThatHangsIsShownWithItsLog(t *testing.T) {
	s := standing(t, shell("a", "echo still thinking; sleep 1000"))
	start := func(name string, after ...string) step {
		return step{name: name, after: after, do: func(ctx context.Context) error { return s.Start(ctx, name) }}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	err := runSteps(ctx,
		[]step{start("a"), start("b", "a"), {name: "c", do: func(context.Context) error { return nil }}}, &bytes.Buffer{})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the error is %v", err)
	}
	for _, want := range []string{"before these were done: a;", "had not begun: b\n", "still thinking", "a.log"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
}
