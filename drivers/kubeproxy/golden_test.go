// SPDX-License-Identifier: Apache-2.0

package kubeproxy_test

import (
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/kubeproxy"
	"github.com/kuryr/raven/plugins/sdktest"
)

func TestGolden(t *testing.T) { sdktest.Golden(t, kubeproxy.New(), "testdata") }

// TestGoldenWithPolicies: what Services let in is not let in to pods that a NetworkPolicy isolates.
func TestGoldenWithPolicies(t *testing.T) {
	sdktest.Golden(t, kubeproxy.New(), "testdata-policies", drivers.DriverCapability("networkpolicy"))
}
