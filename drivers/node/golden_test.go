// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/node"
	"github.com/kuryr/raven/plugins/sdktest"
)

func TestGolden(t *testing.T) { sdktest.Golden(t, node.New(), "testdata") }

// TestGoldenWithPolicies: the driver for NetworkPolicies is enabled too.
func TestGoldenWithPolicies(t *testing.T) {
	sdktest.Golden(t, node.New(), "testdata-policies", drivers.DriverCapability("networkpolicy"))
}
