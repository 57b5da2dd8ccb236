// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"testing"

	"github.com/kuryr/raven/drivers/contract"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// TestAForbiddenWriteIsTriedAgain: an API server that was just started refuses everything until it has read the roles
// (measured with 1.36: 403 for a second after it is ready).
func TestAForbiddenWriteIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	r := w.start(setup{})
	w.createNamespace("shop")
	r.settled(systemNamespaces + 1)
	remove, err := w.kube.Inject(simkube.Fault{Method: "PATCH", Path: "/pods/", Status: 403, Times: 3})
	if err != nil {
		t.Fatal(err)
	}
	w.createPod("shop", "web")
	r.settled(systemNamespaces + 2)
	if n := remove(); n != 3 {
		t.Errorf("%d writes were refused, not 3: this test shows nothing", n)
	}
	if w.annotation(pods(), "shop", "web", contract.Port) == nil {
		t.Error("the pod is not told of its port")
	}
}
