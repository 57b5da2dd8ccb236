// SPDX-License-Identifier: Apache-2.0

// Package suite is the scenarios that Raven is held to on real servers: the programs as they are shipped, a real
// Kubernetes control plane, a real Keystone and Neutron, and where the harness has one a real Open vSwitch. It must
// never ask Raven how things stand: outcomes are read from Neutron, OVN and Kubernetes by their own clients.
//
// All of it has the build tag e2e. It runs on the stack that `make e2e-up` keeps (RAVEN_E2E_STACK), or on any other:
//
//	RAVEN_E2E_KUBECONFIG   kubeconfig of a cluster's administrator
//	RAVEN_E2E_CLOUDS       clouds.yaml with the clouds e2e (a plain member), e2e-admin, e2e-appcred and e2e-binding
//	RAVEN_E2E_OVN_NB       OVN's northbound database, as ovn-nbctl --db takes it
//	RAVEN_E2E_OVS_DB       Open vSwitch's database, as ovs-vsctl --db takes it
//	RAVEN_E2E_BRIDGE       the integration bridge, br-int
//	RAVEN_E2E_OVS_NETNS    the network namespace that Open vSwitch stands in, if it is not the machine's
//	RAVEN_E2E_EXTERNAL     the external network's name or id; its IPv4 subnet in RAVEN_E2E_EXTERNAL_CIDR, the bridge that leads
//	                       there in RAVEN_E2E_PROVIDER_BRIDGE
//	RAVEN_E2E_CONTROL      a program that is called with kill or start, and the name of a server
//	RAVEN_E2E_BIN          folder of the built programs, bin of the repository
//	RAVEN_E2E_ARTIFACTS    folder for what the scenarios leave to read
//	RAVEN_E2E_PATIENCE     how long anything may take, 4m
//	RAVEN_E2E_VICTIMS      an expression for what TestNodesKills kills, all that nodes have
//	RAVEN_E2E_FULL         1: the sizes of a night, not of an hour
//
// Only the first two are needed; a scenario that needs more says so and is skipped.
package suite
