// SPDX-License-Identifier: Apache-2.0

// Command raven-driver-lbaas is the plugin of the lbaas driver. It must never be run by hand: raven starts it.
package main

import (
	"github.com/kuryr/raven/drivers/lbaas"
	"github.com/kuryr/raven/plugins/sdk"
)

// version is set by the build: that of Raven.
var version = "dev"

func main() { sdk.Serve(lbaas.New(), sdk.Version(version)) }
