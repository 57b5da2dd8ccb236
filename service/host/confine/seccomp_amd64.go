// SPDX-License-Identifier: Apache-2.0

package confine

import "golang.org/x/sys/unix"

const (
	machine uint32 = unix.AUDIT_ARCH_X86_64
	foreign uint32 = 0x40000000 // x32
)

// architecture are further calls that are refused, which only this machine has.
func architecture() []uint32 {
	return []uint32{
		unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT,
		unix.SYS_CREATE_MODULE,
	}
}
