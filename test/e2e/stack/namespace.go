// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// ListenIn listens in a network namespace of /run/netns. Who accepts may be in another one.
func ListenIn(ctx context.Context, space, address string) (net.Listener, error) {
	var listener net.Listener
	err := within(space, func() error {
		var err error
		listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		return err
	})
	return listener, err
}

// DialIn connects from a network namespace of /run/netns. The address is a number: a name would be looked up elsewhere.
func DialIn(ctx context.Context, space, address string) (net.Conn, error) {
	var connection net.Conn
	err := within(space, func() error {
		var err error
		connection, err = (&net.Dialer{}).DialContext(ctx, "tcp", address)
		return err
	})
	return connection, err
}

// within calls a function in a network namespace of /run/netns. A socket stays in the namespace that it was made in.
func within(space string, do func() error) error {
	runtime.LockOSThread() // the namespace is the thread's
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer func() { _ = unix.Close(home) }()
	there, err := unix.Open(filepath.Join("/run/netns", space), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer func() { _ = unix.Close(there) }()
	if err := unix.Setns(there, unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	err = do()
	if back := unix.Setns(home, unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, back) // the thread stays locked: no other goroutine may get it
	}
	runtime.UnlockOSThread()
	return err
}
