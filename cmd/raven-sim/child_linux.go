// SPDX-License-Identifier: Apache-2.0

package main

import "syscall"

// childAttributes: Ctrl-C is for us, who then stop the child in order; and the child stops by itself when we are
// killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
