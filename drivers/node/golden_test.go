// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"testing"

	"github.com/kuryr/raven/drivers/node"
	"github.com/kuryr/raven/plugins/sdktest"
)

func TestGolden(t *testing.T) { sdktest.Golden(t, node.New(), "testdata") }
