// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/conf"
)

// The logical names of what is looked up.
const (
	externalNetwork = "external-network"
	externalSubnet  = "external-subnet"
)

// Builder gathers the part of a Service's Set that is the same whoever serves it: floating IPs, rules for members,
// remarks.
type Builder struct {
	Service *Service
	Outside Outside
	Ports   []Port
	Set     drivers.Set
	Made    map[string]bool // the logical names of floating IPs and lookups
	// Guard is that of a Service whose source ranges the namespace's security group enforces; nil for any other.
	Guard *Guard
	// Floatings are the logical names of floating IPs, also of those that stay as they are.
	Floatings []string
	// AsWritten says that what is written of a floating IP stays so: which one it is cannot be read.
	AsWritten bool
	// LocalServed says that internalTrafficPolicy Local is served.
	LocalServed bool

	config *Config
	// group is the role of the namespace's group that the rules for members are in.
	group string
}

// NewBuilder returns a Builder with an Event for everything that could not be read.
func NewBuilder(config *Config, s *Service, outside Outside, ports []Port) Builder {
	b := Builder{
		config: config, Service: s, Outside: outside, Ports: ports, Made: map[string]bool{},
		group: drivers.NamespaceSecurityGroup,
	}
	for _, problem := range outside.Problems {
		b.Say(drivers.Error, "BadAnnotation", "%s", problem)
	}
	return b
}

// InOpenGroup has the rules for members be in the group of the pods that no NetworkPolicy isolates: what a Service lets
// in must not open what a policy closes.
func (b *Builder) InOpenGroup() { b.group = drivers.NamespaceOpenIngress }

// Add adds a resource.
func (b *Builder) Add(r drivers.Resource) { b.Set.Resources = append(b.Set.Resources, r) }

// Say adds a diagnostic.
func (b *Builder) Say(severity drivers.Severity, reason, format string, args ...any) {
	b.Set.Diagnostics = append(b.Set.Diagnostics, drivers.Diagnostic{
		Severity: severity, Reason: reason, Message: fmt.Sprintf(format, args...),
	})
}

// Role refers to a resource of the Service's namespace.
func (b *Builder) Role(name string) drivers.Role {
	return NamespaceRole(b.Service.Metadata.Namespace, name)
}

// NamespaceRole refers to a resource of a namespace.
func NamespaceRole(namespace, role string) drivers.Role {
	return drivers.Role{Kind: "Namespace", Name: namespace, Role: role}
}

// Lookup returns the id of something that the operator or the Service names.
func (b *Builder) Lookup(logical string, of drivers.Kind, id string) drivers.Value {
	if drivers.IsUUID(id) {
		return drivers.Text(strings.ToLower(id))
	}
	if !b.Made[logical] {
		b.Made[logical] = true
		b.Add(drivers.Resource{Name: logical, Spec: drivers.Lookup{Of: of, ID: id}})
	}
	return drivers.From(logical)
}

// Addresses returns the clusterIPs of the IP versions that the cluster's networks have.
func (b *Builder) Addresses() ([]netip.Addr, error) {
	all, err := b.Service.ClusterIPs()
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, addr := range all {
		if addr.Is4() && b.config.IP4 || addr.Is6() && b.config.IP6 {
			addrs = append(addrs, addr)
			continue
		}
		b.Say(drivers.Warning, "AddressNotServed", "the clusterIP %s is not served: [%s] %s leaves IPv%d out",
			addr, conf.SubnetGroup, conf.OptFamilies, Version(addr))
	}
	return addrs, nil
}

// Serve leaves out the ports that no load balancer has.
func (b *Builder) Serve() {
	var ports []Port
	for i := range b.Ports {
		if p := &b.Ports[i]; p.Protocol != "TCP" && p.Protocol != "UDP" && p.Protocol != "SCTP" {
			b.Say(drivers.Error, "ProtocolNotServed", "port %d is not served: protocol %q is none of TCP, UDP, SCTP", p.Port,
				p.Protocol)
			continue
		}
		ports = append(ports, b.Ports[i])
	}
	b.Ports = ports
}

// Ours says whether the Service is of type LoadBalancer and is Raven's to give an address outside.
func (b *Builder) Ours() bool {
	class := b.Service.Spec.LoadBalancerClass
	return b.Service.Spec.Type == TypeLoadBalancer && (class == nil || *class == b.config.OwnClass)
}

// Limited says whether the Service limits its clients. A range that cannot be read lets in no client.
func (b *Builder) Limited() bool {
	return b.Ours() && (len(b.Outside.Ranges) > 0 || b.Outside.RangesUnreadable)
}

// Clients returns the ranges of the clients that a limited Service has.
func (b *Builder) Clients(ip4, ip6 bool) []netip.Prefix {
	var all []netip.Prefix
	for _, r := range append(slices.Clone(b.Outside.Ranges), b.config.Internal...) {
		if (r.Addr().Is4() && ip4 || r.Addr().Is6() && ip6) && !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	return all
}

// SayInternalGap says whom source ranges shut out of the clusterIP.
func (b *Builder) SayInternalGap() {
	if b.Limited() && b.config.InternalGap != "" {
		b.Say(drivers.Warning, "InternalRangesUnknown",
			"spec.loadBalancerSourceRanges shut pods out of the clusterIP too, as far as they are not in them: their ranges "+
				"come from [%s] %s; name them in [%s] %s", conf.SubnetGroup,
			b.config.InternalGap, OctaviaGroup, OptInternal)
	}
}

// The logical names of what serves the clusterIPs, with Octavia and with OVN alone.
const (
	OctaviaBalancer = "loadbalancer"
	OVNBalancer     = "ovn-loadbalancer"
)

// Undecided leaves everything as it is, or unmade: what is made before its members are known would have to be changed
// at once. What another driver has made for the Service stays as well: it serves until something takes its place.
func Undecided(set drivers.Set) drivers.Set {
	leave := func(name string) {
		if !slices.Contains(set.Undecided, name) {
			set.Undecided = append(set.Undecided, name)
		}
	}
	for _, r := range set.Resources {
		if r.Claim != "" {
			leave(r.Claim)
		} else {
			leave(r.Name)
		}
	}
	for _, name := range []string{OctaviaBalancer, OctaviaBalancer + "-v6", OctaviaBalancer + "-external", OVNBalancer} {
		leave(name)
	}
	for _, name := range slices.Clone(set.Undecided) {
		if suffix, floating := strings.CutPrefix(name, drivers.FloatingIPName("")); floating {
			leave(OctaviaBalancer + "-" + suffix)
		}
	}
	set.Resources = nil
	return set
}

// Version is the IP version of an address.
func Version(addr netip.Addr) int {
	if addr.Is4() {
		return 4
	}
	return 6
}

// LeftOut is what becomes of a Service in a namespace that is not selected.
const LeftOut = "the Service gets no load balancer"
