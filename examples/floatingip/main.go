// SPDX-License-Identifier: Apache-2.0

// Command raven-driver-floatingip is the plugin of the floatingip driver. It must never be run by hand: raven starts
// it.
package main

import (
	"example.org/raven-driver-floatingip/claim"

	"github.com/kuryr/raven/plugins/sdk"
)

func main() { sdk.Serve(claim.New()) }
