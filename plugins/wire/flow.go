// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"runtime"
	"time"
)

// flow bounds how many items are in the driver at a time. There the clock of a call runs, also while it waits for its
// turn, so the rest waits in the core, where none runs. The bound grows while answers come fast and more is waiting,
// for the sake of few messages, and halves when they come slowly, once for what was sent under the same bound:
//
//	answered within half the target, more waits    one more
//	answered after the target                      half, no fewer than the floor
type flow struct {
	limit, floor int
	target       time.Duration
	halved       time.Time
}

const (
	flowFloor   = 16  // keeps a driver with a few workers busy between two messages
	flowCeiling = 256 // more makes messages no cheaper
)

// newFlow returns the flow of calls that may take so long each, from their sending; 0 is no limit.
func newFlow(timeout time.Duration) flow {
	floor := min(max(flowFloor, 2*runtime.GOMAXPROCS(0)), flowCeiling) // the driver has as many processors as we have
	target := time.Second
	if timeout > 0 {
		target = min(target, timeout/8)
	}
	return flow{limit: floor, floor: floor, target: target}
}

// answered learns from one answer; waiting says whether more is to be sent.
func (f *flow) answered(sent, now time.Time, waiting bool) {
	switch took := now.Sub(sent); {
	case took > f.target && !sent.Before(f.halved):
		f.limit, f.halved = max(f.limit/2, f.floor), now
	case took < f.target/2 && waiting:
		f.limit = min(f.limit+1, flowCeiling)
	}
}
