// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// sharedMemory takes some memory of a kind that limits do not count. Where it gets some, it would get any amount.
func sharedMemory(on string) (string, error) {
	const length = 1 << 20
	fd, flags := -1, unix.MAP_SHARED|unix.MAP_ANONYMOUS
	switch on {
	case "downwards":
		flags = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_GROWSDOWN
	case "zero":
		file, err := os.OpenFile("/dev/zero", os.O_RDWR, 0)
		if err != nil {
			return "", err
		}
		defer func() { _ = file.Close() }()
		fd, flags = int(file.Fd()), unix.MAP_SHARED
	}
	memory, err := unix.Mmap(fd, 0, length, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		return "", err
	}
	memory[0] = 1
	return fmt.Sprint(length), unix.Munmap(memory)
}

// spin keeps processors busy for good, with many threads.
func spin(string) (string, error) {
	const threads = 8
	for range threads {
		go func() {
			runtime.LockOSThread()
			for {
				_, _ = unix.Getpriority(unix.PRIO_PROCESS, 0)
			}
		}()
	}
	nice, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	return fmt.Sprintf("%d threads of nice %d", threads, 20-nice), err
}

// litter makes many empty files in the one folder that is its own.
func litter(string) (string, error) {
	const files = 2000
	for i := range files {
		path := filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), fmt.Sprint("litter", i))
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d files", files), nil
}
