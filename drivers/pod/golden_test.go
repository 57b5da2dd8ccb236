// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/pod"
	"github.com/kuryr/raven/plugins/sdktest"
)

func TestGolden(t *testing.T) { sdktest.Golden(t, pod.New(), "testdata") }

// TestGoldenWithPolicies: the driver for NetworkPolicies is enabled too.
func TestGoldenWithPolicies(t *testing.T) {
	sdktest.Golden(t, pod.New(), "testdata-policies", drivers.DriverCapability("networkpolicy"))
}
