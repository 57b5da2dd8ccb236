package reconcile_test

import (
	"testing"

	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

func TestNamespacesAndPods(t *testing.T) {
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	r := w.start(setup{})
	w.createNamespace("shop")
	w.createPod("shop", "web-1")
	w.createPod("shop", "web-2")
	w.eventually("a port annotation", func() (bool, string) {
		return w.annotation(pods(), "shop", "web-2", "kuryr.org/neutron-port") != nil, ""
	})
	_ = r
}
