//go:build e2e

package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// settings are the options of a kuryr.conf by group and name.
type settings map[string]map[string]string

func (s settings) set(group, name string, value any) settings {
	if s[group] == nil {
		s[group] = map[string]string{}
	}
	s[group][name] = fmt.Sprint(value)
	return s
}

// with returns a copy with the options of another.
func (s settings) with(more settings) settings {
	out := settings{}
	for _, from := range []settings{s, more} {
		for group, options := range from {
			for name, value := range options {
				out.set(group, name, value)
			}
		}
	}
	return out
}

func (s settings) String() string {
	var b strings.Builder
	for _, group := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&b, "[%s]\n", group)
		for _, name := range slices.Sorted(maps.Keys(s[group])) {
			fmt.Fprintf(&b, "%s = %s\n", name, s[group][name])
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// raven is a running `raven run`.
type raven struct {
	cmd   *exec.Cmd
	log   string        // path
	ended chan struct{} // closed when it has ended, after err is set
	err   error
}

// program is a command of Raven in an environment that sets nothing of its configuration.
func program(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(world.bin, "raven"), args...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + world.scratch, "TMPDIR=" + world.scratch}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// launch runs the daemon with a kuryr.conf, and appends what it says to a log.
func launch(conf, log string) (*raven, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // the daemon has its own
	fmt.Fprintf(file, "# raven run --config-file %s\n", conf)
	r := &raven{cmd: program(context.Background(), "run", "--config-file", conf), log: log, ended: make(chan struct{})}
	r.cmd.Stdout, r.cmd.Stderr = file, file
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // Raven goes when the thread that started it goes: with the tests, however those end
		defer runtime.UnlockOSThread()
		err := r.cmd.Start()
		started <- err
		if err == nil {
			r.err = r.cmd.Wait()
			close(r.ended)
		}
	}()
	return r, <-started
}

// kill is kill -9, and returns when the process is gone.
func (r *raven) kill() {
	_ = r.cmd.Process.Signal(syscall.SIGKILL)
	<-r.ended
}

// end stops it as an operator does, and returns the exit status.
func (r *raven) end() (int, error) {
	select {
	case <-r.ended:
		return 0, fmt.Errorf("raven had ended by itself: %w; %s ends with:\n%s", r.err, r.log, tail(r.log))
	default:
	}
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	select {
	case <-r.ended:
		return r.cmd.ProcessState.ExitCode(), nil
	case <-time.After(time.Minute):
		r.kill()
		return 0, errors.New("raven did not stop within a minute of SIGTERM")
	}
}

// died says that it has ended by itself, "" while it runs.
func (r *raven) died() string {
	select {
	case <-r.ended:
		return fmt.Sprintf("raven has ended (%v): %s", r.err, tail(r.log))
	default:
		return ""
	}
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
		if len(fields) < 2 || fields[1] != strconv.Itoa(r.cmd.Process.Pid) {
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
