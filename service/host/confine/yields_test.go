// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWhereNobodyMayGiveWay: a unit of systemd's that refuses @resources, as ours did. A driver starts all the same,
// and Raven knows.
func TestWhereNobodyMayGiveWay(t *testing.T) {
	if !Seccomp() {
		t.Skip("this kernel or machine has no filter of system calls")
	}
	if err := Yields(); err != nil {
		t.Skipf("something around this test refuses it already: %v", err)
	}
	for _, refusal := range []unix.Errno{unix.EPERM, unix.EACCES, unix.ENOSYS} {
		t.Run(refusal.Error(), func(t *testing.T) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				runtime.LockOSThread() // and never unlocked: the thread ends with its filter
				if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
					t.Error(err)
					return
				}
				if err := filter(assemble([]rule{{call: unix.SYS_SETPRIORITY, error: refusal}})).apply(); err != nil {
					t.Error(err)
					return
				}
				if err := Yields(); !errors.Is(err, refusal) {
					t.Errorf("setpriority is refused, and Yields says %v", err)
				}
				giveWay() // no more than that it ends
			}()
			<-done
		})
	}
}
