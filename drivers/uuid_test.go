// SPDX-License-Identifier: Apache-2.0

package drivers_test

import (
	"testing"

	"github.com/kuryr/raven/drivers"
)

func TestIsUUID(t *testing.T) {
	for text, want := range map[string]bool{
		"d42b0bb2-dc4e-11e5-8c79-42010af00003": true,
		"D42B0BB2-DC4E-11E5-8C79-42010AF00003": true,
		"d42b0bb2dc4e11e58c7942010af00003":     false,
		"d42b0bb2-dc4e-11e5-8c79-42010af0000g": false,
		"d42b0bb2-dc4e-11e5-8c794-2010af00003": false,
		"":                                     false,
	} {
		if got := drivers.IsUUID(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
