// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	folderPattern = "raven-run-*"
	lockName      = "lock"
	// maxSocketPath is how long the kernel lets a socket's path be, and socketSuffix what go-plugin and the driver add
	// to Raven's.
	maxSocketPath = 107
	socketSuffix  = len("/plugin-dir") + 10 + len("/plugin") + 10
)

// folder is where the sockets of one driver are. A lock that goes with this process tells it from what a killed one
// left behind.
type folder struct {
	path string
	lock *os.File
}

// newFolder makes a folder under base that only this user can enter, and removes those there whose owners are dead.
func newFolder(base string) (*folder, error) {
	if base == "" {
		base = os.TempDir()
	}
	if err := os.MkdirAll(base, 0o700); err != nil {
		return nil, fmt.Errorf("making the runtime folder: %w", err)
	}
	base, err := filepath.Abs(base)
	if err != nil {
		return nil, fmt.Errorf("making the runtime folder: %w", err)
	}
	removeStale(base)
	for range 10 {
		made, err := tryFolder(base)
		if made != nil || err != nil {
			return made, err
		}
	}
	return nil, fmt.Errorf("runtime folder %s: no new folder stays", base)
}

// tryFolder returns nil when another process swept the folder before it was locked.
func tryFolder(base string) (*folder, error) {
	path, err := os.MkdirTemp(base, folderPattern)
	if err != nil {
		return nil, fmt.Errorf("making the runtime folder: %w", err)
	}
	if longest := len(path) + socketSuffix; longest > maxSocketPath {
		return nil,
			errors.Join(fmt.Errorf("the path of the runtime folder %s is %d bytes too long for sockets in it", base,
				longest-maxSocketPath),
				os.Remove(path))
	}
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil //nolint:nilnil // swept: try again
	}
	if err != nil {
		return nil, fmt.Errorf("locking the runtime folder: %w", err)
	}
	if err := flock(lock); err == nil {
		if _, err := os.Stat(lock.Name()); err == nil {
			return &folder{path: path, lock: lock}, nil
		}
	}
	return nil, lock.Close()
}

func flock(file *os.File) error { return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

// removeStale removes what it can; what it cannot is another user's, or for another time.
func removeStale(base string) {
	locks, err := filepath.Glob(filepath.Join(base, folderPattern, lockName))
	if err != nil {
		return
	}
	for _, name := range locks {
		lock, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if flock(lock) == nil {
			_ = os.RemoveAll(filepath.Dir(name))
		}
		_ = lock.Close()
	}
}

func (f *folder) remove() error {
	return errors.Join(os.RemoveAll(f.path), f.lock.Close())
}
