// SPDX-License-Identifier: Apache-2.0

// Package contract names the annotations by which Raven and the nodes of a cluster speak to each other; docs/cni.md
// says what stands in them. It must never hold more than names and the version: what writes and what reads them are
// other packages.
package contract

// Version is the version of the contract that these names belong to. A plugin refuses versions that it does not know.
const Version = "1"

// Annotations that Raven writes on Pods and Nodes. But for VersionKey their values are JSON documents.
const (
	// VersionKey is the contract's version, plain text.
	VersionKey = "kuryr.org/contract-version"
	// Port is the port as Neutron gives it.
	Port = "kuryr.org/neutron-port"
	// Subnet is the subnet of the port's first address, IPv4 first.
	Subnet = "kuryr.org/neutron-subnet"
	// Subnets is the list of the subnets of all addresses; only with dual stack.
	Subnets = "kuryr.org/neutron-subnets"
	// Network is the port's network. It has the MTU.
	Network = "kuryr.org/neutron-network"
	// PodCIDRs, only on Nodes, is the list of the ranges of pods that a node reaches through its own port.
	PodCIDRs = "kuryr.org/pod-cidrs"
)

// Annotations that a node's daemon writes on its Node, plain texts.
const (
	// ChassisHostname is external_ids:hostname of Open vSwitch, by which OVN knows the chassis: what
	// binding:host_id of a port must be.
	ChassisHostname = "node.kuryr.org/chassis-hostname"
	// ChassisID is external_ids:system-id of Open vSwitch.
	ChassisID = "node.kuryr.org/chassis-id"
	// TranslatedAddresses are the addresses of the node's port that connections get as their source whose destination
	// was translated, at most one of each IP version, IPv4 first, with a comma between them. Connections of the node's own
	// have another source: only the latter may reach pods that a NetworkPolicy isolates.
	TranslatedAddresses = "node.kuryr.org/translated-addresses"
)

// DeviceOwner marks the ports of pods and of nodes in Neutron. It begins with "compute:" because Neutron binds only
// ports of that kind like those of instances.
const DeviceOwner = "compute:kuryr"
