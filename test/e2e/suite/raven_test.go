// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kuryr/raven/test/harness"
)

// raven is a running `raven run`.
type raven struct {
	*harness.Process
	log string // path
}

// program is a command of Raven in an environment that sets nothing of its configuration.
func program(ctx context.Context, args ...string) *exec.Cmd {
	return harness.Command(ctx, filepath.Join(world.bin, "raven"), world.scratch, nil, args...)
}

// launch runs the daemon with a kuryr.conf, and appends what it says to a log.
func launch(conf, log string) (*raven, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // the daemon has its own
	fmt.Fprintf(file, "# raven run --config-file %s\n", conf)
	cmd := program(context.Background(), "run", "--config-file", conf)
	cmd.Stdout, cmd.Stderr = file, file
	process, err := harness.Start(cmd)
	return &raven{Process: process, log: log}, err
}

// end stops it as an operator does, and returns the exit status.
func (r *raven) end() (int, error) {
	if !r.Running() {
		return 0, fmt.Errorf("raven had ended by itself: %w; %s ends with:\n%s", r.Err, r.log, tail(r.log))
	}
	if err := r.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	select {
	case <-r.Ended:
		return r.Cmd.ProcessState.ExitCode(), nil
	case <-time.After(time.Minute):
		r.Kill()
		return 0, errors.New("raven did not stop within a minute of SIGTERM")
	}
}

// died says that it has ended by itself, "" while it runs.
func (r *raven) died() string {
	if r.Running() {
		return ""
	}
	return fmt.Sprintf("raven has ended (%v): %s", r.Err, tail(r.log))
}

// plugin returns the process of a driver of this raven, 0 while there is none.
func (r *raven) plugin(driver string) int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(text), ") ") // after the name: state, parent
		fields := strings.Fields(rest)
		if len(fields) < 2 || fields[1] != strconv.Itoa(r.Cmd.Process.Pid) {
			continue
		}
		exe, _ := os.Readlink(filepath.Join(filepath.Dir(path), "exe"))
		if filepath.Base(exe) == "raven-driver-"+driver {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid
		}
	}
	return 0
}

// tail is the end of a file.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	if len(text) > 3000 {
		text = text[len(text)-3000:]
	}
	return string(text)
}
