// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	goruntime "runtime"
	"runtime/debug"
	"runtime/metrics"
)

// The garbage collector runs when the heap has grown by gcPercent since the last time: that keeps a daemon with 10,000
// pods at some 230 MiB (resident, `raven-sim bench --scenario large-0ms`), for a few percent of processor time. A small
// heap would be collected all the time in a burst, for nothing worth having, so it may always grow by gcFloor. GOGC
// sets a percentage instead, and nothing is done then.
const (
	gcPercent = 50
	gcFloor   = 48 << 20 // bytes
)

// PaceGarbageCollection sets how often garbage is collected, from now on after each collection.
func PaceGarbageCollection() {
	if os.Getenv("GOGC") != "" {
		return
	}
	debug.SetGCPercent(gcPercent)
	pacer := &pacer{percent: gcPercent}
	pacer.adjust()
}

// pacer is garbage as soon as it is made, so that each collection finds it.
type pacer struct{ percent int }

func (p *pacer) adjust() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	if want := percentFor(live[0].Value.Uint64()); want != p.percent {
		p.percent = want
		debug.SetGCPercent(want)
	}
	goruntime.SetFinalizer(p, (*pacer).adjust)
}

// percentFor is by how much a heap may grow of which so many bytes are in use, in steps, so that it is seldom changed.
func percentFor(live uint64) int {
	const most, step = 400, 25
	if live == 0 {
		return gcPercent
	}
	return max(gcPercent, int(min(most, gcFloor*100/live))/step*step)
}
