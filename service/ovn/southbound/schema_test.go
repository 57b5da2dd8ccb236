// SPDX-License-Identifier: Apache-2.0

package southbound_test

import (
	"errors"
	"os"
	"testing"

	"github.com/kuryr/raven/test/sim/vswitch"
)

// TestSchemaIsOVNs: the part of the schema that the project has is word for word what is installed.
func TestSchemaIsOVNs(t *testing.T) {
	t.Parallel()
	err := vswitch.CheckPart("testdata/southbound.ovsschema", vswitch.SouthboundSchema)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip(err)
	}
	if err != nil {
		t.Error(err)
	}
}
