// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fileOwner makes its core the owner of one of its files, which the kernel then sends a signal when something can be
// read there, or chooses which signal that is: SIGKILL would do.
func fileOwner(on string) (string, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(pair[0]) }() // with that it owns nothing any more
	defer func() { _ = unix.Close(pair[1]) }()
	owner := struct{ kind, pid int32 }{1, int32(os.Getppid())}
	file, core, at := uintptr(pair[0]), uintptr(os.Getppid()), unsafe.Pointer(&owner)
	tries := map[string][3]uintptr{
		"F_SETOWN":    {unix.SYS_FCNTL, unix.F_SETOWN, core},
		"F_SETOWN_EX": {unix.SYS_FCNTL, unix.F_SETOWN_EX, uintptr(at)},
		"F_SETSIG":    {unix.SYS_FCNTL, unix.F_SETSIG, uintptr(unix.SIGWINCH)},
		"FIOSETOWN":   {unix.SYS_IOCTL, 0x8901, uintptr(unsafe.Pointer(&owner.pid))},
		"SIOCSPGRP":   {unix.SYS_IOCTL, 0x8902, uintptr(unsafe.Pointer(&owner.pid))},
	}
	try, ok := tries[on]
	if !ok {
		return "", fmt.Errorf("no way is called %q", on)
	}
	_, _, code := unix.Syscall(try[0], file, try[1], try[2])
	runtime.KeepAlive(&owner)
	if code != 0 {
		return "", code
	}
	return on, nil
}

// affinity leaves its core one processor.
func affinity(string) (string, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(os.Getppid(), &set); err != nil { // which stays as it is where this succeeds
		return "", err
	}
	return "its processors", unix.SchedSetaffinity(os.Getppid(), &set)
}

// idle lets its core run only when no other process needs it.
func idle(on string) (string, error) {
	attr, err := unix.SchedGetAttr(os.Getppid(), 0)
	if err != nil {
		return "", err
	}
	if on == "scheduler" {
		_, _, code := unix.Syscall(unix.SYS_SCHED_SETSCHEDULER, uintptr(os.Getppid()), uintptr(attr.Policy),
			uintptr(unsafe.Pointer(new(int32))))
		if code != 0 {
			return "", code
		}
		return "its class", nil
	}
	return "its class", unix.SchedSetAttr(os.Getppid(), attr, 0)
}
