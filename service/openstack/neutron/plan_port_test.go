// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

func TestMAC(t *testing.T) {
	id := plan.Identity{Cluster: "c", Owner: plan.Owner{Driver: "pod", UID: "u"}, Name: "port", Policy: drivers.Delete}
	mac := MAC(id)
	if mac[1] != '2' && mac[1] != '6' && mac[1] != 'a' && mac[1] != 'e' {
		t.Errorf("%s is not locally administered unicast", mac)
	}
	back, _ := plan.Parse(id.Tags(), "")
	if MAC(back) != mac {
		t.Error("the address depends on where the identity comes from")
	}
	id.Name = "other"
	if MAC(id) == mac {
		t.Error("two identities have one address")
	}
}
