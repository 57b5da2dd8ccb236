// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

func redirect(from, to int) error { return unix.Dup3(from, to, 0) }

// nameProcess gives the process the name of its program. Older kernels call one that was executed by a descriptor
// after its number.
func nameProcess(program string) {
	if unix.Gettid() != unix.Getpid() {
		return // it would be this thread's name alone
	}
	name, err := unix.BytePtrFromString(filepath.Base(program))
	if err == nil {
		_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0, 0, 0) //nolint:gosec // what the system call takes
	}
}
