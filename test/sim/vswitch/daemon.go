// SPDX-License-Identifier: Apache-2.0

package vswitch

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Vswitchd is a real ovs-vswitchd, with its datapath in userspace, in the network namespace of this process.
type Vswitchd struct {
	command  *exec.Cmd
	finished chan struct{}
	output   bytes.Buffer
}

// VswitchdAvailable says whether a real ovs-vswitchd can run here.
func VswitchdAvailable() error {
	if _, err := exec.LookPath("ovs-vswitchd"); err != nil {
		return fmt.Errorf("there is no ovs-vswitchd: %w", ErrMissing)
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return fmt.Errorf("the userspace datapath takes /dev/net/tun: %w", err)
	}
	return nil
}

// Vswitchd starts ovs-vswitchd for the local database.
func (s *Server) Vswitchd(ctx context.Context) (*Vswitchd, error) {
	if err := VswitchdAvailable(); err != nil {
		return nil, err
	}
	v := &Vswitchd{finished: make(chan struct{})}
	args := []string{
		s.Endpoint(), "--unixctl=" + s.path("vswitchd.ctl"), "--no-chdir", "--pidfile=" + s.path("vswitchd.pid"),
		"-vconsole:warn", "-vsyslog:off", "--log-file=" + s.path("vswitchd.log"),
	}
	v.command = exec.Command("ovs-vswitchd", args...) //nolint:noctx // it outlives the call
	v.command.Env = append(os.Environ(), "OVS_RUNDIR="+s.dir, "OVS_LOGDIR="+s.dir, "OVS_DBDIR="+s.dir)
	v.command.Stdout, v.command.Stderr = &v.output, &v.output
	v.command.Dir = filepath.Clean(s.dir)
	dieWithParent(v.command)
	if err := v.command.Start(); err != nil {
		return nil, fmt.Errorf("starting ovs-vswitchd: %w", err)
	}
	go func() {
		defer close(v.finished)
		_ = v.command.Wait()
	}()
	select {
	case <-v.finished:
		return nil, fmt.Errorf("ovs-vswitchd has ended: %s", v.output.String())
	case <-ctx.Done():
		v.Kill()
		return nil, ctx.Err()
	default:
		return v, nil
	}
}

// Kill ends it at once, as kill -9 does.
func (v *Vswitchd) Kill() {
	_ = v.command.Process.Kill()
	<-v.finished
}
