// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/kubeproxy"
	"github.com/kuryr/raven/drivers/lbaas"
)

// A driver of Services and of other objects may write the status of Services, and of nothing else.
func TestStatusIsThatOfServices(t *testing.T) {
	for _, d := range []drivers.Driver{kubeproxy.New(), lbaas.New()} {
		n := rights{}
		n.driver(d.Info(), d.Watches())
		for on := range n[""] {
			if on.resource == "namespaces/status" {
				t.Errorf("%s may write %s", d.Info().Name, on.resource)
			}
		}
		if !n[""][right{"", "services/status", ""}]["patch"] {
			t.Errorf("%s may not write the status of Services", d.Info().Name)
		}
	}
}
