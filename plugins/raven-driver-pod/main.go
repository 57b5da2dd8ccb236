// SPDX-License-Identifier: Apache-2.0

// Command raven-driver-pod is the plugin of the pod driver. It must never be run by hand: raven starts it.
package main

import (
	"github.com/kuryr/raven/drivers/pod"
	"github.com/kuryr/raven/plugins/sdk"
)

// version is set by the build: that of Raven.
var version = "dev"

func main() { sdk.Serve(pod.New(), sdk.Version(version)) }
