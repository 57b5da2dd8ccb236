// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"testing"

	"github.com/kuryr/raven/test/harness"
)

// TestSharedDualStack is topology shared with both IP versions, by an application credential.
func TestSharedDualStack(t *testing.T) {
	family(t, "shared", "dual", harness.Settings{}.Set("neutron", "cloud", "e2e-appcred"))
}

// TestDedicatedIPv6 is topology dedicated with IPv6 alone.
func TestDedicatedIPv6(t *testing.T) { family(t, "dedicated", "ipv6", nil) }

// TestDedicatedIPv4 is topology dedicated with IPv4 alone.
func TestDedicatedIPv4(t *testing.T) {
	family(t, "dedicated", "ipv4", nil)
}

// TestDedicatedDualStack is topology dedicated with both IP versions.
func TestDedicatedDualStack(t *testing.T) {
	family(t, "dedicated", "dual", nil)
}

// TestSharedIPv6 is topology shared with IPv6 alone.
func TestSharedIPv6(t *testing.T) {
	family(t, "shared", "ipv6", nil)
}

// needFull skips what only a run of full size has.
func needFull(t *testing.T) {
	t.Helper()
	if !world.full {
		t.Skip("only in `make e2e-full`")
	}
}

// family runs two namespaces with pods on a site of its own, sends packets where that can be done (across namespaces
// only with topology shared), and deletes a busy namespace.
func family(t *testing.T, topology, families string, conf harness.Settings) {
	t.Helper()
	conf = harness.Settings{}.Set("namespace_subnet", "topology", topology).Set("namespace_subnet", "ip_families",
		families).With(conf)
	services := map[string]string{
		"ipv4": "10.96.0.0/16", "ipv6": "fd00:10:96::/112", "dual": "10.96.0.0/16,fd00:10:96::/112",
	}
	conf.Set("namespace_subnet", "service_cidr", services[families])
	s := own(t, topology[:3]+families, conf)
	createNamespace(t, "fa-a")
	createNamespace(t, "fa-b")
	createPod(t, "fa-a", "a1")
	createPod(t, "fa-a", "a2")
	createPod(t, "fa-b", "b1")
	createPod(t, "fa-b", "b2")
	s.settled(t)
	inOVN(t, "fa-a", "a1", "a2")
	inOVN(t, "fa-b", "b1", "b2")
	t.Run("packets", func(t *testing.T) {
		needPackets(t)
		a1, a2, b1, b2 := plug(t, "fa-a", "a1"), plug(t, "fa-a", "a2"), plug(t, "fa-b", "b1"), plug(t, "fa-b", "b2")
		a1.reaches(t, a2)
		a2.reaches(t, a1)
		b1.reaches(t, b2)
		b2.reaches(t, b1)
		if topology == "shared" {
			a1.reaches(t, b1)
			b1.reaches(t, a1)
			return
		}
		a1.cannotReach(t, b1)
		b1.cannotReach(t, a1)
		a1.reaches(t, a2) // so that it was not everything that had stopped
	})
	deleteBusy(t, "fa-a")
	gone(t, "fa-a")
	s.settled(t)
}
