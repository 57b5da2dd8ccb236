// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
)

// takeStdout keeps the real standard output for the handshake, which go-plugin prints on os.Stdout, and leads
// everything else that goes to file descriptor 1, from C code or from loggers made earlier, to standard error.
func takeStdout() error {
	kept, err := unix.FcntlInt(uintptr(unix.Stdout), unix.F_DUPFD_CLOEXEC, 10)
	if err != nil {
		return fmt.Errorf("copying standard output: %w", err)
	}
	if err := redirect(unix.Stderr, unix.Stdout); err != nil {
		return fmt.Errorf("leading standard output to standard error: %w", err)
	}
	os.Stdout = os.NewFile(uintptr(kept), "handshake")
	return nil
}

// ownStreams gives os.Stdout and os.Stderr back to the process at the first call. go-plugin puts pipes there whose
// text travels by gRPC: it would come late, and the last words before a crash not at all.
func ownStreams(stderr *os.File) grpc.UnaryServerInterceptor {
	var once sync.Once
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		once.Do(func() { os.Stdout, os.Stderr = stderr, stderr })
		return handler(ctx, request)
	}
}

// holdLifeline ends the process when the pipe with the given number ends: its other end is Raven's, and goes with
// Raven however that ends. No number means that there is none.
func holdLifeline(number string) (held bool, err error) {
	if number == "" {
		return false, nil
	}
	fd, err := strconv.Atoi(number)
	if err != nil || fd < 3 {
		return false, fmt.Errorf("%q is no file descriptor for it", number)
	}
	unix.CloseOnExec(fd)
	lifeline := os.NewFile(uintptr(fd), "lifeline")
	if _, err := lifeline.Stat(); err != nil {
		return false, fmt.Errorf("checking it: %w", err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, lifeline)
		os.Exit(0)
	}()
	return true, nil
}
