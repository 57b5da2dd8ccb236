// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"strings"
	"testing"

	"github.com/kuryr/raven/service/plan"
)

// The memory of what happened is bounded, and shows the last of an object first.
func TestHistoryIsBounded(t *testing.T) {
	var h history
	quiet, busy := plan.Owner{Driver: "pod", UID: "quiet"}, plan.Owner{Driver: "pod", UID: "busy"}
	if list, told := h.of(quiet); len(list)+len(told) > 0 {
		t.Errorf("nothing happened, and it shows %v, %v", list, told)
	}
	h.reconciled(quiet, Reconciled{Steps: 1, Why: strings.Repeat("ü", maxWhy)})
	for i := range historySize + 7 {
		h.reconciled(busy, Reconciled{Steps: i})
		if i == historySize-2 {
			if list, _ := h.of(quiet); len(list) != 1 || len(list[0].Why) > maxWhy+len("…") {
				t.Errorf("it shows %v", list)
			}
		}
	}
	if list, _ := h.of(quiet); len(list) > 0 {
		t.Errorf("what happened long ago is still there: %v", list)
	}
	list, _ := h.of(busy)
	if len(list) != shownHistory || len(h.reconciles.items) != historySize {
		t.Errorf("%d are shown, %d remembered", len(list), len(h.reconciles.items))
	}
	for i, r := range list {
		if r.Steps != historySize+6-i {
			t.Errorf("number %d is %d", i, r.Steps)
		}
	}
}
