// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// ErrNotReady is wrapped by the error of OnReady for a child that did not say in time that it is ready.
var ErrNotReady = errors.New("not ready")

// ReadySocket hears what a child says by sd_notify: oslo.service's systemd.onready, for a program that starts another.
type ReadySocket struct {
	folder string
	conn   *net.UnixConn
}

// ListenReady makes a socket in a folder of its own below dir, which must be short: a socket's path has at most 108
// bytes. An empty dir is the one for temporary files.
func ListenReady(dir string) (*ReadySocket, error) {
	folder, err := os.MkdirTemp(dir, "ready") // mode 0700: no other user can report that the child is ready
	if err != nil {
		return nil, fmt.Errorf("making the ready socket: %w", err)
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(folder, "notify"), Net: "unixgram"})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making the ready socket: %w", err), os.RemoveAll(folder))
	}
	return &ReadySocket{folder: folder, conn: conn}, nil
}

// Environ is what the child needs in its environment, as NAME=value.
func (s *ReadySocket) Environ() string { return "NOTIFY_SOCKET=" + filepath.Join(s.folder, "notify") }

// OnReady waits until the child says READY=1. When ctx ends before, or the child says STOPPING=1, the error wraps
// ErrNotReady and has the last status that the child gave.
func (s *ReadySocket) OnReady(ctx context.Context) error {
	cut := context.AfterFunc(ctx, func() { _ = s.conn.Close() })
	defer cut()
	status := ""
	for buffer := make([]byte, 4096); ; {
		n, err := s.conn.Read(buffer)
		if err != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return fmt.Errorf("waiting for a child: %w%s: %w", ErrNotReady, status, err)
		}
		for line := range strings.Lines(string(buffer[:n])) {
			switch line = strings.TrimRight(line, "\n"); {
			case line == "READY=1":
				return nil
			case line == "STOPPING=1":
				return fmt.Errorf("waiting for a child: %w%s: it stops", ErrNotReady, status)
			case strings.HasPrefix(line, "STATUS="):
				status = fmt.Sprintf(" (it says %q)", strings.TrimPrefix(line, "STATUS="))
			}
		}
	}
}

// Close ends listening and removes the socket.
func (s *ReadySocket) Close() error {
	err := s.conn.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return errors.Join(err, os.RemoveAll(s.folder))
}
