// SPDX-License-Identifier: Apache-2.0

// Package wire carries the language of package drivers over gRPC: it turns its types into the messages of
// plugins/proto/raven/v1 and back, and holds both ends of a connection between core and driver. It must never decide
// what a Set means: what goes in at one end comes out at the other, unset as unset and empty as empty.
package wire

import (
	"context"
	"errors"
	"log/slog"
	"math"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/kuryr/raven/drivers"
	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
)

const (
	// ProtocolVersion is the version of the contract: a driver of another version is refused at the handshake.
	ProtocolVersion = 1
	// CookieKey names the environment variable that tells a driver that Raven started it, and not a person.
	CookieKey = "RAVEN_PLUGIN"
	// CookieValue is what the variable is set to.
	CookieValue = "raven-driver-v1"
	// PluginName is the one name that a driver serves in go-plugin's terms.
	PluginName = "driver"
	// MaxMessage is the length in bytes that a message to a driver may have; see MaxAnswer and MaxReply for those to the
	// core.
	MaxMessage = 64 << 20
	// LifelineEnv names the environment variable that holds the number of the lifeline's file descriptor.
	LifelineEnv = "RAVEN_LIFELINE_FD"
	// LogLevelEnv names the environment variable that holds the least level of the driver's log lines: debug, info, warn
	// or error.
	LogLevelEnv = "RAVEN_LOG_LEVEL"
	// AttachEnvPrefix begins the name of the variable of Raven's environment that holds the socket of a driver to attach
	// to; the driver's name in upper case follows.
	AttachEnvPrefix = "RAVEN_ATTACH_"
)

// maxPart bounds one item, so that it fits in a message with room for its envelope.
const maxPart = MaxMessage - 1<<10

// window is how many bytes may be under way per stream and per connection.
const window = 4 << 20

// ErrUnavailable says that the driver's process is dead, stopping or restarting: no opinion, ask again when it is
// back. It is drivers.ErrUnavailable, which the core knows it by.
var ErrUnavailable = drivers.ErrUnavailable

// Handshake returns go-plugin's handshake for drivers.
func Handshake() plugin.HandshakeConfig {
	return plugin.HandshakeConfig{
		ProtocolVersion: ProtocolVersion, MagicCookieKey: CookieKey, MagicCookieValue: CookieValue,
	}
}

// ServerOptions returns what a driver's gRPC server needs.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessage), grpc.MaxSendMsgSize(MaxMessage), grpc.MaxConcurrentStreams(math.MaxUint32),
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{PermitWithoutStream: true}),
	}
}

// DialOptions returns what the core's connection to a driver needs.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxReply), grpc.MaxCallSendMsgSize(MaxMessage),
			grpc.ForceCodecV2(newSparing())),
		grpc.WithChainStreamInterceptor(refuseBroker),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		grpc.WithDisableServiceConfig(),
	}
}

// Plugin is a driver in go-plugin's terms: the serving side sets Driver, the core does not need to.
type Plugin struct {
	plugin.NetRPCUnsupportedPlugin
	// Driver is what is served.
	Driver       drivers.Driver
	ServerConfig ServerConfig
	ClientConfig ClientConfig
}

var _ plugin.GRPCPlugin = (*Plugin)(nil)

// GRPCServer implements plugin.GRPCPlugin.
func (p *Plugin) GRPCServer(_ *plugin.GRPCBroker, registrar *grpc.Server) error {
	if p.Driver == nil {
		return errors.New("no driver to serve")
	}
	Register(registrar, NewServer(p.Driver, p.ServerConfig))
	return nil
}

// GRPCClient implements plugin.GRPCPlugin: it returns a *Client.
func (p *Plugin) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return NewClient(conn, p.ClientConfig), nil
}

// Plugins returns go-plugin's plugin set with this one plugin in it.
func Plugins(p *Plugin) plugin.PluginSet { return plugin.PluginSet{PluginName: p} }

// Register adds the server to a gRPC server.
func Register(registrar grpc.ServiceRegistrar, server *Server) {
	ravenv1.RegisterDriverServiceServer(registrar, server)
}

// Contract returns the description of the contract, for what is made of it in other languages.
func Contract() protoreflect.FileDescriptor { return ravenv1.File_raven_v1_driver_proto }

func orDiscard(logger *slog.Logger) *slog.Logger {
	if logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return logger
}
