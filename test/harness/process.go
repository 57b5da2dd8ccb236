// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"os/exec"
	"runtime"
	"syscall"
)

// Process is a program that runs until it ends or is ended.
type Process struct {
	Cmd   *exec.Cmd
	Ended chan struct{} // closed when it has ended, after Err is set
	Err   error
}

// Start starts a program. Where its attributes say so (Pdeathsig) it gets a signal when the caller's process ends,
// however that comes.
func Start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{Cmd: cmd, Ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // Pdeathsig is sent when this thread ends, and not only with the process
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.Err = cmd.Wait()
			close(p.Ended)
		}
	}()
	return p, <-started
}

// Kill is kill -9, and returns when the process is gone.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Signal(syscall.SIGKILL)
	<-p.Ended
}

// Running says whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.Ended:
		return false
	default:
		return true
	}
}
