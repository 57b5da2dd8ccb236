// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"os/exec"
	"syscall"
	"time"
)

// Command is a program in an environment that sets nothing of its configuration, below a folder that it may fill; more
// variables may be given. It leads a process group, and is killed when the caller's process ends.
func Command(ctx context.Context, program, folder string, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append([]string{"PATH=/usr/bin:/bin", "HOME=" + folder, "TMPDIR=" + folder}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 5 * time.Second
	return cmd
}
