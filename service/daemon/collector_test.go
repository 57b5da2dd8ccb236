// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	goruntime "runtime"
	"runtime/debug"
	"testing"
)

func TestPercentFor(t *testing.T) {
	for live, want := range map[uint64]int{
		0: 50, 1 << 20: 400, 16 << 20: 300, 32 << 20: 150, 64 << 20: 75, 96 << 20: 50,
		110 << 20: 50, 1 << 30: 50,
	} {
		if got := percentFor(live); got != want {
			t.Errorf("%d MiB: %d, want %d", live>>20, got, want)
		}
	}
}

// Each collection sets the percentage anew.
func TestPaceCollector(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Cleanup(func() { debug.SetGCPercent(100) })
	heap := make([]byte, 200<<20)
	goruntime.GC()
	PaceGarbageCollection()
	if got := now(); got != gcPercent {
		t.Errorf("with 200 MiB in use the heap may grow by %d %%", got)
	}
	goruntime.KeepAlive(heap)
	for range 1000 {
		if now() > gcPercent {
			return
		}
		goruntime.GC() // the first one finds the pacer, whose finalizer runs some time after
	}
	t.Errorf("with a small heap it may grow by %d %%", now())
}

func now() int {
	percent := debug.SetGCPercent(100)
	debug.SetGCPercent(percent)
	return percent
}
