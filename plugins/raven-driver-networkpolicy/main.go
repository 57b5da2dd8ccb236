// SPDX-License-Identifier: Apache-2.0

// Command raven-driver-networkpolicy is the plugin of the networkpolicy driver. It must never be run by hand: raven
// starts it.
package main

import (
	"github.com/kuryr/raven/drivers/networkpolicy"
	"github.com/kuryr/raven/plugins/sdk"
)

// version is set by the build: that of Raven.
var version = "dev"

func main() { sdk.Serve(networkpolicy.New(), sdk.Version(version)) }
