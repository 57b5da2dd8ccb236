// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/service"
)

// manager is systemd's side of sd_notify.
type manager struct {
	*journal
	notify  *service.Notifier
	conn    *net.UnixConn
	reading sync.WaitGroup
}

func newManager(t *testing.T, watchdog time.Duration) *manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "n")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	m := &manager{journal: &journal{}, conn: conn}
	m.reading.Go(func() {
		for buffer := make([]byte, 256); ; {
			n, err := conn.Read(buffer)
			if err != nil {
				return
			}
			text := string(buffer[:n])
			if when, stamped := strings.CutPrefix(text, "RELOADING=1\nMONOTONIC_USEC="); stamped && when != "" {
				text = "RELOADING=1 stamped"
			}
			text = strings.Replace(text, "\nEXTEND_TIMEOUT_USEC=", " within µs ", 1)
			m.add("%s", text)
		}
	})
	env := map[string]string{"NOTIFY_SOCKET": path, "WATCHDOG_USEC": fmt.Sprint(watchdog.Microseconds())}
	m.notify = service.NewNotifier(func(name string) string { return env[name] })
	return m
}

func (m *manager) close() {
	m.conn.Close() //nolint:errcheck // ends the reader
	m.reading.Wait()
}

func TestSystemd(t *testing.T) {
	said := newManager(t, 2*time.Second)
	r := newRig(t, time.Minute, said.notify)
	r.run(newFake(r.journal, "a"), newFake(r.journal, "b"))
	eventually(t, "ready", func() bool { return said.has("STATUS=running") })
	said.notify.Status("%d drivers\nready", 2)
	said.notify.Status("%d drivers\nready", 2) // the same is not sent again
	r.clock.Step(time.Second)
	eventually(t, "watchdog", func() bool { return said.has("WATCHDOG=1") })
	r.signals <- syscall.SIGHUP
	eventually(t, "ready again", func() bool { return said.count("READY=1") == 2 })
	r.signals <- syscall.SIGTERM
	if err := r.wait(t); err != nil {
		t.Error(err)
	}
	eventually(t, "stopping", func() bool { return said.has("STATUS=stopping a") })
	said.close()
	want := []string{
		"STATUS=starting a", "STATUS=starting b", "READY=1", "STATUS=running", "STATUS=2 drivers ready", "WATCHDOG=1",
		"RELOADING=1 stamped", "READY=1", "STOPPING=1 within µs 70000000", "STATUS=stopping b", "STATUS=stopping a",
	}
	if diff := cmp.Diff(want, said.all()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	nobody := service.NewNotifier(func(string) string { return "" })
	nobody.Send("READY=1")
	nobody.Status("nobody hears")
	r.cancel()
}

// TestReadyWaitsForTheStart: systemd is not told before the last service has started, nor is a status of a service
// overwritten.
func TestReadyWaitsForTheStart(t *testing.T) {
	said := newManager(t, 0)
	r := newRig(t, time.Minute, said.notify)
	a, synced := newFake(r.journal, "a"), make(chan struct{})
	a.start = func(context.Context) error {
		said.notify.Status("waiting for caches")
		<-synced
		said.notify.Status("caches are filled")
		return nil
	}
	r.run(a)
	eventually(t, "the start waits", func() bool { return said.has("STATUS=waiting for caches") })
	if said.has("READY=1") {
		t.Error("ready before the caches are")
	}
	close(synced)
	eventually(t, "ready", func() bool { return said.has("READY=1") })
	r.signals <- syscall.SIGTERM
	if err := r.wait(t); err != nil {
		t.Error(err)
	}
	eventually(t, "stopping", func() bool { return said.has("STATUS=stopping a") })
	said.close()
	want := []string{
		"STATUS=starting a", "STATUS=waiting for caches", "STATUS=caches are filled", "READY=1",
		"STOPPING=1 within µs 70000000", "STATUS=stopping a",
	}
	if diff := cmp.Diff(want, said.all()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	r.cancel()
}

// TestSystemdWaitsForAnUnboundedStop: as long as work in flight may take for ever, systemd is asked for more time,
// again and again.
func TestSystemdWaitsForAnUnboundedStop(t *testing.T) {
	said := newManager(t, 2*time.Second)
	r := newRig(t, 0, said.notify)
	a, ended := newFake(r.journal, "a"), make(chan struct{})
	a.stop = func(context.Context) error {
		<-ended
		return nil
	}
	r.run(a)
	eventually(t, "ready", func() bool { return said.has("STATUS=running") })
	r.signals <- syscall.SIGTERM
	const asks = "STOPPING=1 within µs 7000000"
	eventually(t, "a first time", func() bool { return said.count(asks) == 1 })
	r.clock.Step(time.Second)
	eventually(t, "a second time", func() bool { return said.count(asks) == 2 })
	close(ended)
	if err := r.wait(t); err != nil {
		t.Error(err)
	}
	said.close()
	r.cancel()
}

// TestWatchdogNeedsProgress: a loop that stands still leaves systemd's watchdog without an answer until it turns again.
func TestWatchdogNeedsProgress(t *testing.T) {
	said := newManager(t, 2*time.Second)
	r := newRig(t, time.Minute, nil)
	progress := service.NewProgress(r.clock)
	r.configure(func(c *service.Config) { c.Notify, c.Progress = said.notify, progress })
	beat, other := progress.Watch("engine", 3*time.Second), progress.Watch("other", time.Hour)
	r.run(newFake(r.journal, "a"))
	eventually(t, "running", func() bool { return said.has("STATUS=running") })
	tick := func() { // only when the launcher waits can a tick not be lost
		eventually(t, "the launcher waits", r.clock.HasWaiters)
		r.clock.Step(time.Second)
	}
	tick()
	eventually(t, "alive", func() bool { return said.count("WATCHDOG=1") == 1 })
	r.clock.Step(3 * time.Second)
	eventually(t, "it is said who stands still", func() bool { return said.has("STATUS=these stand still: engine") })
	if n := said.count("WATCHDOG=1"); n != 1 {
		t.Errorf("the watchdog was answered %d times", n)
	}
	if !strings.Contains(r.log.String(), "stand still") {
		t.Error("the log does not say so")
	}
	beat.Turn()
	tick()
	eventually(t, "alive again", func() bool { return said.count("WATCHDOG=1") == 2 })
	r.clock.Step(10 * time.Second)
	beat.End()
	other.End()
	if stalled := progress.Stalled(); len(stalled) != 0 {
		t.Errorf("an ended loop stands still: %v", stalled)
	}
	r.signals <- syscall.SIGTERM
	if err := r.wait(t); err != nil {
		t.Error(err)
	}
	said.close()
	r.cancel()
}

// TestAManagerThatDoesNotRead: a manager whose socket is full delays no caller for longer than a moment.
func TestAManagerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "n")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close() //nolint:errcheck // nothing is lost
	filler, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close() //nolint:errcheck // nothing is lost
	for err == nil {
		_ = filler.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		_, err = filler.Write([]byte("READY=1"))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the socket is not full: %v", err)
	}
	notify := service.NewNotifier(func(name string) string { return map[string]string{"NOTIFY_SOCKET": path}[name] })
	sent := make(chan struct{})
	go func() {
		notify.Send("WATCHDOG=1")
		close(sent)
	}()
	select {
	case <-sent:
	case <-time.After(time.Minute):
		t.Error("a manager that does not read holds the sender up")
	}
}

func TestOnReady(t *testing.T) {
	for name, tc := range map[string]struct {
		says []string
		end  string // of the error; empty is ready
	}{
		"ready":           {[]string{"READY=1"}, ""},
		"ready with more": {[]string{"STATUS=loading", "STATUS=loaded\nREADY=1"}, ""},
		"never":           {[]string{"STATUS=loading"}, `not ready (it says "loading"): context canceled`},
		"it stops":        {[]string{"STATUS=no cloud\nSTOPPING=1"}, `not ready (it says "no cloud"): it stops`},
	} {
		t.Run(name, func(t *testing.T) {
			socket, err := service.ListenReady("")
			if err != nil {
				t.Fatal(err)
			}
			defer socket.Close() //nolint:errcheck // closed below
			path := strings.TrimPrefix(socket.Environ(), "NOTIFY_SOCKET=")
			if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("others may say that the child is ready: %v %v", info, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			result := make(chan error, 1)
			go func() { result <- socket.OnReady(ctx) }()
			child := service.NewNotifier(func(name string) string { return map[string]string{"NOTIFY_SOCKET": path}[name] })
			for _, text := range tc.says {
				child.Send(text)
			}
			if name == "never" {
				cancel()
			}
			err = <-result
			if tc.end == "" && err != nil ||
				tc.end != "" && (!errors.Is(err, service.ErrNotReady) || !endsLike(err.Error(), tc.end)) {
				t.Errorf("got %v, want …%s", err, tc.end)
			}
			if err := socket.Close(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Dir(path)); !os.IsNotExist(err) {
				t.Errorf("the socket stays: %v", err)
			}
		})
	}
}

// endsLike allows the status to be missing, where the wait was cut before it was read.
func endsLike(text, end string) bool {
	return strings.HasSuffix(text, end) || strings.HasSuffix(text, "not ready: context canceled")
}

// TestOnReadyOfAChild waits for a real child process.
func TestOnReadyOfAChild(t *testing.T) {
	socket, err := service.ListenReady("")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close() //nolint:errcheck // nothing is lost
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChildThatIsReady$")
	child.Env = append(os.Environ(), socket.Environ(), "RAVEN_TEST_CHILD=1")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(socket.OnReady(t.Context()), child.Wait()); err != nil {
		t.Error(err)
	}
}

func TestChildThatIsReady(t *testing.T) {
	if os.Getenv("RAVEN_TEST_CHILD") == "" {
		t.Skip("this is the child process of TestOnReadyOfAChild")
	}
	service.NewNotifier(os.Getenv).Send("READY=1")
}
