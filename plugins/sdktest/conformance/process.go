// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"

	"github.com/kuryr/raven/plugins/wire"
)

// Program returns how a program is started as a driver, much as Raven does it: with mutual TLS, a lifeline, a process
// group of its own and next to no environment, yet without the confinement that Raven puts around it: it is for a
// program that whoever runs this trusts.
func Program(path string, args ...string) func(ctx context.Context, env ...string) (*Target, error) {
	return func(ctx context.Context, env ...string) (*Target, error) { return launch(ctx, path, args, env) }
}

// process is a driver's process.
type process struct {
	cmd      *exec.Cmd
	client   *plugin.Client
	lifeline *os.File
	folder   string
	words    *words
}

func launch(_ context.Context, path string, args, env []string) (_ *Target, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	secure, certificate, err := wire.ClientTLS()
	if err != nil {
		return nil, fmt.Errorf("making a certificate for %s: %w", path, err)
	}
	p := &process{words: &words{}}
	if p.folder, err = os.MkdirTemp("", "raven-check-*"); err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.folder))
	}
	p.lifeline = write
	p.cmd = exec.Command(path, args...) //nolint:gosec,noctx // the program that was named; it lives as long as the Target
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.ExtraFiles = []*os.File{read}
	p.cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "PLUGIN_UNIX_SOCKET_DIR=" + p.folder, wire.LifelineEnv + "=3",
		wire.LogLevelEnv + "=debug", certificate,
	}, env...)
	p.client = plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig: wire.Handshake(), Plugins: wire.Plugins(&wire.Plugin{}), Cmd: p.cmd, TLSConfig: secure,
		SkipHostEnv:      true,
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC}, StartTimeout: 10 * time.Second,
		Logger:          hclog.NewNullLogger(),
		GRPCDialOptions: wire.DialOptions(), Stderr: p.words, SyncStdout: p.words, SyncStderr: p.words,
	})
	protocol, err := p.client.Client()
	_ = read.Close()
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("starting %s: %w%s", path, err, p.words.last())
	}
	over, ok := protocol.(*plugin.GRPCClient)
	if !ok {
		p.stop()
		return nil, fmt.Errorf("%s speaks %T, not gRPC", path, protocol)
	}
	if at := p.client.ReattachConfig().Addr.String(); filepath.Dir(at) != p.folder {
		p.stop()
		return nil, fmt.Errorf("%s listens on %s: its socket must be in the folder PLUGIN_UNIX_SOCKET_DIR itself", path, at)
	}
	return &Target{
		Conn: over.Conn, PID: p.cmd.Process.Pid, Printed: p.words.last, Stop: sync.OnceValue(p.stop), Orphan: p.orphan,
	}, nil
}

// stop asks the process to end, and then ends it with all that it started.
func (p *process) stop() bool {
	began := time.Now()
	p.client.Kill() // asks, waits for two seconds, kills
	orderly := time.Since(began) < 1900*time.Millisecond
	if p.cmd.Process != nil {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
	_ = p.lifeline.Close()
	_ = os.RemoveAll(p.folder)
	return orderly
}

func (p *process) orphan(within time.Duration) bool {
	_ = p.lifeline.Close()
	ticker, over := time.NewTicker(5*time.Millisecond), time.NewTimer(within)
	defer ticker.Stop()
	defer over.Stop()
	for !p.client.Exited() {
		select {
		case <-ticker.C:
		case <-over.C:
			return false
		}
	}
	return true
}

// words keeps the end of what a process wrote.
type words struct {
	mu   sync.Mutex
	text []byte
}

const keptWords = 600

// Write implements io.Writer.
func (w *words) Write(data []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, data...)
	if len(w.text) > 2*keptWords {
		w.text = bytes.Clone(w.text[len(w.text)-keptWords:])
	}
	return len(data), nil
}

func (w *words) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := strings.TrimSpace(string(w.text))
	if text == "" {
		return ""
	}
	return "; it wrote: " + strings.ReplaceAll(strings.ToValidUTF8(text[max(0, len(text)-keptWords):], "?"), "\n", " / ")
}
