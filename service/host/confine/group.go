// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Groups is a control group (v2) that was delegated to this process, with the memory controller.
type Groups struct {
	folder string
	last   atomic.Int64
}

// coreGroup is where this process goes: a group with groups of its own below it has no processes.
const coreGroup = "raven-core"

// FindGroups returns the control group in which groups for drivers can be made, or why there is none.
func FindGroups() (*Groups, error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer func() { _ = mounts.Close() }() // only read
	folder, top := "", false
	lines := bufio.NewScanner(mounts)
	for lines.Scan() {
		if found, isTop := groupFolder(lines.Text(), string(own)); found != "" {
			folder, top = found, isTop
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading what is mounted: %w", err)
	}
	if folder == "" {
		return nil, errors.New("no control groups of version 2 are mounted")
	}
	if filepath.Base(folder) == coreGroup { // we are there already
		folder = filepath.Dir(folder)
	}
	return openGroups(folder, top && isGroup(folder) || delegated(folder))
}

// groupFolder returns where this process's group is below a mount point, and whether it is the topmost that can be
// seen.
func groupFolder(mount, own string) (folder string, top bool) {
	before, after, _ := strings.Cut(mount, " - ")
	fields := strings.Fields(before)
	if !strings.HasPrefix(after, "cgroup2 ") || len(fields) < 5 {
		return "", false
	}
	for line := range strings.Lines(own) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			below, err := filepath.Rel(fields[3], path)
			if err != nil || strings.HasPrefix(below, "..") {
				return "", false
			}
			return filepath.Join(fields[4], below), path == "/" || path == "/"+coreGroup
		}
	}
	return "", false
}

// isGroup tells the topmost group of a container from that of the machine, which has no type.
func isGroup(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, "cgroup.type"))
	return err == nil
}

// delegated says whether systemd gave us a group (Delegate=).
func delegated(folder string) bool {
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		value := make([]byte, 8)
		if count, err := unix.Getxattr(folder, name, value); err == nil && string(value[:count]) == "1" {
			return true
		}
	}
	return false
}

func openGroups(folder string, owned bool) (*Groups, error) {
	has, err := words(filepath.Join(folder, "cgroup.controllers"))
	switch {
	case err != nil:
		return nil, err
	case !slices.Contains(has, "memory"):
		return nil, fmt.Errorf("%s has no memory controller", folder)
	case !owned:
		return nil, fmt.Errorf("%s is not delegated to Raven", folder)
	}
	if err := unix.Access(filepath.Join(folder, "cgroup.subtree_control"), unix.W_OK); err != nil {
		return nil, fmt.Errorf("%s is not writable: %w", folder, err)
	}
	g := &Groups{folder: folder}
	return g, g.divide()
}

// Processors says whether what a driver gets of processors is bounded too: not every machine lets it be.
func (g *Groups) Processors() bool {
	active, err := words(filepath.Join(g.folder, "cgroup.subtree_control"))
	return err == nil && slices.Contains(active, "cpu")
}

// divide moves this process into a group of its own, and lets the memory of the others be bounded.
func (g *Groups) divide() error {
	control := filepath.Join(g.folder, "cgroup.subtree_control")
	if active, err := words(control); err == nil && slices.Contains(active, "memory") {
		return nil
	}
	core := filepath.Join(g.folder, coreGroup)
	if err := os.Mkdir(core, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making a group for Raven itself: %w", err)
	}
	if err := write(filepath.Join(core, "cgroup.procs"), "0"); err != nil {
		return fmt.Errorf("moving into a group of its own: %w", err)
	}
	if err := write(control, "+memory"); err != nil {
		return fmt.Errorf("turning the memory controller on: %w", err)
	}
	_ = write(control, "+pids") // good to have
	_ = write(control, "+cpu")
	return nil
}

// Group is the control group of one process.
type Group struct{ folder *os.File }

// maxThreads is how many threads a driver may have, where they are counted for it alone.
const maxThreads = 256

// processorShare is what a driver gets of processors that it contends for: Raven's group has 100.
const processorShare = 25

// New makes a group whose memory is bounded, in bytes. The caller must Close it when its process has ended.
func (g *Groups) New(name string, memory int64) (*Group, error) {
	path := filepath.Join(g.folder, fmt.Sprintf("raven-driver-%s-%d-%d", name, os.Getpid(), g.last.Add(1)))
	if err := os.Mkdir(path, 0o750); err != nil {
		return nil, fmt.Errorf("making a control group: %w", err)
	}
	if err := write(filepath.Join(path, "memory.max"), strconv.FormatInt(memory, 10)); err != nil {
		return nil, errors.Join(fmt.Errorf("bounding memory: %w", err), os.Remove(path))
	}
	for file, value := range map[string]string{
		"memory.swap.max": "0", "memory.oom.group": "1", "pids.max": strconv.Itoa(maxThreads),
		"cpu.weight": strconv.Itoa(processorShare),
	} {
		_ = write(filepath.Join(path, file), value) // not every kernel has them
	}
	folder, err := os.Open(path)
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return &Group{folder}, nil
}

// Descriptor is for syscall.SysProcAttr.CgroupFD.
func (g *Group) Descriptor() int { return int(g.folder.Fd()) }

// Kill ends all that is in the group.
func (g *Group) Kill() { _ = write(filepath.Join(g.folder.Name(), "cgroup.kill"), "1") }

// Close removes the group.
func (g *Group) Close() { _ = errors.Join(os.Remove(g.folder.Name()), g.folder.Close()) }

func write(path, text string) error { return os.WriteFile(path, []byte(text), 0o600) }

func words(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	return strings.Fields(string(text)), err
}
