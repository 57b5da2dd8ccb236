// SPDX-License-Identifier: Apache-2.0

package kubeproxy_test

import (
	"testing"

	"github.com/kuryr/raven/drivers/kubeproxy"
	"github.com/kuryr/raven/plugins/sdktest"
)

func TestGolden(t *testing.T) { sdktest.Golden(t, kubeproxy.New(), "testdata") }
