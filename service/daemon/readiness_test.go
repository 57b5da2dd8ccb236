// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"slices"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kuryr/raven/service"
	"github.com/kuryr/raven/service/reconcile"
)

// TestAQueueThatHangsIsToldToTheWatchdog, but not one whose passes wait for a cloud that does not answer, for however
// long.
func TestAQueueThatHangsIsToldToTheWatchdog(t *testing.T) {
	t.Parallel()
	hung := []reconcile.Work{{Name: "queue pod", Held: 3, Ended: 7}, {Name: "queue namespace", Ended: 2}}
	for name, c := range map[string]struct {
		busy    bool
		stalled []string
	}{
		"nothing under way in the cloud": {false, []string{"queue pod"}},
		"Neutron is away":                {true, nil},
	} {
		clk := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
		progress := service.NewProgress(clk)
		w := &works{progress: progress, within: stillAfter(30 * time.Second), byName: map[string]*service.Work{}}
		for range 4 * int(stillAfter(30*time.Second)/readinessInterval) {
			w.look(hung, c.busy)
			clk.SetTime(clk.Now().Add(readinessInterval))
		}
		if got := progress.Stalled(); !slices.Equal(got, c.stalled) {
			t.Errorf("%s: %v stand still, want %v", name, got, c.stalled)
		}
		w.end()
		if left := progress.Stalled(); len(left) > 0 {
			t.Errorf("%s: ended, and still %v", name, left)
		}
	}
}
