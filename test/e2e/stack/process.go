// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// pause is how long polls wait between two looks at /proc or at a probe.
const pause = 50 * time.Millisecond

// ticks is how many clock ticks a second has in /proc: 100 on every Linux that Go runs on.
const ticks = 100

// process is a recorded process that leads a session and a process group of its own. The start time tells it from a
// later process with the same id.
type process struct {
	pid   int
	start string
	from  int64 // the size of its log when it was started
}

// process gives the recorded process of a component; the zero process is never alive.
func (s *Stack) process(name string) process {
	content, err := os.ReadFile(s.path("pid", name))
	if err != nil {
		return process{}
	}
	var p process
	if _, err := fmt.Sscan(string(content), &p.pid, &p.start, &p.from); err != nil {
		return process{}
	}
	return p
}

// spawn starts a component's process and records it.
func (s *Stack) spawn(c Component) error {
	for _, path := range c.Clean {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the process has its own
	from, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	// The process outlives the call and this program: it has no context.
	command := exec.Command(programPath(c.Argv[0]), c.Argv[1:]...) //nolint:noctx // see above
	command.Env = append(s.environment(), c.Env...)
	command.Dir = c.Dir
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return err
	}
	p := process{pid: command.Process.Pid, from: from}
	stat, err := readStat(p.pid)             // of a zombie too, as long as nobody takes it away
	s.wait.Go(func() { _ = command.Wait() }) // takes the zombie away; the exit status is for nobody
	if err != nil {
		return fmt.Errorf("recording process %d: %w", p.pid, err)
	}
	p.start = stat.start
	return os.WriteFile(s.path("pid", c.Name), fmt.Appendf(nil, "%d %s %d\n", p.pid, p.start, p.from), 0o644)
}

// environment is what every process of the stack has, and nothing of the caller's: a proxy, a Python of another
// version or an OS_CLOUD would lead astray. The mark finds processes that a server left behind.
func (s *Stack) environment() []string {
	return []string{
		"PATH=" + strings.Join(programFolders(), ":"), "LC_ALL=C.UTF-8", "PYTHONUNBUFFERED=1",
		"HOME=" + s.path("tmp"), "TMPDIR=" + s.path("tmp"), s.Mark(),
	}
}

// programFolders are where Debian's programs are; a caller's PATH may have others of the same name first.
func programFolders() []string { return []string{"/usr/sbin", "/usr/bin", "/sbin", "/bin"} }

func programPath(name string) string {
	if !strings.Contains(name, "/") {
		for _, dir := range programFolders() {
			if path := filepath.Join(dir, name); executable(path) {
				return path
			}
		}
	}
	return name // that it is missing is said by who starts it
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&0o111 != 0
}

// Mark is a variable of the environment that Down knows processes by. Nothing else is to have it.
func (s *Stack) Mark() string { return "RAVEN_E2E_BELONGS_TO=" + s.dir }

func (p process) alive() bool {
	if p.pid == 0 {
		return false
	}
	stat, err := readStat(p.pid)
	return err == nil && stat.start == p.start && stat.state != "Z" && stat.state != "X"
}

// stop asks the leader to end, and kills the group once it is gone or patience is over.
func (p process) stop(ctx context.Context, patience time.Duration) error {
	if p.alive() {
		if err := syscall.Kill(p.pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
		patient, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		_ = poll(patient, func() bool { return !p.alive() }) // what outlasts it is killed
	}
	return p.kill(ctx)
}

// kill ends the whole group, and waits until nobody is left of it. A group whose leader is gone keeps its number
// until its last member ends, so it is still the recorded one as long as a member began after the leader did.
func (p process) kill(ctx context.Context) error {
	if p.pid == 0 {
		return nil
	}
	return poll(ctx, func() bool {
		members := p.members()
		for _, m := range members {
			_ = syscall.Kill(m.pid, syscall.SIGKILL) // gone meanwhile, or a zombie: the next look tells
		}
		return len(members) == 0
	})
}

// members lists the living processes of the group.
func (p process) members() []stat {
	var members []stat
	for _, s := range processes() {
		if s.group == p.pid && !s.ended() && !s.older(p.start) {
			members = append(members, s)
		}
	}
	return members
}

// cpu is the processor time of the group, with that of members that were waited for.
func (p process) cpu() (time.Duration, error) {
	members := p.members()
	if len(members) == 0 {
		return 0, fmt.Errorf("process %d does not run", p.pid)
	}
	var sum int64
	for _, m := range members {
		sum += m.ticks
	}
	return time.Duration(sum) * time.Second / ticks, nil
}

// stat is what is read of /proc/PID/stat.
type stat struct {
	pid, group   int
	state, start string
	threads      int
	ticks        int64 // utime, stime, cutime, cstime
}

// ended says whether nothing of the process runs any more. One whose first thread has ended is a zombie already while
// others still hold its files, and its port (measured, uwsgi: bind, address already in use, by the next one).
func (s stat) ended() bool { return s.state == "X" || s.state == "Z" && s.threads <= 1 }

func (s stat) older(start string) bool {
	a, errA := strconv.ParseInt(s.start, 10, 64)
	b, errB := strconv.ParseInt(start, 10, 64)
	return errA != nil || errB != nil || a < b
}

func readStat(pid int) (stat, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	// The second field is the program's name in parentheses, and may hold blanks and parentheses.
	_, rest, ok := strings.Cut(string(content[max(0, bytes.LastIndexByte(content, ')')):]), " ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 {
		return stat{}, fmt.Errorf("process %d has an odd stat: %s", pid, content)
	}
	s := stat{pid: pid, state: fields[0], start: fields[19]}
	if s.group, err = strconv.Atoi(fields[2]); err != nil {
		return stat{}, err
	}
	if s.threads, err = strconv.Atoi(fields[17]); err != nil {
		return stat{}, err
	}
	for _, f := range fields[11:15] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return stat{}, err
		}
		s.ticks += n
	}
	return s, nil
}

// processes lists what runs on the machine; what ends meanwhile is left out.
func processes() []stat {
	paths, _ := filepath.Glob("/proc/[0-9]*") // the pattern is right
	var all []stat
	for _, path := range paths {
		pid, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			continue
		}
		if s, err := readStat(pid); err == nil {
			all = append(all, s)
		}
	}
	return all
}

// poll looks until done, or until ctx ends.
func poll(ctx context.Context, done func() bool) error {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
	return nil
}
