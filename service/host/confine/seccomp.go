// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rule refuses a system call with an error, where all conditions hold.
type rule struct {
	call  uint32
	when  []condition
	error unix.Errno
}

// condition compares one half of an argument, after a mask, with a value.
type condition struct {
	argument int
	high     bool
	mask     uint32 // 0: all
	equal    bool
	value    uint32
}

func is(argument int, value uint32) condition {
	return condition{argument: argument, equal: true, value: value}
}

// bits holds where all of these are set.
func bits(argument int, all uint32) condition {
	return condition{argument: argument, mask: all, equal: true, value: all}
}

func isNot(argument int, value uint32) condition { return condition{argument: argument, value: value} }

// rules say what a driver is refused, beside what architecture lists: it translates, and for that it needs memory,
// threads and one socket that it accepts a connection on.
func rules(pid uint32) []rule {
	list := []rule{
		// No network, and no socket of another program: it listens, and never connects.
		{unix.SYS_SOCKET, []condition{isNot(0, unix.AF_UNIX)}, unix.EACCES},
		{unix.SYS_SOCKET, []condition{{argument: 1, mask: 0xf, value: unix.SOCK_STREAM}}, unix.EACCES},
		{unix.SYS_SOCKETPAIR, []condition{isNot(0, unix.AF_UNIX)}, unix.EACCES},
		// sendmsg names a receiver out of sight
		{unix.SYS_SOCKETPAIR, []condition{{argument: 1, mask: 0xf, value: unix.SOCK_STREAM}}, unix.EACCES},
		{unix.SYS_CONNECT, nil, unix.EACCES},
		{unix.SYS_SENDTO, []condition{isNot(4, 0)}, unix.EACCES},
		{unix.SYS_SENDTO, []condition{{argument: 4, high: true}}, unix.EACCES},
		// No process beside its own: threads only. The flags of clone3 are out of sight, so that libraries are led back to
		// clone.
		{unix.SYS_CLONE, []condition{{argument: 0, mask: unix.CLONE_THREAD, equal: true}}, unix.EPERM},
		{unix.SYS_CLONE3, nil, unix.ENOSYS},
		// It leaves neither its group nor the signal that ends it with Raven.
		{unix.SYS_PRCTL, []condition{is(0, unix.PR_SET_PDEATHSIG)}, unix.EPERM},
		{unix.SYS_PRCTL, []condition{is(0, unix.PR_SET_CHILD_SUBREAPER)}, unix.EPERM},
		// No memory that RLIMIT_DATA does not count: shared anonymous memory, and what grows downwards.
		{unix.SYS_MMAP, []condition{bits(3, unix.MAP_SHARED|unix.MAP_ANONYMOUS)}, unix.EPERM},
		{unix.SYS_MMAP, []condition{bits(3, unix.MAP_GROWSDOWN)}, unix.EPERM},
		// No signals to others, nor limits, nor the processors that they may have.
		{unix.SYS_KILL, []condition{isNot(0, pid)}, unix.EPERM},
		{unix.SYS_TGKILL, []condition{isNot(0, pid)}, unix.EPERM},
		{unix.SYS_RT_SIGQUEUEINFO, []condition{isNot(0, pid)}, unix.EPERM},
		{unix.SYS_RT_TGSIGQUEUEINFO, []condition{isNot(0, pid)}, unix.EPERM},
		{unix.SYS_PRLIMIT64, []condition{isNot(0, 0), isNot(0, pid)}, unix.EPERM},
		{unix.SYS_SCHED_SETAFFINITY, []condition{isNot(0, 0)}, unix.EPERM},
		// Nor such as the kernel would send for it, to the owner of a file.
		{unix.SYS_FCNTL, []condition{is(1, unix.F_SETOWN)}, unix.EPERM},
		{unix.SYS_FCNTL, []condition{is(1, unix.F_SETOWN_EX)}, unix.EPERM},
		{unix.SYS_FCNTL, []condition{is(1, unix.F_SETSIG)}, unix.EPERM},
		{unix.SYS_IOCTL, []condition{is(1, setOwner)}, unix.EPERM},
		{unix.SYS_IOCTL, []condition{is(1, setGroup)}, unix.EPERM},
	}
	for _, call := range append(refused(), architecture()...) {
		list = append(list, rule{call: call, error: unix.EPERM})
	}
	return list
}

// The orders of ioctl by which a socket gets an owner: FIOSETOWN and SIOCSPGRP.
const (
	setOwner = 0x8901
	setGroup = 0x8902
)

// refused are calls that no driver needs and that reach beyond its process.
func refused() []uint32 {
	return []uint32{
		unix.SYS_SETSID, unix.SYS_SETPGID, unix.SYS_TKILL, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_PIDFD_GETFD,
		unix.SYS_SETPRIORITY, unix.SYS_IOPRIO_SET, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETATTR,
		unix.SYS_SCHED_SETPARAM,
		unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_KCMP,
		unix.SYS_SETUID, unix.SYS_SETGID, unix.SYS_SETREUID, unix.SYS_SETREGID, unix.SYS_SETRESUID, unix.SYS_SETRESGID,
		unix.SYS_SETGROUPS,
		unix.SYS_SETFSUID, unix.SYS_SETFSGID, unix.SYS_CAPSET,
		unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_CHROOT, unix.SYS_PIVOT_ROOT, unix.SYS_MOUNT, unix.SYS_UMOUNT2,
		unix.SYS_OPEN_TREE,
		unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
		unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, // they do what this filter does not see
		unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_FANOTIFY_INIT,
		unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, unix.SYS_MEMFD_CREATE, unix.SYS_MEMFD_SECRET,
		unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_MSGGET, unix.SYS_SEMGET, unix.SYS_MQ_OPEN,
		unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE,
		unix.SYS_DELETE_MODULE,
		unix.SYS_KEXEC_LOAD, unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_SETTIMEOFDAY,
		unix.SYS_CLOCK_SETTIME,
		unix.SYS_ADJTIMEX, unix.SYS_CLOCK_ADJTIME, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_SYSLOG,
		unix.SYS_ACCT,
		unix.SYS_QUOTACTL, unix.SYS_VHANGUP,
	}
}

// Where the kernel puts what a filter reads.
const (
	numberAt    = 0
	machineAt   = 4
	argumentsAt = 16
)

// program assembles the rules. Each begins with the number of the call, and ends where a condition does not hold.
func assemble(list []rule) []unix.SockFilter {
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	give := func(value uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: value} }
	equal := func(value uint32, yes, no int) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: uint8(yes), Jf: uint8(no), K: value}
	}
	out := []unix.SockFilter{load(machineAt), equal(machine, 1, 0), give(unix.SECCOMP_RET_KILL_PROCESS)}
	if foreign != 0 { // calls of another convention carry this bit
		out = append(out, load(numberAt),
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jf: 1, K: foreign},
			give(unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS)))
	}
	for _, r := range list {
		var body []unix.SockFilter
		end := func(length int) int { return length } // how far it is to the end of the rule
		left := 1
		for i := len(r.when) - 1; i >= 0; i-- {
			c := r.when[i]
			at := uint32(argumentsAt + 8*c.argument)
			if c.high {
				at += 4
			}
			part := []unix.SockFilter{load(at)}
			if c.mask != 0 {
				part = append(part, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: c.mask})
			}
			if c.equal {
				part = append(part, equal(c.value, 0, end(left)))
			} else {
				part = append(part, equal(c.value, end(left), 0))
			}
			body = append(part, body...)
			left += len(part)
		}
		out = append(out, load(numberAt), equal(r.call, 0, left))
		out = append(out, body...)
		out = append(out, give(unix.SECCOMP_RET_ERRNO|uint32(r.error)))
	}
	return append(out, give(unix.SECCOMP_RET_ALLOW))
}

// Seccomp says whether the kernel, and this package on this machine, can filter system calls.
func Seccomp() bool {
	if machine == 0 {
		return false
	}
	action := uint32(unix.SECCOMP_RET_ERRNO)
	//nolint:gosec // what the system call takes
	_, _, code := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	return code == 0
}

// filter is an assembled program, nil where none is asked for.
type filter []unix.SockFilter

func (s Spec) filter() (filter, error) {
	if !s.Seccomp {
		return nil, nil
	}
	if machine == 0 {
		return nil, errors.New("applying seccomp: there is no filter for this kind of machine")
	}
	return assemble(rules(uint32(os.Getpid()))), nil
}

func (f filter) apply() error {
	if f == nil {
		return nil
	}
	program := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	_, _, refused := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0,
		uintptr(unsafe.Pointer(&program))) //nolint:gosec // what the system call takes
	if refused != 0 {
		return os.NewSyscallError("seccomp", refused)
	}
	return nil
}
