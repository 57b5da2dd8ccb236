// SPDX-License-Identifier: Apache-2.0

package confine

import "golang.org/x/sys/unix"

const (
	machine uint32 = unix.AUDIT_ARCH_AARCH64
	foreign uint32 = 0
)

// architecture are further calls that are refused, which only this machine has.
func architecture() []uint32 { return []uint32{unix.SYS_KEXEC_FILE_LOAD} }
