// Command raven-driver-namespace is the plugin of the namespace driver. It must never be run by hand: raven starts it.
package main

import (
	"github.com/kuryr/raven/drivers/namespace"
	"github.com/kuryr/raven/plugins/sdk"
)

func main() { sdk.Serve(namespace.New()) }
