// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/kuryr/raven/service/daemon"
	"github.com/kuryr/raven/service/handover"
)

// TestStatusSaysWhoWaitsToBeHandedOver: only where somebody does.
func TestStatusSaysWhoWaitsToBeHandedOver(t *testing.T) {
	for waiting, want := range map[int]bool{0: false, 3: true} {
		var out strings.Builder
		h := handover.Status{Waiting: waiting, Since: time.Now()}
		if err := printStatus(streams{out: &out, err: io.Discard}, daemon.Report{Handover: h}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), "3 Services wait to be handed over"); got != want {
			t.Errorf("%d wait: %s", waiting, out.String())
		}
	}
}
