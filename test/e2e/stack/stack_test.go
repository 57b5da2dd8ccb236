// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// standing is a stack with the given servers, none of which runs.
func standing(t *testing.T, components ...Component) *Stack {
	t.Helper()
	s := &Stack{dir: t.TempDir(), locks: map[string]*lock{}}
	s.state.Artifacts = s.path("artifacts")
	s.state.Network.Prefix = "rvtest"
	for _, dir := range []string{"pid", "tmp", "artifacts/log"} {
		if err := os.MkdirAll(s.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range components {
		c.Log = s.path("artifacts", "log", c.Name+".log")
		s.state.Components = append(s.state.Components, c)
	}
	if err := (&builder{Stack: s}).save(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range components {
			_ = s.Kill(context.Background(), c.Name)
		}
		s.Wait()
	})
	return s
}

// shell is a server that is a script; it is ready when it has said so.
func shell(name, script string, after ...string) Component {
	return Component{Name: name, Argv: []string{"sh", "-c", script}, After: after, Ready: Probe{Text: "ready now"}}
}

func TestServersAreStartedKilledAndStartedAgain(t *testing.T) {
	s := standing(t, shell("a", "sleep 1000 & echo ready now; wait"))
	ctx := t.Context()
	if err := s.Start(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	first := s.process("a")
	if members := first.members(); len(members) != 2 {
		t.Fatalf("the group has %d members, not the server and its child", len(members))
	}
	if err := s.Start(ctx, "a"); err != nil || s.PID("a") != first.pid {
		t.Fatalf("starting one that runs: %v, process %d instead of %d", err, s.PID("a"), first.pid)
	}
	if err := s.Kill(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if s.Running("a") || len(first.members()) > 0 {
		t.Fatal("the server or its child runs after Kill")
	}
	if err := s.Kill(ctx, "a"); err != nil {
		t.Fatalf("killing one that is gone: %v", err)
	}
	if err := s.Restart(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if s.PID("a") == first.pid || !s.Running("a") {
		t.Fatal("it was not started again")
	}
}

func TestTheChildrenOfAServerThatDiedAreKilled(t *testing.T) {
	s := standing(t, shell("a", "sleep 1000 & echo ready now; wait"))
	if err := s.Start(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	p := s.process("a")
	if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "the leader is gone and its child is left", func() bool { return !p.alive() && len(p.members()) == 1 })
	if err := s.Stop(t.Context(), "a", time.Second); err != nil {
		t.Fatal(err)
	}
	if left := p.members(); len(left) > 0 {
		t.Fatalf("left: %v", left)
	}
}

// An id of a process may be given to another process after its end.
func TestNobodyElsesProcessIsTouched(t *testing.T) {
	foreign := exec.Command("sleep", "1000")
	foreign.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := foreign.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = foreign.Process.Kill(); _ = foreign.Wait() }()
	stat, err := readStat(foreign.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	s := standing(t, shell("a", "echo ready now; sleep 1000"))
	// What is recorded began after the foreign process did, so that it cannot be that one.
	record := fmt.Appendf(nil, "%d %s9 0\n", foreign.Process.Pid, stat.start)
	if err := os.WriteFile(s.path("pid", "a"), record, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if now, err := readStat(foreign.Process.Pid); err != nil || now.state == "Z" {
		t.Fatalf("the foreign process was killed: %v %v", now, err)
	}
}

func TestAFailedStartShowsTheLog(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		bound  time.Duration
		want   string
	}{
		"it ends":           {"echo no such option >&2; exit 1", time.Minute, "a ended instead of becoming ready"},
		"it is never ready": {"echo still thinking; sleep 1000", 300 * time.Millisecond, "a is not ready"},
	} {
		t.Run(name, func(t *testing.T) {
			s := standing(t, shell("a", test.script))
			ctx, cancel := context.WithTimeout(t.Context(), test.bound)
			defer cancel()
			err := s.Start(ctx, "a")
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("the error is %v, not that %s", err, test.want)
			}
			said := strings.Fields(test.script)[1] // its first word
			if !strings.Contains(err.Error(), said) || !strings.Contains(err.Error(), "a.log") {
				t.Errorf("the log is not in the error: %v", err)
			}
		})
	}
}

func TestReadinessOfAnEarlierStartDoesNotCount(t *testing.T) {
	// It says that it is ready at its first start only.
	s := standing(t, shell("a", `[ -e "$TMPDIR/once" ] || { touch "$TMPDIR/once"; echo ready now; }; sleep 1000`))
	if err := s.Start(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := s.Restart(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second start: %v, not that it is never ready", err)
	}
}

func TestStepsComeAfterWhatTheyNeed(t *testing.T) {
	var order []string
	done := make(chan string, 3)
	note := func(name string, after ...string) step {
		return step{name: name, after: after, do: func(context.Context) error { done <- name; return nil }}
	}
	var progress bytes.Buffer
	if err := runSteps(t.Context(), []step{note("c", "b"), note("b", "a"), note("a")}, &progress); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		order = append(order, <-done)
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, order); diff != "" {
		t.Error(diff)
	}
	if lines := strings.Count(progress.String(), "\n"); lines != 3 {
		t.Errorf("%d lines of progress:\n%s", lines, progress.String())
	}
}

func TestAStepThatFailsStopsTheOthersAndIsNamed(t *testing.T) {
	broken := errors.New("broken")
	steps := []step{
		{name: "a", do: func(context.Context) error { return broken }},
		{name: "b", do: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
		{name: "c", after: []string{"a"}, do: func(context.Context) error { t.Error("c was done"); return nil }},
	}
	err := runSteps(t.Context(), steps, &bytes.Buffer{})
	if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "a: ") {
		t.Errorf("the error is %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err = runSteps(ctx, steps[1:2], &bytes.Buffer{})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "b") {
		t.Errorf("after the bound the error is %v, without what was not done", err)
	}
	if err := runSteps(t.Context(), []step{{name: "a", after: []string{"z"}}}, &bytes.Buffer{}); err == nil {
		t.Error("a step that waits for nothing was taken")
	}
}

func TestDownLeavesTheArtifactsOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: the network namespaces of a stack cannot be looked through")
	}
	// The second outlives its leader in a session of its own, and is found by its mark.
	s := standing(t, shell("db", "echo ready now; exec sleep 1000"),
		shell("api", "setsid sleep 1000 & echo ready now; wait", "db"))
	if err := os.Mkdir(s.path(olderArtifacts), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"db", "api"} {
		if err := s.Start(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the child strays", func() bool {
		groups := map[int]bool{}
		for _, p := range s.leftProcesses() {
			groups[p.group] = true
		}
		return len(groups) == 3
	})
	err := Down(t.Context(), s.Dir())
	if err == nil || !strings.Contains(err.Error(), "outlived") {
		t.Errorf("the error is %v, without the strayed process", err)
	}
	if left := s.leftProcesses(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	// Nothing of it is there any more, so that the next one can come up.
	entries, err := os.ReadDir(s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 2 || entries[0].Name() != artifacts || entries[1].Name() != olderArtifacts {
		t.Errorf("left: %v", entries)
	}
	if err := Down(t.Context(), s.Dir()); err != nil {
		t.Errorf("where nothing stands: %v", err)
	}
}

func TestServersThatEndedAreNamed(t *testing.T) {
	s := standing(t, shell("a", "echo ready now; exec sleep 1000"), shell("b", "echo ready now; exec sleep 1000"))
	for _, name := range []string{"a", "b"} {
		if err := s.Start(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if ended := s.Ended(); len(ended) > 0 {
		t.Errorf("both run, and these are named: %q", ended)
	}
	if err := syscall.Kill(s.PID("b"), syscall.SIGABRT); err != nil {
		t.Fatal(err)
	}
	await(t, "b has ended", func() bool { return !s.Running("b") })
	if ended := s.Ended(); len(ended) != 1 || !strings.HasPrefix(ended[0], "b does not run") ||
		!strings.Contains(ended[0], "ready now") {
		t.Errorf("not b with its log is named: %q", ended)
	}
}

// What Up writes and how it orders the servers can be seen without starting any.
func TestTheServersOfAStack(t *testing.T) {
	b := built(t)
	var names []string
	for _, c := range b.Components() {
		for _, other := range c.After {
			if _, err := b.Component(other); err != nil {
				t.Errorf("%s comes after %s: %v", c.Name, other, err)
			}
		}
		names = append(names, c.Name)
		if text := strings.Join(append(c.Argv, c.Env...), " "); strings.Contains(text, "0.0.0.0") {
			t.Errorf("%s listens on more than loopback: %s", c.Name, text)
		}
	}
	for _, name := range []string{
		Etcd, APIServer, ControllerManager, Scheduler, Kwok, MariaDB, Keystone, NeutronServer, Northd, Vswitchd,
		OVNController, OctaviaAPI, OctaviaWorker,
	} {
		if !slices.Contains(names, name) {
			t.Errorf("there is no %s", name)
		}
	}
	written, err := filepath.Glob(b.path("etc", "*.conf"))
	if err != nil || len(written) < 8 {
		t.Fatalf("%v, %v", written, err)
	}
	for _, path := range written {
		content, err := os.ReadFile(path)
		if err != nil || bytes.Contains(content, []byte("{{")) || bytes.Contains(content, []byte("no value")) {
			t.Errorf("%s: %v\n%s", path, err, content)
		}
	}
	again, err := Open(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.Components(), again.Components()); diff != "" {
		t.Errorf("what is opened differs:\n%s", diff)
	}
	if err := again.Override(Keystone, "[token]\nexpiration = 20\n"); err != nil {
		t.Error(err)
	}
	if err := again.Override(Etcd, "x"); err == nil {
		t.Error("etcd has no options to override")
	}
}

// built is a stack whose files are written, and none of whose servers run.
func built(t *testing.T) *builder {
	t.Helper()
	dir := t.TempDir()
	loader := filepath.Join(dir, "openvswitch", "usr/lib/any-linux-gnu/ld-linux-any.so.2")
	if err := os.MkdirAll(loader, 0o755); err != nil {
		t.Fatal(err)
	}
	b := newBuilder(Options{
		Dir: dir, ControlPlane: "/bin/true", OpenVSwitch: filepath.Join(dir, "openvswitch"), Cache: dir,
		Progress: &bytes.Buffer{},
	})
	if err := b.layOut(); err != nil {
		t.Fatal(err)
	}
	b.release()
	b.addAll()
	if err := errors.Join(b.err, b.save()); err != nil {
		t.Fatal(err)
	}
	return b
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := poll(ctx, done); err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}

// A process whose first thread has ended is a zombie, and its other threads still hold its files.
func TestAProcessEndsWithItsLastThread(t *testing.T) {
	for _, tt := range []struct {
		state   string
		threads int
		ended   bool
	}{{"S", 1, false}, {"Z", 8, false}, {"Z", 1, true}, {"Z", 0, true}, {"X", 1, true}} {
		if got := (stat{state: tt.state, threads: tt.threads}).ended(); got != tt.ended {
			t.Errorf("state %s with %d threads: ended is %v", tt.state, tt.threads, got)
		}
	}
	own, err := readStat(os.Getpid())
	if err != nil || own.threads < 2 || own.ended() {
		t.Errorf("of this process is said: %+v (%v)", own, err)
	}
}
