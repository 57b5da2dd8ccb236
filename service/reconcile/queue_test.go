// SPDX-License-Identifier: Apache-2.0

package reconcile

import "testing"

// TestSooner: backoff begins with the shortest time, no time is never.
func TestSooner(t *testing.T) {
	t.Parallel()
	never, soon, late, backoff := result{}, result{requeueAfter: 1}, result{requeueAfter: 2}, result{backoff: true}
	for _, c := range []struct{ a, b, want result }{
		{never, never, never},
		{never, late, late},
		{late, never, late},
		{late, soon, soon},
		{soon, late, soon},
		{soon, backoff, backoff},
		{backoff, soon, backoff},
	} {
		if got := sooner(c.a, c.b); got != c.want {
			t.Errorf("sooner(%+v, %+v) = %+v, want %+v", c.a, c.b, got, c.want)
		}
	}
}
