// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// hierarchies are the folders of control groups: of each of version 1, and of version 2.
func hierarchies() ([]string, error) {
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var folders []string
	for line := range strings.Lines(string(content)) {
		before, after, _ := strings.Cut(line, " - ")
		kind, _, _ := strings.Cut(after, " ")
		if fields := strings.Fields(before); len(fields) > 4 && (kind == "cgroup" || kind == "cgroup2") {
			folders = append(folders, fields[4])
		}
	}
	if len(folders) == 0 {
		return nil, errors.New("no control groups are mounted on this machine: kubelets need them")
	}
	slices.Sort(folders)
	return slices.Compact(folders), nil
}

// makeCgroups makes a control group in each hierarchy.
func makeCgroups(name string) error {
	folders, err := hierarchies()
	if err != nil {
		return err
	}
	for _, folder := range folders {
		if err := os.MkdirAll(filepath.Join(folder, name), 0o755); err != nil {
			return err
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // version 1: empty in a new group, and then of no use
			content, err := os.ReadFile(filepath.Join(folder, file))
			if err != nil {
				continue
			}
			if err := os.WriteFile(filepath.Join(folder, name, file), content, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// killCgroup kills what runs in a control group and those below, and waits until nothing does.
func killCgroup(ctx context.Context, name string) error {
	folders, err := hierarchies()
	if err != nil {
		return err
	}
	var left []int
	if err := poll(ctx, func() bool {
		left = nil
		for _, folder := range folders {
			left = append(left, processesIn(filepath.Join(folder, name))...)
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // gone meanwhile: the next look tells
		}
		return len(left) == 0
	}); err != nil {
		return fmt.Errorf("processes %v of control group %s are still there: %w", left, name, err)
	}
	return nil
}

// processesIn lists the processes in a control group and those below.
func processesIn(dir string) []int {
	var pids []int
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "cgroup.procs" {
			return nil //nolint:nilerr // groups come and go meanwhile
		}
		content, _ := os.ReadFile(path) // gone meanwhile
		for _, field := range strings.Fields(string(content)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

// removeCgroups removes a control group and those below from each hierarchy.
func removeCgroups(ctx context.Context, name string) error {
	folders, err := hierarchies()
	if err != nil {
		return err
	}
	var last error
	if err := poll(ctx, func() bool {
		last = nil
		for _, folder := range folders {
			last = errors.Join(last, removeGroups(filepath.Join(folder, name)))
		}
		return last == nil
	}); err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// removeGroups removes the folders, those below first. Their files are the kernel's.
func removeGroups(dir string) error {
	var groups []string
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			groups = append(groups, path)
		}
		return nil
	})
	var errs []error
	for _, group := range slices.Backward(groups) {
		if err := os.Remove(group); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// settings are what nodes change on the machine itself.
type settings struct {
	Kernel  map[string]string `json:"kernel"`  // below /proc/sys
	Folders []string          `json:"folders"` // those of fixedFolders that were made for them, and their parents
}

// kernelSettings are those that a kubelet sets, which has no namespace for them.
func kernelSettings() []string {
	return []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"}
}

func (s *Stack) settingsFile() string { return s.path("n", "settings.json") }

// keepSettings notes the machine's settings, and makes the folders that nodes mount their own over.
func (s *Stack) keepSettings() error {
	kept := settings{Kernel: map[string]string{}}
	for _, name := range kernelSettings() {
		content, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if err != nil {
			return err
		}
		kept.Kernel[name] = strings.TrimSpace(string(content))
	}
	for _, folder := range fixedFolders() {
		if _, err := os.Stat(folder); errors.Is(err, os.ErrNotExist) {
			kept.Folders = append(kept.Folders, folder)
		}
	}
	content, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.settingsFile(), content, 0o644); err != nil {
		return err
	}
	for _, folder := range kept.Folders {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// restoreSettings sets the machine's settings as they were before nodes were up.
func (s *Stack) restoreSettings() error {
	content, err := os.ReadFile(s.settingsFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil // nothing was changed yet
	}
	if err != nil {
		return err
	}
	var kept settings
	if err := json.Unmarshal(content, &kept); err != nil {
		return fmt.Errorf("reading %s: %w", s.settingsFile(), err)
	}
	var errs []error
	for name, value := range kept.Kernel {
		errs = append(errs, os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644))
	}
	for _, folder := range kept.Folders {
		// One that holds something by now is another's.
		if err := os.Remove(folder); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
