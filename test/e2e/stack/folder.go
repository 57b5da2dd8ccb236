// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// ErrStands is the error of Vacant and Up where a stack stands already.
var ErrStands = errors.New("a stack stands")

// ErrOccupied is the error of Vacant and Up where the folder holds what no stack has left there. Down would remove it.
var ErrOccupied = errors.New("the folder is not empty")

// What outlives a stack: its artifacts, and those of the stack before.
const artifacts, olderArtifacts = "artifacts", "artifacts.1"

// stateFile is what a folder with a stack in it is known by.
const stateFile = "stack.json"

// Make is how a person calls a target of the Makefile for the stack in dir.
func Make(target, dir string) string {
	if dir == DefaultDir {
		return "make " + target
	}
	return "make " + target + " E2E_DIR=" + dir
}

// Vacant says why no stack can come up in dir, or nil: one stands there (ErrStands), something else is there
// (ErrOccupied), the name is too long, the disk is full. Nothing is touched, and the folder may be missing.
func Vacant(dir string) error { return vacant(dir, roomForStack) }

func vacant(dir string, want uint64) error {
	if _, err := os.Stat(filepath.Join(dir, stateFile)); err == nil {
		return stands(dir)
	}
	if len(dir) > 40 {
		return fmt.Errorf("the folder's name %s is too long for the sockets in it: 40 bytes at most", dir)
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return room(dir, want)
	}
	if err != nil {
		return fmt.Errorf("looking whether a stack can stand there: %w", err)
	}
	var others []string
	for _, entry := range entries {
		if !outlives(entry.Name()) {
			others = append(others, entry.Name())
		}
	}
	if len(others) == 0 {
		return room(dir, want)
	}
	shown := strings.Join(others[:min(5, len(others))], ", ")
	if len(others) > 5 {
		shown += fmt.Sprintf(" and %d more", len(others)-5)
	}
	return fmt.Errorf("%w: %s holds %s, which would go with the stack; name an empty folder (E2E_DIR), or remove that",
		ErrOccupied, dir, shown)
}

// roomForStack is how many bytes the servers' databases and logs want, with some to spare: 330 MB after the first
// half of a whole run (measured).
const roomForStack = 1 << 30

// room says that the disk under dir, which need not be there yet, has less than so many bytes left. A full one shows
// itself late: MariaDB waits for room without an end.
func room(dir string, want uint64) error {
	for at := dir; ; at = filepath.Dir(at) {
		var disk syscall.Statfs_t
		err := syscall.Statfs(at, &disk)
		if errors.Is(err, os.ErrNotExist) && at != filepath.Dir(at) {
			continue
		}
		if err != nil {
			return fmt.Errorf("looking how much room there is for a stack at %s: %w", at, err)
		}
		if left := disk.Bavail * uint64(disk.Bsize); left < want {
			return fmt.Errorf("the disk under %s has %d MiB left, and a stack wants %d: make room, or name a folder on "+
				"another disk (E2E_DIR)", at, left>>20, want>>20)
		}
		return nil
	}
}

func stands(dir string) error {
	return fmt.Errorf("%w in %s: %s takes it down", ErrStands, dir, Make("e2e-down", dir))
}

// outlives says whether an entry of the folder stays there for people to read.
func outlives(name string) bool { return name == artifacts || name == olderArtifacts }

// claim makes the folder this stack's: of several that come up at once in it, one gets it.
func (b *builder) claim() error {
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	written, err := b.writeState()
	if err != nil {
		return err
	}
	err = os.Link(written, b.path(stateFile)) // which a rename would replace
	if errors.Is(err, os.ErrExist) {
		err = stands(b.dir)
	}
	return errors.Join(err, os.Remove(written))
}

// save writes stack.json.
func (b *builder) save() error {
	written, err := b.writeState()
	if err != nil {
		return err
	}
	return os.Rename(written, b.path(stateFile))
}

// writeState writes what is to become stack.json: nobody may read half of it.
func (b *builder) writeState() (path string, err error) {
	content, err := json.MarshalIndent(b.state, "", "  ")
	if err != nil {
		return "", err
	}
	path = fmt.Sprintf("%s.%d", b.path(stateFile), os.Getpid())
	return path, os.WriteFile(path, content, 0o644)
}

// setAside keeps what the last stack left for people to read, and lets go of what the one before it left.
func (b *builder) setAside() error {
	if _, err := os.Stat(b.path(artifacts)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := os.RemoveAll(b.path(olderArtifacts)); err != nil {
		return err
	}
	return os.Rename(b.path(artifacts), b.path(olderArtifacts))
}

// removeFiles removes the folder but for what outlives the stack; stack.json goes last, so that what fails can be
// tried again.
func (s *Stack) removeFiles() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(entry os.DirEntry) bool {
		return outlives(entry.Name()) || entry.Name() == stateFile
	})
	for _, entry := range entries {
		if err := os.RemoveAll(s.path(entry.Name())); err != nil {
			return err
		}
	}
	return os.Remove(s.path(stateFile))
}
