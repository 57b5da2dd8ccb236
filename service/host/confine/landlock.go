// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The rights of Landlock that we give, and the version of its interface from which on each can be spoken of.
const (
	readRights  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	writeRights = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR |
		unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE
	fileRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE

	firstRights  = 1<<13 - 1 // all of the first version
	netVersion   = 4
	scopeVersion = 6
)

// fsRights are all rights to files that a version of Landlock knows: what is not given is refused.
func fsRights(version int) uint64 {
	rights := uint64(firstRights)
	for _, later := range []struct {
		from  int
		right uint64
	}{{2, unix.LANDLOCK_ACCESS_FS_REFER}, {3, unix.LANDLOCK_ACCESS_FS_TRUNCATE}, {5, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV}} {
		if version >= later.from {
			rights |= later.right
		}
	}
	return rights
}

// Landlock returns the version of Landlock's interface that the kernel has, 0 where there is none.
func Landlock() int {
	version, _, code := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if code != 0 {
		return 0
	}
	return int(version)
}

// Libraries are what programs are made of on this machine, to be read and executed.
func Libraries() []string {
	return []string{
		"/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/etc/ld.so.cache", "/etc/ld.so.conf",
		"/etc/ld.so.conf.d",
		"/etc/ld.so.preload", "/etc/localtime",
	}
}

// devices may be read, and written to: nothing is kept there. /dev/zero is none of them: what is mapped of it is
// memory that no limit counts.
func devices() []string { return []string{"/dev/null", "/dev/random", "/dev/urandom"} }

// ruleset holds rules until they are applied: files are best named before anything is given up. 0 is none.
type ruleset struct{ fd int }

func (r *ruleset) build(s Spec) error {
	if !s.Landlock {
		return nil
	}
	version := Landlock()
	if version == 0 {
		return errors.New("this kernel has no Landlock")
	}
	rules := unix.LandlockRulesetAttr{Handled_access_fs: fsRights(version)}
	if version >= netVersion {
		rules.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if version >= scopeVersion {
		rules.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	//nolint:gosec // what the system call takes
	fd, _, code := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&rules)), unsafe.Sizeof(rules), 0)
	if code != 0 {
		return code
	}
	r.fd = int(fd)
	read := append(Libraries(), s.Read...)
	if s.Descriptor != 0 {
		read = append(read, fmt.Sprintf("/proc/self/fd/%d", s.Descriptor))
	} else {
		read = append(read, s.Program)
	}
	for _, grant := range []struct {
		paths  []string
		rights uint64
	}{
		{read, readRights},
		{append(devices(), s.Write...), writeRights},
	} {
		for _, path := range grant.paths {
			if err := r.allow(path, grant.rights&rules.Handled_access_fs); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	return nil
}

// allow adds a rule for a path. What is not there, or cannot be reached, needs none.
func (r *ruleset) allow(path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // it was only named
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= fileRights
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, code := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(r.fd), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0) //nolint:gosec // what the system call takes
	if code != 0 {
		return code
	}
	return nil
}

func (r *ruleset) apply() error {
	if r.fd == 0 {
		return nil
	}
	if _, _, code := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(r.fd), 0, 0); code != 0 {
		return os.NewSyscallError("landlock_restrict_self", code)
	}
	return nil
}
