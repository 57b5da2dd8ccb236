// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"slices"
	"testing"
)

// TestDriversAreToldOfEachOther: those that are enabled, so that they can share their work.
func TestDriversAreToldOfEachOther(t *testing.T) {
	r := newRig(t)
	r.set("raven", "drivers", configmaps+","+serviceaccounts)
	s, err := r.loader(nil).Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Programs {
		if told := p.launch(nil).Enabled; !slices.Equal(told, []string{configmaps, serviceaccounts}) {
			t.Errorf("driver %s is told of %v", p.Name, told)
		}
	}
}
