// SPDX-License-Identifier: Apache-2.0

package vswitchdb_test

import (
	"errors"
	"os"
	"testing"

	"github.com/kuryr/raven/test/sim/vswitch"
)

// TestSchemaIsOpenvSwitchs: the part of the schema that the project has is word for word what is installed.
func TestSchemaIsOpenvSwitchs(t *testing.T) {
	t.Parallel()
	err := vswitch.CheckPart("vswitch.ovsschema", vswitch.LocalSchema)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip(err)
	}
	if err != nil {
		t.Error(err)
	}
}
