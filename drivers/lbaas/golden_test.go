// SPDX-License-Identifier: Apache-2.0

package lbaas_test

import (
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/lbaas"
	"github.com/kuryr/raven/plugins/sdktest"
)

func TestGolden(t *testing.T) { sdktest.Golden(t, lbaas.New(), "testdata") }

// TestGoldenWithPolicies: what Services let in is not let in to pods that a NetworkPolicy isolates.
func TestGoldenWithPolicies(t *testing.T) {
	sdktest.Golden(t, lbaas.New(), "testdata-policies", drivers.DriverCapability("networkpolicy"))
}
