package reconcile

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/service/ovn"
)

// TestEachMissingRowWakes: who waits for several rows of Neutron's goes on when any of them has come, for another one may never come.
func TestEachMissingRowWakes(t *testing.T) {
	v := (&Engine{}).northboundVerdict(stepError{err: &ovn.MissingError{Rows: []string{"neutron-a", "neutron-b"}}})
	if diff := cmp.Diff([]waitKey{waitRow("neutron-a"), waitRow("neutron-b")}, v.waits, cmp.AllowUnexported(waitKey{})); diff != "" {
		t.Error(diff)
	}
}
