// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/plugins/wire"
)

// wantsDebug says whether the driver was started by hand to be attached to.
func wantsDebug(args []string) bool {
	return len(args) > 1 && slices.Contains([]string{"--debug", "-debug", "debug"}, args[1])
}

// serveDebug serves a driver that no Raven started, under a debugger for example, and says how one attaches to it. It
// returns when the process is interrupted.
func serveDebug(driver drivers.Driver, config wire.ServerConfig, out io.Writer) error {
	folder, err := os.MkdirTemp("", "raven-debug-") // mode 0700: no other user may connect
	if err != nil {
		return fmt.Errorf("making a folder for the socket: %w", err)
	}
	defer os.RemoveAll(folder) //nolint:errcheck // temporary
	if err := os.Setenv(plugin.EnvUnixSocketDir, folder); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	serving, ended := make(chan *plugin.ReattachConfig, 1), make(chan struct{})
	go plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: wire.Handshake(), Plugins: wire.Plugins(&wire.Plugin{Driver: driver, ServerConfig: config}),
		Logger: hclog.NewNullLogger(),
		GRPCServer: func(given []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(given, wire.ServerOptions()...)...)
		},
		Test: &plugin.ServeTestConfig{Context: ctx, ReattachConfigCh: serving, CloseCh: ended},
	})
	select {
	case at := <-serving:
		debugHelp(out, driver.Info().Name, at.Addr.String())
	case <-ended:
		return fmt.Errorf("the driver cannot be served in %s", folder)
	}
	<-ended
	return nil
}

// attachEnv is the variable of Raven's environment by which it attaches to a driver instead of starting it.
func attachEnv(name string) string {
	return wire.AttachEnvPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

func debugHelp(out io.Writer, name, socket string) {
	fmt.Fprintf(out,
		`Driver %[1]s waits for a Raven of this user to attach to it; process %[2]d, for a debugger. Ctrl-C ends it.

kuryr.conf must allow it:      [raven]
                               allow_attach = true
A Raven that is started now:   export %[3]s=%[4]s
                               raven run
A Raven that runs: these lines in kuryr.conf, and a SIGHUP to it:
                               [driver:%[1]s]
                               attach = %[4]s

There is no deadline and no confinement for it, and Raven does not end it.
`, name, os.Getpid(), attachEnv(name), socket)
}
