// Command otherprotocol is a driver of a contract that this Raven does not speak. It is for tests, and must never be installed.
package main

import (
	"github.com/hashicorp/go-plugin"

	"github.com/kuryr/raven/plugins/wire"
)

func main() {
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: plugin.HandshakeConfig{
			ProtocolVersion: wire.ProtocolVersion + 1, MagicCookieKey: wire.CookieKey, MagicCookieValue: wire.CookieValue,
		},
		Plugins:    plugin.PluginSet{},
		GRPCServer: plugin.DefaultGRPCServer,
	})
}
