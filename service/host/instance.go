// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/kuryr/raven/plugins/wire"
)

// instance is one life of a driver's process. go-plugin's configuration, command and client serve one life only.
type instance struct {
	process *process
	plugin  *plugin.Client
	conn    *grpc.ClientConn
	client  *wire.Client
	retired atomic.Bool // we end it ourselves
	// attached says that a developer started the process.
	attached bool
}

// excuse is an error for which no object can be blamed, where we ended the process ourselves.
func (i *instance) excuse(err error) error {
	if err != nil && i.retired.Load() {
		return ErrUnavailable
	}
	return err
}

// start executes the driver and shakes hands with it. Its sockets come under folder.
func start(ctx context.Context, config Config, folder string) (*instance, error) {
	if config.Attach != "" {
		return attach(ctx, config)
	}
	return execute(ctx, config, folder, (*instance).connect)
}

// execute starts the driver and connects to it, in one of the ways there are.
func execute(
	ctx context.Context, config Config, folder string, connect func(*instance, context.Context) error,
) (*instance, error) {
	ctx, cancel := context.WithTimeout(ctx, config.Timeouts.Start)
	defer cancel()
	secure, certificate, err := wire.ClientTLS()
	if err != nil {
		return nil, fmt.Errorf("making a certificate for %s: %w", config.Path, err)
	}
	process, err := newProcess(ctx, config)
	if err != nil {
		return nil, err
	}
	i := &instance{process: process}
	i.plugin = plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig: wire.Handshake(),
		Plugins: wire.Plugins(&wire.Plugin{ClientConfig: wire.ClientConfig{
			CoreVersion: config.CoreVersion, Enabled: config.Enabled, Logger: config.Logger, Timeout: config.Timeouts.Call,
			Clock: config.Clock,
		}}),
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		TLSConfig:        secure,
		SkipHostEnv:      true,
		StartTimeout:     config.Timeouts.Start + config.Timeouts.Kill, // ctx ends it earlier, and says why
		// what it says, our errors and the driver's own lines say better
		Logger:           hclog.NewNullLogger(),
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: folder},
		GRPCDialOptions:  wire.DialOptions(),
		SyncStdout:       process.lines,
		SyncStderr:       process.lines,
		RunnerFunc: func(_ hclog.Logger, spec *exec.Cmd, _ string) (runner.Runner, error) {
			process.cmd.Env = append(append(process.cmd.Env, spec.Env...), certificate)
			return process, process.confine(config, socketFolder(spec.Env))
		},
	})
	if err := connect(i, ctx); err != nil {
		switch {
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			err = notStarted{fmt.Errorf("%s is not ready within %s%s", process.path, config.Timeouts.Start, process.lastWords())}
		case ctx.Err() != nil:
			err = ctx.Err()
		default:
			err = notStarted{process.explain(err)}
		}
		_ = i.stop(ctx, config.Timeouts, false)
		return nil, err
	}
	return i, nil
}

// socketFolder is the folder that go-plugin made for the driver's socket.
func socketFolder(env []string) string {
	for _, variable := range env {
		if folder, ok := strings.CutPrefix(variable, plugin.EnvUnixSocketDir+"="); ok {
			return folder
		}
	}
	return ""
}

// connect shakes hands and opens the stream.
func (i *instance) connect(ctx context.Context) error {
	unhook := context.AfterFunc(ctx, func() { _ = i.process.Kill(ctx) })
	defer unhook()
	if err := i.dial(ctx); err != nil {
		return err
	}
	protocol, err := i.plugin.Client()
	if err != nil {
		return err
	}
	raw, err := protocol.Dispense(wire.PluginName)
	if err != nil {
		return err
	}
	client, ok := raw.(*wire.Client)
	if !ok {
		return fmt.Errorf("dispensed a %T", raw)
	}
	i.client = client
	return client.Connect(ctx)
}

// dial shakes hands. go-plugin knows no context, so the end of ctx kills the process under it.
func (i *instance) dial(ctx context.Context) error {
	unhook := context.AfterFunc(ctx, func() { _ = i.process.Kill(ctx) })
	defer unhook()
	protocol, err := i.plugin.Client()
	if err != nil {
		return err
	}
	over, ok := protocol.(*plugin.GRPCClient)
	if !ok {
		return fmt.Errorf("speaks %T", protocol)
	}
	i.conn = over.Conn
	return nil
}

func (i *instance) ping(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := healthv1.NewHealthClient(i.conn).Check(ctx,
		&healthv1.HealthCheckRequest{Service: plugin.GRPCServiceName})
	if err != nil {
		return err
	}
	if answer.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		return fmt.Errorf("its health is %s", answer.GetStatus())
	}
	return nil
}

// errSurvives says that even SIGKILL did not end the process: it hangs in the kernel.
var errSurvives = errors.New("the process does not end")

// stop ends the process and all that it started. go-plugin's own end has neither a bound nor an eye for work in hand,
// and hangs on a process that a signal stopped: so drain first, then let it end, then kill the group.
func (i *instance) stop(ctx context.Context, timeouts Timeouts, drain bool) error {
	i.retired.CompareAndSwap(false, drain)
	if drain && i.client != nil && !i.attached { // it would serve no caller afterwards
		bounded, cancel := context.WithTimeout(ctx, timeouts.Drain)
		_ = i.client.Drain(bounded) // whatever comes of it, the process ends
		cancel()
	}
	if i.client != nil {
		i.client.Close()
	}
	if i.attached {
		return i.conn.Close()
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		i.plugin.Kill()
		i.process.close()
	}()
	grace := time.NewTimer(timeouts.Kill)
	defer grace.Stop()
	if !drain {
		_ = i.process.Kill(ctx)
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	case <-grace.C:
	}
	_ = i.process.Kill(ctx)
	last := time.NewTimer(timeouts.Kill)
	defer last.Stop()
	select {
	case <-ended:
		return nil
	case <-last.C:
		return fmt.Errorf("%w: pid %d", errSurvives, i.process.pid())
	}
}
