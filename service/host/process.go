// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-plugin/runner"

	"github.com/kuryr/raven/plugins/wire"
	"github.com/kuryr/raven/service/host/confine"
)

// process is a driver's process in go-plugin's terms. It has a process group and a lifeline of its own, nothing of
// Raven's environment but what passedOn lists, and no standard input.
type process struct {
	cmd      *exec.Cmd
	path     string
	lifeline *os.File // our end; its closing, by us or by our death, ends the driver
	program  *program // the executable, opened and checked
	folder   string   // of a confined driver's socket; empty: it is not confined
	group    *confine.Group
	lines    *lines
	out      *io.PipeReader // what go-plugin reads: the handshake alone
	exited   chan struct{}

	mu        sync.Mutex
	number    int  // the process's, and its group's; 0 before the start
	unwanted  bool // killed before the start
	reaped    bool
	handshake string
	exitErr   error
}

var _ runner.Runner = (*process)(nil)

// passedOn names the variables of Raven's environment that drivers see.
func passedOn() []string {
	return []string{
		"PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GOTRACEBACK", "GODEBUG", "GOCOVERDIR",
	}
}

// programAt is the program's descriptor in the driver; the lifeline's is the one before.
const programAt = 4

func newProcess(ctx context.Context, config Config) (*process, error) {
	program, err := openProgram(config.Path, config.SHA256)
	if err != nil {
		return nil, err
	}
	path := program.path
	p := &process{path: path, program: program, lines: newLines(config.Logger, config.Clock), exited: make(chan struct{})}
	p.cmd = &exec.Cmd{
		Path: path, Args: append([]string{path}, config.Args...), SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if program.byDescriptor() {
		p.cmd.Path = fmt.Sprintf("/proc/self/fd/%d", programAt) // what was checked, whatever stands under its name by now
	}
	for _, name := range passedOn() {
		if value, ok := os.LookupEnv(name); ok {
			p.cmd.Env = append(p.cmd.Env, name+"="+value)
		}
	}
	p.cmd.Env = append(p.cmd.Env, config.Env...)
	p.cmd.Env = append(p.cmd.Env, wire.LifelineEnv+"=3", wire.LogLevelEnv+"="+leastLevel(ctx, config.Logger))
	return p, nil
}

// Start implements runner.Runner.
func (p *process) Start(context.Context) error {
	childEnd, lifeline, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making the lifeline: %w", err)
	}
	defer childEnd.Close() //nolint:errcheck // the child has its own
	p.lifeline = lifeline
	p.cmd.ExtraFiles = []*os.File{childEnd}
	if p.program.byDescriptor() {
		p.cmd.ExtraFiles = append(p.cmd.ExtraFiles, p.program.file)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	defer outW.Close() //nolint:errcheck // the child has its own
	errR, errW, err := os.Pipe()
	if err != nil {
		return errors.Join(fmt.Errorf("making a pipe: %w", err), outR.Close())
	}
	defer errW.Close() //nolint:errcheck // the child has its own
	p.cmd.Stdout, p.cmd.Stderr = outW, errW
	started := make(chan error, 1)
	toPlugin := p.handOver()
	go func() { //nolint:contextcheck // the log is written as long as the process lives
		// A driver dies with the thread that started it. So this one is kept for as long as the driver lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.execute()
		started <- err
		if err != nil {
			return
		}
		var readers sync.WaitGroup
		readers.Go(func() { p.readStdout(outR, toPlugin) })
		readers.Go(func() { _, _ = io.Copy(p.lines, errR) })
		p.reap(&readers, outR, errR)
	}()
	if err := <-started; err != nil {
		return errors.Join(fmt.Errorf("cannot execute %s: %w", p.path, err), outR.Close(), errR.Close())
	}
	return nil
}

// handOver makes the pipe by which go-plugin gets the handshake.
func (p *process) handOver() *io.PipeWriter {
	out, in := io.Pipe()
	p.out = out
	return in
}

func (p *process) execute() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unwanted {
		return context.Canceled
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.number = p.cmd.Process.Pid
	return nil
}

// reap waits for the process, takes what it started along, and reads its last words.
func (p *process) reap(readers *sync.WaitGroup, pipes ...*os.File) {
	awaitExit(p.pid())
	p.mu.Lock()
	_ = syscall.Kill(-p.number, syscall.SIGKILL) // it is not waited for yet, so its group cannot be another's
	if p.group != nil {
		p.group.Kill()
	}
	p.reaped = true
	p.mu.Unlock()
	err := p.cmd.Wait()
	for _, pipe := range pipes { // something that left the group may still hold them
		_ = pipe.SetReadDeadline(time.Now().Add(time.Second))
	}
	readers.Wait()
	for _, pipe := range pipes {
		_ = pipe.Close()
	}
	p.lines.flush()
	p.mu.Lock()
	p.exitErr = err
	p.mu.Unlock()
	close(p.exited)
}

// handshakeOf finds the handshake in a line, also behind text that was printed without a newline.
var handshakeOf = regexp.MustCompile(`\d+\|\d+\|(?:unix|tcp)\|.*$`)

// readStdout passes the handshake on, and everything else to the log: a driver that prints breaks nothing.
func (p *process) readStdout(from io.Reader, to *io.PipeWriter) {
	defer to.Close() //nolint:errcheck // never fails
	reader := bufio.NewReaderSize(from, 64<<10)
	for {
		line, err := reader.ReadSlice('\n')
		if found := handshakeOf.Find(bytes.TrimRight(line, "\r\n")); found != nil && p.handshakeLine() == "" {
			p.mu.Lock()
			p.handshake = string(found)
			p.mu.Unlock()
			_, _ = fmt.Fprintf(to, "%s\n", found)
			line = append(bytes.TrimSuffix(bytes.TrimRight(line, "\r\n"), found), '\n')
		}
		_, _ = p.lines.Write(line)
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (p *process) handshakeLine() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.handshake
}

// Kill implements runner.Runner: SIGKILL to the whole group, which also ends what a signal stopped.
func (p *process) Kill(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unwanted = p.number == 0
	if p.number == 0 || p.reaped {
		return nil
	}
	if err := syscall.Kill(-p.number, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("killing process group %d: %w", p.number, err)
	}
	return nil
}

// close lets go of our files, after the process is gone.
func (p *process) close() {
	if p.lifeline != nil {
		_ = p.lifeline.Close()
	}
	p.program.close()
	if p.group != nil {
		p.group.Close()
	}
}

// Wait implements runner.Runner.
func (p *process) Wait(context.Context) error {
	<-p.exited
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exitErr
}

// Stdout implements runner.Runner.
func (p *process) Stdout() io.ReadCloser { return p.out }

// Stderr implements runner.Runner. It is empty: the driver's lines go to our log without go-plugin.
func (p *process) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name implements runner.Runner.
func (p *process) Name() string { return p.path }

// ID implements runner.Runner.
func (p *process) ID() string {
	if pid := p.pid(); pid != 0 {
		return strconv.Itoa(pid)
	}
	return ""
}

// Diagnose implements runner.Runner; explain does it better.
func (p *process) Diagnose(context.Context) string { return "" }

// PluginToHost implements runner.Runner.
func (p *process) PluginToHost(network, address string) (string, string, error) {
	if p.folder == "" || network != "unix" {
		return network, address, nil
	}
	path, err := p.socket(address)
	return network, path, err
}

// HostToPlugin implements runner.Runner.
func (p *process) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.number
}
