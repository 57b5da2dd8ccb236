package confine

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWhereNobodyMayGiveWay: a unit of systemd's that refuses @resources, as ours did. A driver starts all the same, and Raven knows.
func TestWhereNobodyMayGiveWay(t *testing.T) {
	if !Seccomp() {
		t.Skip("this kernel or machine has no filter of system calls")
	}
	if err := Yields(); err != nil {
		t.Fatalf("without a filter: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with its filter
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			t.Error(err)
			return
		}
		if err := filter(assemble([]rule{{call: unix.SYS_SETPRIORITY, error: unix.EPERM}})).apply(); err != nil {
			t.Error(err)
			return
		}
		if err := Yields(); !errors.Is(err, unix.EPERM) {
			t.Errorf("setpriority is refused, and Yields says %v", err)
		}
		if err := standBack(); err != nil {
			t.Errorf("the driver does not start: %v", err)
		}
	}()
	<-done
}
