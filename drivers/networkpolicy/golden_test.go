// SPDX-License-Identifier: Apache-2.0

package networkpolicy_test

import (
	"testing"

	"github.com/kuryr/raven/drivers/networkpolicy"
	"github.com/kuryr/raven/plugins/sdktest"
)

func TestGolden(t *testing.T) { sdktest.Golden(t, networkpolicy.New(), "testdata") }
