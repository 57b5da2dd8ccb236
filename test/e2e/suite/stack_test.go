// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"os"
	"time"

	"github.com/kuryr/raven/test/e2e/stack"
)

// findStack takes what `make e2e-up` keeps.
func findStack() error {
	dir := os.Getenv("RAVEN_E2E_STACK")
	if dir == "" {
		return nil
	}
	s, err := stack.Open(dir)
	if err != nil {
		return err
	}
	network := s.Network()
	world.stack, world.controls = s, s
	world.kubeconfig, world.clouds, world.artifacts = s.Kubeconfig(), s.Clouds(), s.Artifacts()
	world.ovnNB, world.ovsDB, world.bridge = network.OVNNorth, network.OVS, network.Bridge
	world.switchSpace, world.prefix = network.Namespace, network.Prefix
	world.external, world.externalCIDR, world.provider = network.External, network.ExternalCIDR, network.Provider
	return nil
}

// neutronCPU is the processor time that Neutron has used; false where that is not known.
func neutronCPU() (time.Duration, bool) {
	if world.stack == nil {
		return 0, false
	}
	used, err := world.stack.CPU(stack.NeutronServer)
	return used, err == nil
}
