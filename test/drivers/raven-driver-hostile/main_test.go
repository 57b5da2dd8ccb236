// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/host"
	"github.com/kuryr/raven/service/host/confine"
	"github.com/kuryr/raven/test/programs"
)

// The test binary is a Raven as well: one that becomes a driver, and with "raven:<folder>" one that launches the
// hostile driver and waits to be killed.
func TestMain(m *testing.M) {
	if confine.Called(os.Args) {
		confine.Main(os.Args)
	}
	if err := host.Shield(); err != nil {
		panic(err)
	}
	if len(os.Args) > 2 && os.Args[1] == "raven" {
		raven(os.Args[2], os.Args[3])
		return
	}
	status := m.Run()
	if path, err := program(); err == nil && os.Getenv(builtAt) == "" {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(status)
}

// program builds the hostile driver once: the one that a stranger would ship, without the race detector.
var program = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(builtAt); path != "" {
		return path, nil
	}
	folder, err := os.MkdirTemp("", "hostile")
	if err != nil {
		return "", err
	}
	return filepath.Join(folder, "raven-driver-hostile"), programs.Put(folder, programs.Hostile)
})

// The variables of the environment that say that a machine must have all that attacks are refused by, and where the
// hostile driver stands for one who cannot build it.
const (
	wantAll = "RAVEN_TEST_SANDBOX"
	builtAt = "RAVEN_TEST_HOSTILE"
)

const memoryLimit = 256 << 20

// world is what a hostile driver finds on a machine.
type world struct {
	secret  string // a file with credentials
	socket  string // of another program, that everybody may connect to
	inbox   string // likewise, for datagrams
	address string // where something listens with TCP
}

func newWorld(t *testing.T) world {
	t.Helper()
	//nolint:usetesting // sockets need short paths, and others must be able to come here
	folder, err := os.MkdirTemp("", "world")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	w := world{
		secret: filepath.Join(folder, "kuryr.conf"), socket: filepath.Join(folder, "docker.sock"),
		inbox: filepath.Join(folder, "notify"),
	}
	if err := errors.Join(os.Chmod(folder, 0o755),
		os.WriteFile(w.secret, []byte("password = hunter2"), 0o600)); err != nil {
		t.Fatal(err)
	}
	unixListener, err := net.Listen("unix", w.socket)
	if err != nil {
		t.Fatal(err)
	}
	inbox, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: w.inbox, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	tcpListener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(unixListener.Close(), inbox.Close(), tcpListener.Close()) })
	w.address = tcpListener.Addr().String()
	return w
}

func config(tb testing.TB, user string, log io.Writer, args ...string) host.Config {
	tb.Helper()
	path, err := program()
	if err != nil {
		tb.Fatal(err)
	}
	sandbox, err := host.NewSandbox(host.Policy{Mode: host.SandboxAuto, User: user, Memory: memoryLimit})
	if err != nil {
		tb.Fatal(err)
	}
	folder, err := os.MkdirTemp("", "run") //nolint:usetesting // sockets need short paths
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(folder) })
	return host.Config{
		Name: "hostile", Path: path, Args: args, RuntimeDir: folder, Sandbox: sandbox, Values: drivers.Values{},
		Logger: slog.New(slog.NewJSONHandler(log, nil)),
		Timeouts: host.Timeouts{
			Start: 30 * time.Second, Call: 5 * time.Second, Ping: 5 * time.Second, Drain: 300 * time.Millisecond,
			Kill:       time.Second,
			BackoffMin: 10 * time.Millisecond,
		},
	}
}

func launch(t *testing.T, c host.Config) *host.Plugin {
	t.Helper()
	p, err := host.Launch(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return p
}

// order makes the driver try something, and returns what it says came of it.
func order(tb testing.TB, p *host.Plugin, name, on string) (string, error) {
	tb.Helper()
	raw, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"name": name, "annotations": map[string]string{"on": on}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	set, err := p.Translate(tb.Context(), drivers.Object{Watch: "pods", Raw: raw}, drivers.NewNeeds(nil))
	if err != nil {
		return "", err
	}
	return *set.Resources[0].Spec.(drivers.Network).Name, nil
}

func active(s *host.Sandbox, name string) bool {
	return slices.ContainsFunc(s.Measures(), func(m host.Measure) bool { return m.Name == name && m.Active })
}

func TestStopIsBoundedWhateverItIgnores(t *testing.T) {
	p := launch(t, config(t, "", io.Discard))
	pid := p.Status().PID
	if text, err := order(t, p, "ignore-signals", ""); err != nil {
		t.Fatalf("%s, %v", text, err)
	}
	hanging := make(chan error, 1)
	go func() {
		_, err := order(t, p, "hang", "")
		hanging <- err
	}()
	if err := p.Stop(t.Context()); err != nil { // without a bound it would not return
		t.Error(err)
	}
	if err := <-hanging; err == nil {
		t.Error("the call in flight got an answer")
	}
	eventually(t, "the process is gone", func() bool { return !alive(pid) })
}

// raven launches the hostile driver, says its process, and waits to be killed.
func raven(path, folder string) {
	sandbox, err := host.NewSandbox(host.Policy{Mode: host.SandboxAuto, Memory: memoryLimit})
	if err != nil {
		panic(err)
	}
	p, err := host.Launch(context.Background(), host.Config{Path: path, RuntimeDir: folder, Sandbox: sandbox})
	if err != nil {
		panic(err)
	}
	fmt.Println(p.Status().PID)
	time.Sleep(time.Minute)
}

func TestNoProcessOutlivesAKilledRaven(t *testing.T) {
	c := config(t, "", io.Discard)
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	core := exec.Command(own, "raven", c.Path, c.RuntimeDir)
	core.Stderr = os.Stderr
	out, err := core.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := core.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 32)
	count, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(line[:count])))
	if err != nil || !alive(pid) {
		t.Fatalf("driver process %d: %v", pid, err)
	}
	if err := core.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = core.Wait()
	eventually(t, "the driver, which holds no lifeline and ignores signals, is gone", func() bool { return !alive(pid) })
}

func TestLies(t *testing.T) {
	w := newWorld(t)
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"another protocol":           {[]string{"other-protocol"}, "driver protocol 99"},
		"another's socket":           {[]string{"other-place", w.socket}, "its socket"},
		"no gRPC behind its socket":  {[]string{"garbage-socket"}, ""},
		"garbage for a handshake":    {[]string{"garbage-line"}, "is not ready within"},
		"nothing for a handshake":    {[]string{"silent"}, "is not ready within"},
		"another driver's name":      {[]string{"other-name"}, `calls itself driver "pod"`},
		"a version for terminals":    {[]string{"odd-version"}, "must be printable"},
		"no end of capabilities":     {[]string{"many-capabilities"}, "10000 capabilities"},
		"no end of a description":    {[]string{"long-info"}, "larger than max"},
		"no end of options":          {[]string{"many-options"}, "more than 65536 elements"},
		"no answer to the first ask": {[]string{"endless-info"}, "is not ready within"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := config(t, "", io.Discard, c.args...)
			if c.says == "is not ready within" { // the others answer in their own time
				config.Timeouts.Start = 3 * time.Second
			}
			p, err := host.Launch(t.Context(), config)
			if err == nil {
				_ = p.Stop(t.Context())
				t.Fatal("it was believed")
			}
			t.Logf("%.300q", err.Error())
			if !strings.HasPrefix(err.Error(), "driver(hostile): ") || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%q does not say %q", err, c.says)
			}
		})
	}
}

func TestGarbageAnswersAreErrorsOfTheirObjects(t *testing.T) {
	p := launch(t, config(t, "", io.Discard, "garbage-answers"))
	for range 5 {
		var own *host.Error
		if text, err := order(t, p, "x", ""); !errors.As(err, &own) {
			t.Errorf("%s, %v", text, err)
		}
	}
	if s := p.Status(); s.Restarts != 0 {
		t.Errorf("%+v", s)
	}
}

func TestNoAnswerIsADeadline(t *testing.T) {
	c := config(t, "", io.Discard, "never")
	c.Timeouts.Call = 500 * time.Millisecond
	p := launch(t, c)
	if text, err := order(t, p, "x", ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%s, %v", text, err)
	}
}

func alive(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(status), ") ")
	return !strings.HasPrefix(rest, "Z") && syscall.Kill(pid, 0) == nil
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}
