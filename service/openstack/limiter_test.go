// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"slices"
	"testing"

	"k8s.io/utils/clock"
)

// What is urgent is served before what waits, in order; who gives up leaves the order of the others as it is.
func TestUrgentGoesFirst(t *testing.T) {
	l := newLimiter(1, clock.RealClock{})
	if err := l.acquire(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	served := make(chan string)
	wait := func(ctx context.Context, name string) {
		_, _, before := l.state()
		go func() {
			if l.acquire(ctx, nil) == nil {
				served <- name
			}
		}()
		for waiting := before; waiting == before; _, _, waiting = l.state() {
		}
	}
	givesUp, cancel := context.WithCancel(Urgent(t.Context()))
	wait(t.Context(), "first")
	wait(givesUp, "gives up")
	wait(Urgent(t.Context()), "urgent")
	wait(t.Context(), "second")
	wait(Urgent(t.Context()), "urgent too")
	cancel()
	for _, _, waiting := l.state(); waiting > 4; _, _, waiting = l.state() {
	}
	var order []string
	for range 4 {
		l.release()
		order = append(order, <-served)
	}
	if want := []string{"urgent", "urgent too", "first", "second"}; !slices.Equal(order, want) {
		t.Errorf("served %q, want %q", order, want)
	}
}
