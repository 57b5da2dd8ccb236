// SPDX-License-Identifier: Apache-2.0

package vswitch

import (
	"os/exec"
	"syscall"
)

// dieWithParent has a process end when the one ends that started it.
func dieWithParent(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
