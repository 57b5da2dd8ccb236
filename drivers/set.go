// SPDX-License-Identifier: Apache-2.0

package drivers

import "fmt"

// Set is everything that one source object should have. The zero Set means "nothing".
type Set struct {
	Resources     []Resource
	Contributions []Contribution
	Outputs       []Output
	// Diagnostics are messages for the people who look at the object: they become Events and show in `raven status`.
	Diagnostics []Diagnostic
	// Undecided are names about which the driver has no opinion now: of resources of this object, or of claims. What
	// exists under such a name stays exactly as it is, nothing is made, and refs of the Set to it lead to what exists.
	// Roles that it was exported under lead nowhere meanwhile: what exists of other owners stays, what is new waits. A
	// claim that other owners still make counts. A driver without an opinion on the whole object returns an error from
	// Translate instead.
	Undecided []string
}

// Resource is one network resource that should exist.
type Resource struct {
	// Name is the logical name: unique within the Set, stable over time. It is part of the identity in the cloud, so
	// another name means another resource.
	Name string
	// Spec is what it should be; one of this package's kinds.
	Spec Spec
	// Exports are the contract roles under which other owners may refer to it; see Role.
	Exports []string
	// Claim makes it a shared resource: every owner that claims the same name shares one, which goes with the last claim.
	// Its identity names no driver. Claims of one name must agree.
	Claim string
	// OnDelete says what becomes of it when it is not wanted any more. It is stored in the cloud.
	OnDelete Policy
	// Expand lets the core add further subnets like this one when it is full, up to this many in all. 0 and 1 mean no
	// more.
	Expand int
	// After names resources that must exist before this one is made, though no attribute refers to them.
	After []Ref
}

// Policy is what becomes of a resource that is not wanted any more.
type Policy string

// The policies. The empty Policy means Delete.
const (
	Delete Policy = "delete"
	Retain Policy = "retain"
)

// Ref is an attribute of another resource. Exactly one of Name and Role is set.
type Ref struct {
	// Name is the logical name of a resource of the same Set.
	Name string
	// Role refers to another owner's resource.
	Role *Role
	// Attribute is the attribute's name as Neutron has it; empty means "id".
	Attribute string
	// Soft says that the resource that refers may do without: as an element of a list, it is left out while it leads
	// nowhere. A resource that is yet to be made waits for it for a bounded time, and is then made without it, with an
	// Event; it joins when it is there. Only for elements of lists, such as a port's security groups, by role. A core
	// that does not name SoftReferences among its capabilities takes it for any other.
	Soft bool
}

// Role is a contract name for a resource of another owner. Kind, Namespace and Name are those of the source object
// whose driver exports it; all three empty mean a claimed resource of the whole cluster. Role is one of the constants
// below, or a name of the drivers' own.
type Role struct {
	Kind      string
	Namespace string
	Name      string
	Role      string
}

// The contract roles that in-tree drivers export and use.
const (
	// PodNetwork is the network of a namespace's pods, exported by the owner of the Namespace.
	PodNetwork = "pod-network"
	// PodSubnet and PodSubnet6 are the IPv4 and the IPv6 subnet of that network.
	PodSubnet  = "pod-subnet"
	PodSubnet6 = "pod-subnet-v6"
	// ServiceNetwork, ServiceSubnet and ServiceSubnet6 are where the VIPs of a namespace's Services are.
	ServiceNetwork = "service-network"
	ServiceSubnet  = "service-subnet"
	ServiceSubnet6 = "service-subnet-v6"
	// NamespaceSecurityGroup is the security group of a namespace's pods.
	NamespaceSecurityGroup = "namespace-security-group"
	// NamespaceMembers is a group that all pods of a namespace are in, NamespaceOpenIngress and
	// NamespaceOpenEgress are groups that let everything in, or what the operator says, and everything out: for the pods
	// that no NetworkPolicy isolates in that direction. There are these three where NetworkPolicies are kept.
	NamespaceMembers     = "namespace-members"
	NamespaceOpenIngress = "namespace-open-ingress"
	NamespaceOpenEgress  = "namespace-open-egress"
	// MembersItself is how the logical names of rules of that group begin that let in what a pod sends itself through
	// its Service.
	MembersItself = "members-itself-"
	// NetworkPolicyGroup is the group with the rules of a NetworkPolicy.
	NetworkPolicyGroup = "network-policy-group"
	// NodePrograms is a group that lets in what programs of a node send to the node's own pods, such as the kubelet's
	// probes, and not what the node passes on. The owner of the Node exports it where NetworkPolicies are kept.
	NodePrograms = "node-programs"
	// ServiceLoadBalancerGroup is the group of OVN load balancers that a namespace's Services are in.
	ServiceLoadBalancerGroup = "service-load-balancer-group"
	// ServiceLoadBalancer is what serves a Service inside of the cluster.
	ServiceLoadBalancer = "service-load-balancer"
	// ClusterRouter is the router of a namespace's networks; a claimed resource in the shared topology, exported by the
	// Namespace in both.
	ClusterRouter = "cluster-router"
)

// String returns the role in a form that people can read.
func (r Role) String() string {
	if r.Kind == "" {
		return fmt.Sprintf("%s of the cluster", r.Role)
	}
	return fmt.Sprintf("%s of %s %s", r.Role, r.Kind, join(r.Namespace, r.Name))
}

// String returns the ref in a form that people can read.
func (r Ref) String() string {
	attribute := r.Attribute
	if attribute == "" {
		attribute = "id"
	}
	if r.Role != nil {
		return fmt.Sprintf("%s of the %s", attribute, r.Role)
	}
	return fmt.Sprintf("%s of %q", attribute, r.Name)
}

// Value is a text, or a Ref that becomes one. The zero Value is unset.
type Value struct {
	Literal string
	Ref     *Ref
	// Empty says that the Value is set and empty, as nothing else can: a floating IP's port_id, for one that leads
	// nowhere.
	Empty bool
}

// Empty returns the Value that is set and empty.
func Empty() Value { return Value{Empty: true} }

// Text returns a literal Value.
func Text(s string) Value { return Value{Literal: s} }

// From returns the Value of an attribute of a resource of the same Set; no attribute means "id".
func From(name string, attribute ...string) Value {
	r := Ref{Name: name}
	if len(attribute) > 0 {
		r.Attribute = attribute[0]
	}
	return Value{Ref: &r}
}

// FromRole returns the Value of an attribute of another owner's resource; no attribute means "id".
func FromRole(role Role, attribute ...string) Value {
	r := Ref{Role: &role}
	if len(attribute) > 0 {
		r.Attribute = attribute[0]
	}
	return Value{Ref: &r}
}

// Soft returns the Value of the id of another owner's resource, which may be missing; see Ref.Soft.
func Soft(role Role) Value { return Value{Ref: &Ref{Role: &role, Soft: true}} }

// IsZero says whether the Value is unset.
func (v Value) IsZero() bool { return v.Literal == "" && v.Ref == nil && !v.Empty }

// ContributionMode is how an element joins the attribute it is contributed to.
type ContributionMode string

// The modes. The empty mode means Add.
const (
	// Add puts the element beside those that the resource's owner gives.
	Add ContributionMode = "add"
	// Replace puts all Replace elements in place of those that the owner gives.
	Replace ContributionMode = "replace"
)

// Contribution is an element that this owner adds to a set-valued attribute of another owner's resource. It goes when
// this owner no longer gives it.
type Contribution struct {
	// Name is the logical name: unique among the Set's contributions.
	Name string
	// Target is the resource, by role.
	Target Role
	// Attribute is one of security_groups and allowed_address_pairs of a port, routes of a router, and networks and
	// routers of a group of OVN load balancers.
	Attribute string
	// The element: exactly one of the four.
	SecurityGroup Value
	AddressPair   *AddressPair
	Route         *Route
	Resource      Value // the id of a network or router
	Mode          ContributionMode
}

// OutputKind is where an output is written.
type OutputKind string

// The kinds of outputs.
const (
	Annotation OutputKind = "annotation"
	Label      OutputKind = "label"
	// Ingress is an address in status.loadBalancer.ingress of a Service.
	Ingress OutputKind = "ingress"
)

// StatusLoadBalancer is the part of a status that outputs of kind Ingress write: Info.Status declares it. It is
// written as a whole: a Set without outputs removes what the driver wrote before.
const StatusLoadBalancer = "loadBalancer"

// Output is something to write on the source object once the resources it speaks of exist.
type Output struct {
	Kind OutputKind
	// Key is the annotation's or label's key; one that Info declares. Of an Ingress, addresses are written in the order
	// of their keys, which may be anything.
	Key string
	// Exactly one of the following gives the value. Text is the value itself, or an attribute of a resource. Document is
	// the JSON document of a resource as Neutron shows it, without what changes by itself (status, timestamps, revision,
	// tags). Of a port, Attribute "subnet" is the document of the subnet of its first address, IPv4 first, and "subnets"
	// the list of them all. Of a load balancer, "pools" and "listeners" are the lists of their documents by name,
	// without members, and "pool" is the first of "pools".
	Text     Value
	Document *Ref
}

// Severity says how serious a diagnostic is.
type Severity string

// The severities. An error does not stop the Set: a driver that has no opinion returns an error from Translate instead.
const (
	// Note is good to know: a normal Event.
	Note    Severity = "note"
	Warning Severity = "warning"
	Error   Severity = "error"
)

// Diagnostic is a message for people about the source object.
type Diagnostic struct {
	Severity Severity
	// Reason is one CamelCase word, as Events have it.
	Reason string
	// Message says what is wrong, where, and what to do.
	Message string
	// Resource is the logical name of the resource it is about; may be empty.
	Resource string
}
