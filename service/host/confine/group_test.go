// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestGroupFolder(t *testing.T) {
	const mount = "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw"
	for name, c := range map[string]struct {
		mount, own, folder string
		top                bool
	}{
		"a service": {
			mount, "0::/system.slice/raven.service\n", "/sys/fs/cgroup/system.slice/raven.service", false,
		},
		"the top of a container": {mount, "0::/\n", "/sys/fs/cgroup", true},
		"ours, made before":      {mount, "0::/raven-core\n", "/sys/fs/cgroup/raven-core", true},
		"a part of it is mounted": {
			strings.Replace(mount, " / /sys", " /docker/x /sys", 1), "0::/docker/x/y\n", "/sys/fs/cgroup/y", false,
		},
		"another part is mounted":   {strings.Replace(mount, " / /sys", " /docker/x /sys", 1), "0::/docker/y\n", "", false},
		"version 1":                 {strings.Replace(mount, "cgroup2 cgroup2", "cgroup cgroup", 1), "0::/x\n", "", false},
		"version 1 beside":          {mount, "9:memory:/x\n0::/y\n", "/sys/fs/cgroup/y", false},
		"only version 1 is in use":  {mount, "9:memory:/x\n", "", false},
		"a line that cannot be one": {"35 24", "0::/x\n", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			if folder, top := groupFolder(c.mount, c.own); folder != c.folder || top != c.top {
				t.Errorf("%q, %t", folder, top)
			}
		})
	}
}

// delegatedFolder is a folder with the files of a control group; that of the kernel does the rest.
func delegatedFolder(t *testing.T, controllers string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{"cgroup.controllers": controllers, "cgroup.subtree_control": ""} {
		if err := write(filepath.Join(folder, name), text); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// TestGroups holds what is written where, without a kernel that has control groups.
func TestGroups(t *testing.T) {
	if _, err := openGroups(delegatedFolder(t, "cpu pids\n"), true); err == nil ||
		!strings.Contains(err.Error(), "no memory controller") {
		t.Errorf("without the memory controller: %v", err)
	}
	if _, err := openGroups(delegatedFolder(t, "memory\n"), false); err == nil ||
		!strings.Contains(err.Error(), "not delegated") {
		t.Errorf("a group of others: %v", err)
	}
	folder := delegatedFolder(t, "cpu memory pids\n")
	groups, err := openGroups(folder, true)
	if err != nil {
		t.Fatal(err)
	}
	group, err := groups.New("pod", 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	path := filepath.Join(folder, "raven-driver-pod-"+strconv.Itoa(os.Getpid())+"-1")
	if group.Descriptor() <= 2 || group.folder.Name() != path {
		t.Errorf("group %s, descriptor %d", group.folder.Name(), group.Descriptor())
	}
	group.Kill()
	for name, want := range map[string]string{
		filepath.Join(folder, coreGroup, "cgroup.procs"): "0", // this process
		filepath.Join(path, "memory.max"):                strconv.Itoa(64 << 20),
		filepath.Join(path, "memory.swap.max"):           "0",
		filepath.Join(path, "memory.oom.group"):          "1",
		filepath.Join(path, "pids.max"):                  strconv.Itoa(maxThreads),
		filepath.Join(path, "cpu.weight"):                strconv.Itoa(processorShare),
		filepath.Join(path, "cgroup.kill"):               "1",
	} {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s has %q (%v), want %q", name, got, err, want)
		}
	}
	if err := write(filepath.Join(folder, "cgroup.subtree_control"), "memory pids"); err != nil {
		t.Fatal(err)
	}
	again, err := openGroups(folder, true)
	if err != nil {
		t.Fatal(err)
	}
	if other, err := again.New("pod", 1<<20); err == nil {
		defer other.Close()
	} else if !errors.Is(err, os.ErrExist) { // another Raven of this process counts from one, too
		t.Error(err)
	}
}

// TestMemoryOfAGroup has the kernel end a process that takes more than its group may have.
func TestMemoryOfAGroup(t *testing.T) {
	groups, err := FindGroups()
	if err != nil {
		t.Skipf("this machine has no control group for it: %v", err)
	}
	group, err := groups.New("test", 32<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	hog := exec.CommandContext(t.Context(), "tail", "/dev/zero") // keeps all of a line that never ends
	hog.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: group.Descriptor()}
	if err := hog.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- hog.Wait() }()
	select {
	case err = <-ended:
	case <-time.After(time.Minute):
		group.Kill()
		err = errors.Join(errors.New("it was not ended"), <-ended)
	}
	status, ok := hog.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || status.Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v", err)
	}
}
