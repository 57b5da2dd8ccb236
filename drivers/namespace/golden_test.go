// SPDX-License-Identifier: Apache-2.0

package namespace_test

import (
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/namespace"
	"github.com/kuryr/raven/plugins/sdktest"
)

func TestGolden(t *testing.T) { sdktest.Golden(t, namespace.New(), "testdata") }

// TestGoldenWithPolicies: the driver for NetworkPolicies is enabled too.
func TestGoldenWithPolicies(t *testing.T) {
	sdktest.Golden(t, namespace.New(), "testdata-policies", drivers.DriverCapability("networkpolicy"))
}
