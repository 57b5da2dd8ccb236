package stack

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Down removes a stack's folder: what was in it before must not be a stack's.
func TestAFolderWithOtherThingsGetsNoStack(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "rv") // short
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := errors.Join(Vacant(dir), Vacant(filepath.Join(dir, "missing")), os.Mkdir(filepath.Join(dir, artifacts), 0o755), Vacant(dir)); err != nil {
		t.Errorf("of folders without anything but artifacts: %v", err)
	}
	precious := filepath.Join(dir, "precious")
	if err := os.WriteFile(precious, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Vacant(dir); !errors.Is(err, ErrOccupied) || !strings.Contains(err.Error(), "precious") {
		t.Fatalf("the error is %v, not that precious is there", err)
	}
	if _, err := Up(t.Context(), Options{Dir: dir}); !errors.Is(err, ErrOccupied) {
		t.Errorf("the error of Up is %v", err)
	}
	if err := Down(t.Context(), dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
	if err := Vacant("/tmp/" + strings.Repeat("x", 40)); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("of a long name: %v", err)
	}
}

func TestTheArtifactsOfTheStackBeforeStay(t *testing.T) {
	b := &builder{Stack: &Stack{dir: t.TempDir()}}
	for i := range 3 {
		if err := b.setAside(); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Mkdir(b.path(artifacts), 0o755), os.WriteFile(b.path(artifacts, "log"), fmt.Append(nil, i), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{artifacts: "2", olderArtifacts: "1"} {
		if content, err := os.ReadFile(b.path(path, "log")); err != nil || string(content) != want {
			t.Errorf("%s is of stack %s (%v), not %s", path, content, err, want)
		}
	}
}

func TestAPersonIsToldTheStacksFolder(t *testing.T) {
	for dir, want := range map[string]string{DefaultDir: "make e2e-down", "/tmp/x": "make e2e-down E2E_DIR=/tmp/x"} {
		if got := Make("e2e-down", dir); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

// Two stacks that come up at once choose their ports before their servers listen.
func TestPortsAreHeldUntilTheServersListen(t *testing.T) {
	b := &builder{Stack: &Stack{}}
	defer func() { b.release() }()
	if err := b.choosePorts(); err != nil {
		t.Fatal(err)
	}
	for name, port := range b.ports {
		if other, err := hold(port); err == nil {
			_ = other.Close()
			t.Errorf("another stack gets the port of %s", name)
		}
	}
	b.release()
	other, err := hold(b.ports["etcd"])
	if err != nil {
		t.Fatalf("a port that was let go: %v", err)
	}
	_ = other.Close()
}

// A folder that is removed takes along what other namespaces have mounted on it.
func TestOctaviasFolderOutlivesAStack(t *testing.T) {
	if out, err := exec.Command("unshare", "-m", "true").CombinedOutput(); err != nil {
		t.Skipf("mount namespaces cannot be made here: %v: %s", err, out)
	}
	shared := filepath.Join(t.TempDir(), "octavia")
	stacks := make([]*Stack, 2)
	for i := range stacks {
		sockets := t.TempDir()
		s := standing(t, Component{
			Name: "agent", Ready: Probe{Text: "ready now"},
			Argv: append(ownSockets(sockets, shared), "sh", "-c", `echo > "$0/socket"; echo ready now; exec sleep 1000`, shared),
		})
		stacks[i] = s
		if err := s.Start(t.Context(), "agent"); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(sockets, "socket")); err != nil {
			t.Errorf("what the server wrote is not in its own folder: %v", err)
		}
	}
	if entries, err := os.ReadDir(shared); err != nil || len(entries) > 0 {
		t.Errorf("the machine sees %v, %v", entries, err)
	}
	// The first was the one that made the folder, and earlier versions recorded that.
	first, second := stacks[0], stacks[1]
	var document map[string]any
	content, err := os.ReadFile(first.path(stateFile))
	if err == nil {
		err = json.Unmarshal(content, &document)
	}
	if err != nil {
		t.Fatal(err)
	}
	document["made"] = []string{shared}
	if content, err = json.Marshal(document); err == nil {
		err = os.WriteFile(first.path(stateFile), content, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := Down(t.Context(), first.Dir()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/root%s/socket", second.PID("agent"), shared)); err != nil {
		t.Errorf("the other stack's server has lost its sockets: %v", err)
	}
}
