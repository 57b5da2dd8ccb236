// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestLimitsTakeNoMemory: from the first limit on Go's runtime may get none, if what Raven itself has is more than
// the driver may.
func TestLimitsTakeNoMemory(t *testing.T) {
	s := Spec{Limits: map[int]uint64{}}
	for _, resource := range []int{unix.RLIMIT_AS, unix.RLIMIT_DATA, unix.RLIMIT_CORE, unix.RLIMIT_NPROC} {
		var now unix.Rlimit
		if err := unix.Getrlimit(resource, &now); err != nil {
			t.Fatal(err)
		}
		if now.Cur == now.Max { // what the process has already
			s.Limits[resource] = now.Max
		}
	}
	if len(s.Limits) == 0 {
		t.Skip("every limit of this process has room to grow: setting one would change it")
	}
	limits, err := s.bounds()
	if err != nil {
		t.Fatal(err)
	}
	if got := testing.AllocsPerRun(100, func() {
		if err := limits.apply(); err != nil {
			t.Error(err)
		}
	}); got != 0 {
		t.Errorf("setting %d limits takes memory %v times", len(limits), got)
	}
}

// TestLimitsComeLast: what comes before them takes memory.
func TestLimitsComeLast(t *testing.T) {
	steps, err := Spec{Seccomp: Seccomp()}.steps()
	if err != nil {
		t.Fatal(err)
	}
	if last := steps[len(steps)-1].doing; last != limiting {
		t.Errorf("the last step is %s", last)
	}
}
