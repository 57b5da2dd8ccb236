// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"testing"
	"time"
)

// A step that lasts says for how long.
func TestDoingText(t *testing.T) {
	for lasts, want := range map[time.Duration]string{
		2 * time.Second:          `creating port "a"`,
		12300 * time.Millisecond: `creating port "a", for 12s: the cloud has not answered yet`,
	} {
		if got := doingText(`creating port "a"`, lasts); got != want {
			t.Errorf("after %s: %q", lasts, got)
		}
	}
}
