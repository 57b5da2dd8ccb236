// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Down removes a stack's folder: what was in it before must not be a stack's.
func TestAFolderWithOtherThingsGetsNoStack(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "rv") //nolint:usetesting // short: sockets would be below it
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := errors.Join(vacant(dir, 1), vacant(filepath.Join(dir, "missing"), 1),
		os.Mkdir(filepath.Join(dir, artifacts), 0o755), vacant(dir, 1)); err != nil {
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
		if err := errors.Join(os.Mkdir(b.path(artifacts), 0o755),
			os.WriteFile(b.path(artifacts, "log"), fmt.Append(nil, i), 0o644)); err != nil {
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

func TestAStackIsNotBroughtUpWhereOneStands(t *testing.T) {
	s := standing(t)
	if _, err := Up(t.Context(), Options{Dir: s.Dir()}); !errors.Is(err, ErrStands) ||
		!strings.Contains(err.Error(), "make e2e-down E2E_DIR="+s.Dir()+" ") {
		t.Errorf("the error is %v", err)
	}
	// Of two that come up at once the second finds out when it writes.
	if err := (&builder{Stack: s}).claim(); !errors.Is(err, ErrStands) {
		t.Errorf("the error of claiming what another has is %v", err)
	}
	if _, err := Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), "make e2e-up") {
		t.Errorf("the error of a folder without a stack is %v", err)
	}
}

// TestRoom: a disk without room is told of, with its numbers, also where the folder is not there yet.
func TestRoom(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet")
	if err := room(dir, 1); err != nil {
		t.Error(err)
	}
	err := room(dir, 1<<62)
	if err == nil || !strings.Contains(err.Error(), "MiB left, and a stack wants 4398046511104: make room") {
		t.Errorf("with too little room: %v", err)
	}
}
