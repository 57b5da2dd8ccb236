// SPDX-License-Identifier: Apache-2.0

// Command raven-driver-node is the plugin of the node driver. It must never be run by hand: raven starts it.
package main

import (
	"github.com/kuryr/raven/drivers/node"
	"github.com/kuryr/raven/plugins/sdk"
)

// version is set by the build: that of Raven.
var version = "dev"

func main() { sdk.Serve(node.New(), sdk.Version(version)) }
