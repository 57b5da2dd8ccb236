// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kuryr/raven/test/harness"
	"github.com/kuryr/raven/test/programs"
	"github.com/kuryr/raven/test/sim/northbound"
)

// patience ends a test that would wait for ever.
const patience = 2 * time.Minute

// built is the folder with raven, raven-sim and the drivers, set by TestMain.
var built string

func TestMain(m *testing.M) { os.Exit(testAll(m)) }

func testAll(m *testing.M) int {
	var err error
	if built, err = os.MkdirTemp("", "raven-bin-"); err == nil {
		defer func() { _ = os.RemoveAll(built) }()
		// Tests wait for processes more than they work.
		err = errors.Join(programs.Put(built, append(programs.Shipped(), programs.Sim)...), flag.Set("test.parallel", "4"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "raven-sim's tests:", err)
		return 1
	}
	return m.Run()
}

// programDir is a folder with links to the programs: by it the processes of one test are told from those of others.
func programDir(t *testing.T) string {
	t.Helper()
	dir := shortTempDir(t)
	entries, err := os.ReadDir(built)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.Link(filepath.Join(built, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// demoRun is a demo that is running with a folder for temporary files of its own.
type demoRun struct {
	cmd      *exec.Cmd
	bin, tmp string
	output   *harness.Buffer
	ended    chan error
}

// shortTempDir is a folder whose path leaves room for that of a socket.
func shortTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rs") //nolint:usetesting // the test's name would be in the path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func startDemo(t *testing.T, args ...string) *demoRun {
	t.Helper()
	r := &demoRun{bin: programDir(t), tmp: shortTempDir(t), output: &harness.Buffer{}, ended: make(chan error, 1)}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	r.cmd = exec.CommandContext(ctx, filepath.Join(r.bin, "raven-sim"),
		append([]string{"demo", "--latency", "5ms", "--every", "300ms"}, args...)...)
	r.cmd.Env = append(os.Environ(), "TMPDIR="+r.tmp)
	r.cmd.Stdout, r.cmd.Stderr = r.output, r.output
	r.cmd.WaitDelay = 10 * time.Second
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.ended <- r.cmd.Wait()
	}()
	t.Cleanup(func() { cancel(); <-done })
	return r
}

// waitFor waits for a line of the output.
func (r *demoRun) waitFor(t *testing.T, pattern string) {
	t.Helper()
	expression := regexp.MustCompile(pattern)
	deadline := time.After(patience)
	for !expression.MatchString(r.output.String()) {
		select {
		case err := <-r.ended:
			t.Fatalf("it ended (%v) and no line matches %s in:\n%s", err, pattern, r.output)
		case <-deadline:
			t.Fatalf("no line matches %s in:\n%s", pattern, r.output)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// leftBehind says what is left of a run: files in its folder, and processes of its programs.
func (r *demoRun) leftBehind(t *testing.T) []string {
	t.Helper()
	var left []string
	entries, err := os.ReadDir(r.tmp)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, "file "+e.Name())
	}
	return append(left, r.processes(t)...)
}

func (r *demoRun) processes(t *testing.T) (left []string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Log("processes are not looked for: there is no /proc here")
		return nil
	}
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if exe, err := os.Readlink(link); err == nil && strings.HasPrefix(exe, r.bin+"/") {
			left = append(left, "process "+filepath.Base(filepath.Dir(link))+" "+exe)
		}
	}
	return left
}

const (
	podDone       = `pod shop/web-\S+: done  port [0-9a-f]{8} 192\.168\.\d+\.\d+ [0-9a-f:]{17}`
	namespaceDone = `namespace shop: done  network shop, subnet 192\.168\.\d+\.0/24, router raven-default-router`
)

func TestDemoShowsWhatBecomesOfTheWorkloadAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	r := startDemo(t)
	for _, want := range []string{
		podDone, namespaceDone, `pod blog/mariadb-\S+: done`, `pod ci/build-\S+: done  no port`,
		`pod monitoring/node-exporter-\S+: done  no port`,
		`(?m)pod \S+: gone$`, `kubectl get pods -A`, `ports by \d+, \d+ load balancers`,
		`service shop/web: done  VIP 10\.96\.0\.2 ACTIVE \d members outside 172\.24\.4\.\d+`,
	} {
		r.waitFor(t, want)
	}
	r.interrupt(t)
	text := r.output.String()
	if !strings.HasSuffix(text, "stopped; nothing is left behind\n") {
		t.Error("it does not end with the word that nothing is left")
	}
	if strings.Contains(text, "\x1b") {
		t.Error("escape sequences in an output that is no terminal")
	}
	if regexp.MustCompile(`: (failing|terminal)`).MatchString(text) {
		t.Error("something failed")
	}
	if t.Failed() {
		t.Log("\n" + text)
	}
}

// interrupt ends the demo as a person does, and looks for what is left.
func (r *demoRun) interrupt(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := <-r.ended; err != nil {
		t.Errorf("after SIGINT: %v\n%s", err, r.output)
	}
	if left := r.leftBehind(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestDemoEndsAfterItsTime(t *testing.T) {
	t.Parallel()
	r := startDemo(t, "--for", "1s")
	if err := <-r.ended; err != nil || !strings.HasSuffix(r.output.String(), "stopped; nothing is left behind\n") {
		t.Errorf("%v\n%s", err, r.output)
	}
	if left := r.leftBehind(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// With the driver kubeproxy Services are served in OVN's northbound database, the real one where there is one, which
// ends with the demo.
func TestDemoServesByOVN(t *testing.T) {
	t.Parallel()
	how := `ovn-nbctl --db=unix:`
	if northbound.Available() != nil {
		how = `database is one in this process`
	}
	r := startDemo(t, "--drivers", "namespace,pod,kubeproxy")
	r.waitFor(t, `service shop/web: done  VIP 10\.96\.0\.2 in OVN [1-9] members? outside 172\.24\.4\.\d+`)
	r.waitFor(t, how)
	r.interrupt(t)
}

func TestDemoStopsCleanlyWhenAskedTo(t *testing.T) {
	t.Parallel()
	r := startDemo(t)
	r.waitFor(t, podDone)
	r.interrupt(t)
}

func TestDemoStopsWhenNobodyReads(t *testing.T) {
	t.Parallel()
	bin, tmp := programDir(t), shortTempDir(t)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `"$0"/raven-sim demo --raven "$0"/raven | head -n 1`, bin)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	cmd.WaitDelay = 10 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "are up") {
		t.Errorf("%v: %s", err, out)
	}
	r := &demoRun{bin: bin, tmp: tmp}
	for deadline := time.Now().Add(patience); len(r.leftBehind(t)) > 0 &&
		time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
	}
	if left := r.leftBehind(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestNoProcessOutlivesAKilledDemo(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells a child of its parent's death")
	}
	r := startDemo(t)
	r.waitFor(t, podDone)
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if there := r.processes(t); len(there) == 5 {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("there are %v, want this program, raven and three drivers", there)
		}
	}
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-r.ended; err == nil {
		t.Error("a killed demo ended well")
	}
	deadline := time.Now().Add(patience)
	for left := r.processes(t); len(left) > 0; left = r.processes(t) {
		if time.Now().After(deadline) {
			t.Fatalf("left behind: %v", left)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestDemoSaysWhyRavenDied(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "raven")
	text := "#!/bin/sh\nfor a; do case $a in DEFAULT.log_file=*) echo the last line >\"${a#*=}\";; esac; done\necho " +
		"no luck >&2\nexit 3\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	r := startDemo(t, "--raven", script)
	var exit *exec.ExitError
	if err := <-r.ended; !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("the demo of a raven that dies ended with %v, want exit status 1", err)
	}
	for _, want := range []string{"raven-sim: raven ended by itself (exit status 3): no luck", "the last line"} {
		if !strings.Contains(r.output.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, r.output)
		}
	}
	if left := r.leftBehind(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestASecondSignalDoesNotWait(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "raven")
	text := "#!/bin/sh\ntrap '' TERM\ntouch \"$TMPDIR/up\"\nwhile :; do read x <\"$TMPDIR/never\" || sleep 0.05; done\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	r := startDemo(t, "--raven", script)
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(r.tmp, "up")); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the program was not started")
		}
	}
	for range 2 {
		if err := r.cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		r.waitFor(t, "stopping raven")
	}
	if err := <-r.ended; err == nil {
		t.Error("a demo that had to kill raven ended well")
	}
	if !strings.Contains(r.output.String(), "killed, as asked") {
		t.Errorf("it does not say that raven was killed:\n%s", r.output)
	}
}
