// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package systemd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything may take that is waited for.
const patience = 2 * time.Minute

// machine is a systemd as process 1 of new namespaces. Its root is this machine's, and what it writes is forgotten
// with it.
type machine struct {
	t      *testing.T
	outer  *exec.Cmd
	said   bytes.Buffer // of outer; read when it has ended
	first  int          // its process 1, as this machine counts
	before []string     // the traces that it booted with, which are of the machine that the test runs on
}

// newMachine boots one. It is switched off with the test.
func newMachine(t *testing.T) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("it needs root: namespaces, mounts and control groups are made")
	}
	for _, program := range []string{"unshare", "nsenter", "setpriv", "dpkg", "/lib/systemd/systemd"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("it needs a Debian with systemd: %v", err)
		}
	}
	boot, err := filepath.Abs("files/boot.sh")
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t}
	m.outer = exec.Command("unshare", "--mount", filepath.Join(filepath.Dir(boot), "outer.sh"), t.TempDir(), boot)
	m.outer.Stdout, m.outer.Stderr = &m.said, &m.said
	m.outer.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.outer.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.off)
	m.booted()
	m.before = m.traces()
	return m
}

// in is the machine as a part of the test sees it.
func (m *machine) in(t *testing.T) *machine {
	t.Helper()
	return &machine{t: t, outer: m.outer, first: m.first, before: m.before}
}

// booted waits until the machine is up.
func (m *machine) booted() {
	m.t.Helper()
	m.eventually("systemd is up", func() error {
		if m.first = process1(m.outer.Process.Pid); m.first == 0 {
			return errors.New("there is no process 1")
		}
		if out, err := m.try("systemctl", "is-system-running"); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// reboot waits until another process 1 is up.
func (m *machine) reboot() {
	m.t.Helper()
	before := m.first
	_, _ = m.try("systemctl", "reboot") // it speaks of a missing logind, and reboots
	m.eventually("the machine has gone down", func() error {
		if now := process1(m.outer.Process.Pid); now == before {
			return errors.New("it is still up")
		}
		return nil
	})
	m.booted()
}

// off switches it off, if need be by the plug.
func (m *machine) off() {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = m.outer.Wait() // its status says how it went down, which is of no matter
	}()
	_, _ = m.try("systemctl", "poweroff")
	select {
	case <-ended:
		return
	case <-time.After(30 * time.Second):
	}
	if m.first != 0 {
		_ = syscall.Kill(m.first, syscall.SIGKILL)
	}
	<-ended
	m.t.Errorf("the machine did not go down when asked:\n%s", &m.said)
}

// process1 finds the descendant that is process 1 of its namespace; 0 is none.
func process1(pid int) int {
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err == nil {
		for line := range strings.Lines(string(text)) {
			numbers, ok := strings.CutPrefix(line, "NSpid:")
			if fields := strings.Fields(numbers); ok && len(fields) > 1 && fields[len(fields)-1] == "1" {
				return pid
			}
		}
	}
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue
		}
		for _, child := range strings.Fields(string(text)) {
			number, err := strconv.Atoi(child)
			if err != nil {
				continue
			}
			if found := process1(number); found != 0 {
				return found
			}
		}
	}
	return 0
}

// try runs a command on the machine and returns all that it prints.
func (m *machine) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	enter := []string{
		"--target", strconv.Itoa(m.first), "--mount", "--uts", "--ipc", "--pid", "--cgroup", "--root", "--wdns=/", "--",
		"env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive",
	}
	out, err := exec.CommandContext(ctx, "nsenter", append(enter, args...)...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// run runs a command that has to succeed.
func (m *machine) run(args ...string) string {
	m.t.Helper()
	out, err := m.try(args...)
	if err != nil {
		m.t.Fatalf("%s: %v\n%s\n%s", strings.Join(args, " "), err, out, m.journal())
	}
	return out
}

// status runs a command and returns what it prints and its exit status.
func (m *machine) status(args ...string) (string, int) {
	m.t.Helper()
	out, err := m.try(args...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return out, exit.ExitCode()
	}
	if err != nil {
		m.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out, 0
}

// property is what systemd says of raven.service.
func (m *machine) property(name string) string {
	m.t.Helper()
	return m.run("systemctl", "show", "raven", "--value", "--property="+name)
}

// pid is the core's process as the machine counts.
func (m *machine) pid() string { return m.property("MainPID") }

func (m *machine) journal() string {
	text, _ := m.try("journalctl", "--no-pager", "--lines=60", "--unit=raven")
	return "the journal:\n" + text
}

// write writes a file of the machine; its folder is made.
func (m *machine) write(path, mode, owner, text string) {
	m.t.Helper()
	seen := m.path(path)
	number, err := strconv.ParseUint(mode, 8, 32)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(seen), 0o755)
	}
	if err == nil {
		err = os.WriteFile(seen, []byte(text), 0o600)
	}
	if err == nil {
		err = os.Chmod(seen, fs.FileMode(number))
	}
	if err != nil {
		m.t.Fatal(err)
	}
	m.run("chown", owner, path)
}

// path is a path of the machine as this one sees it.
func (m *machine) path(path string) string { return fmt.Sprintf("/proc/%d/root%s", m.first, path) }

// traces are the paths that are named after Raven, where packages keep things.
func (m *machine) traces() []string {
	m.t.Helper()
	var list []string
	for _, folder := range []string{
		"/etc", "/run", "/var/lib", "/var/log", "/usr/bin", "/usr/lib/raven", "/usr/libexec", "/usr/lib/systemd",
		"/usr/lib/sysusers.d", "/usr/lib/tmpfiles.d", "/usr/share/doc",
	} {
		err := filepath.WalkDir(m.path(folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil //nolint:nilerr // /run changes while it is read
			}
			if strings.Contains(d.Name(), "raven") || strings.Contains(d.Name(), "kuryr") {
				list = append(list, strings.TrimPrefix(path, m.path("")))
			}
			return nil
		})
		if err != nil {
			m.t.Fatal(err)
		}
	}
	return list
}

// eventually tries until there is no error.
func (m *machine) eventually(what string, try func() error) {
	m.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			journal := ""
			if m.first != 0 {
				journal = m.journal()
			}
			m.t.Fatalf("not in %s: %s: %v\n%s", patience, what, err, journal)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
