// Command raven-driver-floatingip is the plugin of the floatingip driver. It must never be run by hand: raven starts it.
package main

import (
	"github.com/kuryr/raven/plugins/sdk"

	"example.org/raven-driver-floatingip/claim"
)

func main() { sdk.Serve(claim.New()) }
