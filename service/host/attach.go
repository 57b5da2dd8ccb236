// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kuryr/raven/plugins/wire"
)

// attach connects to a driver that a developer started, to debug it. It has no deadline, is not checked and not
// ended.
func attach(ctx context.Context, config Config) (*instance, error) {
	ctx, cancel := context.WithTimeout(ctx, config.Timeouts.Start)
	defer cancel()
	if err := trustedSocket(config.Attach); err != nil {
		return nil, err
	}
	options := append(wire.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient("unix://"+config.Attach, options...)
	if err != nil {
		return nil, fmt.Errorf("attaching to %s: %w", config.Attach, err)
	}
	client := wire.NewClient(conn,
		wire.ClientConfig{
			CoreVersion: config.CoreVersion, Enabled: config.Enabled, Logger: config.Logger, Clock: config.Clock,
		})
	if err := client.Connect(ctx); err != nil {
		return nil, fmt.Errorf("attaching to %s: %w", config.Attach, joined(err, conn.Close()))
	}
	config.Logger.Warn("attached to a driver that is being debugged: it is neither confined nor supervised", "socket",
		config.Attach)
	never := &process{path: config.Attach, lines: newLines(config.Logger, config.Clock), exited: make(chan struct{})}
	return &instance{process: never, conn: conn, client: client, attached: true}, nil
}

func joined(err, closing error) error {
	if closing != nil {
		return fmt.Errorf("%w (and closing: %w)", err, closing)
	}
	return err
}

// trustedSocket refuses a socket that is not this user's or root's, or lies where others may put one.
func trustedSocket(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("attaching: %w; does the driver still run with --debug?", err)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || info.Mode()&os.ModeSocket == 0 ||
		(owner.Uid != 0 && int(owner.Uid) != os.Geteuid()) {
		return fmt.Errorf("attaching: %s %w: it must be a socket of root or of the user that Raven runs as", path,
			ErrUntrusted)
	}
	return trustedFolder(filepath.Dir(path), true)
}
