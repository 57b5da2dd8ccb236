// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"net/netip"
	"strings"
	"unicode/utf8"

	"github.com/kuryr/raven/drivers"
)

// builder gathers the Set of one namespace.
type builder struct {
	*config
	namespace string
	set       drivers.Set
}

// build returns the Set of a namespace with the given service subnets.
//
//	logical name                  shared topology            dedicated topology
//	external-network              lookup                     lookup
//	router                        claim, or lookup           <ns>-router
//	subnet-pool[-v6]              claim, or lookup           claim, or lookup
//	network, subnet[-v6]          <ns>, <ns>-subnet[-v6]     the same
//	router-interface[-v6]         per namespace              the same
//	service-network               claim                      <ns>-service
//	service-subnet[-v6]           claim, or lookup           <ns>-service-subnet[-v6]
//	service-router-interface[-v6] claim                      per namespace
//	security-group, ingress-…     <ns>-sg                    the same
//	open-in, open-in-ingress-…    <ns>-in                    the same, where NetworkPolicies are kept
//	open-out, open-out-egress-…   <ns>-out                   likewise
//	members, members-itself-…     <ns>-members               likewise
//	port-pool                     available-port             the same, where pools are switched on
//
// A claim's name is its logical name. Where it is not known what the services' part should be, its names are undecided.
// NetworkPolicies are kept where isolated is not nil.
func (c *config) build(namespace string, services []service, isolated *isolation, pool portPool) drivers.Set {
	b := &builder{config: c, namespace: namespace}
	b.router()
	b.podNetwork()
	b.serviceNetwork(services)
	b.securityGroup()
	if isolated != nil {
		b.policyGroups(isolated, services)
	}
	b.portPool(pool, isolated)
	b.outputs()
	return b.set
}

func (b *builder) add(r drivers.Resource) { b.set.Resources = append(b.set.Resources, r) }

// lookup adds a resource that the operator named.
func (b *builder) lookup(name string, of drivers.Kind, id string, exports ...string) {
	b.add(drivers.Resource{Name: name, Spec: drivers.Lookup{Of: of, ID: id}, Exports: exports})
}

// joined adds a resource that is the cluster's in the shared topology, and the namespace's in the dedicated one.
func (b *builder) joined(r drivers.Resource) {
	if !b.dedicated {
		r.Claim = r.Name
	}
	b.add(r)
}

// named returns the Neutron name of what joined adds.
func (b *builder) named(shared, suffix string) *string {
	if b.dedicated {
		return name(b.namespace, suffix)
	}
	return new(shared)
}

func (b *builder) router() {
	if b.config.router != "" {
		b.lookup("router", drivers.KindRouter, b.config.router, drivers.ClusterRouter)
		return
	}
	router := drivers.Router{Name: b.named("raven-default-router", "-router")}
	if b.externalNetwork != "" {
		b.lookup("external-network", drivers.KindNetwork, b.externalNetwork)
		router.ExternalGateway = &drivers.ExternalGateway{NetworkID: drivers.From("external-network")}
	}
	b.joined(drivers.Resource{Name: "router", Spec: router, Exports: []string{drivers.ClusterRouter}})
}

func (b *builder) podNetwork() {
	b.add(drivers.Resource{
		Name: "network", Spec: drivers.Network{Name: name(b.namespace, ""), MTU: b.networkMTU()},
		Exports: []string{drivers.PodNetwork},
	})
	for i := range b.families {
		f := &b.families[i]
		b.pool(f)
		b.podSubnet(f)
		b.attach("router-interface"+f.suffix, "subnet"+f.suffix, b.add)
	}
}

func (b *builder) pool(f *family) {
	logical := "subnet-pool" + f.suffix
	if f.existingPool != "" {
		b.lookup(logical, drivers.KindSubnetPool, f.existingPool)
		return
	}
	var prefixes []string
	for _, p := range f.pool {
		prefixes = append(prefixes, p.String())
	}
	b.add(drivers.Resource{
		Name: logical, Claim: logical,
		Spec: drivers.SubnetPool{
			Name: new("raven-default-pool" + f.suffix), Prefixes: prefixes, DefaultPrefixLen: new(f.prefixLength),
		},
	})
}

func (b *builder) podSubnet(f *family) {
	subnet := drivers.Subnet{
		Name: name(b.namespace, "-subnet"+f.suffix), NetworkID: drivers.From("network"), IPVersion: new(f.version),
		SubnetPoolID: drivers.From("subnet-pool" + f.suffix), PrefixLength: new(f.prefixLength),
		EnableDHCP: new(b.dhcp), DNSNameservers: append([]string{}, f.dns...),
	}
	r := drivers.Resource{Name: "subnet" + f.suffix, Exports: []string{drivers.PodSubnet}, Expand: b.maxSubnets}
	if f.version == 6 {
		r.Exports, r.Expand = []string{drivers.PodSubnet6}, 0 // a /64 is never full
		if b.dhcp {
			// Without a mode IPv6 has no DHCP; any other than this one lets hosts choose addresses that Neutron did not give.
			subnet.IPv6AddressMode, subnet.IPv6RAMode = new("dhcpv6-stateful"), new("dhcpv6-stateful")
		}
	}
	r.Spec = subnet
	b.add(r)
}

// attach joins a subnet of the Set to the router, at the subnet's gateway address.
func (b *builder) attach(logical, subnet string, add func(drivers.Resource)) {
	add(drivers.Resource{Name: logical, Spec: drivers.RouterInterface{
		RouterID: drivers.From("router"), SubnetID: drivers.From(subnet), NetworkID: drivers.From(subnet, "network_id"),
		IPAddress: drivers.From(subnet, "gateway_ip"),
	}})
}

func (b *builder) serviceNetwork(services []service) {
	own, undecided := false, false
	for i := range services {
		s := &services[i]
		logical, role := "service-subnet"+s.family.suffix, drivers.ServiceSubnet
		if s.undecided {
			b.set.Undecided = append(b.set.Undecided, logical, "service-router-interface"+s.family.suffix)
			undecided = true
			continue
		}
		if s.family.version == 6 {
			role = drivers.ServiceSubnet6
		}
		if s.existing != "" {
			b.lookup(logical, drivers.KindSubnet, s.existing, role)
			if b.config.router != "" {
				continue // the operator has joined the two
			}
		} else {
			if !own {
				b.joined(drivers.Resource{
					Name: "service-network", Exports: []string{drivers.ServiceNetwork},
					Spec: drivers.Network{Name: b.named("raven-default-service", "-service"), MTU: b.networkMTU()},
				})
				own = true
			}
			b.joined(b.serviceSubnet(s, logical, role))
		}
		b.attach("service-router-interface"+s.family.suffix, logical, b.joined)
	}
	if undecided && !own {
		b.set.Undecided = append(b.set.Undecided, "service-network")
	}
}

func (b *builder) serviceSubnet(s *service, logical, role string) drivers.Resource {
	return drivers.Resource{Name: logical, Exports: []string{role}, Spec: drivers.Subnet{
		Name:      b.named("raven-default-"+s.cidr.String(), "-service-subnet"+s.family.suffix),
		NetworkID: drivers.From("service-network"), IPVersion: new(s.family.version), CIDR: new(s.subnet.String()),
		GatewayIP: new(s.gateway.String()), EnableDHCP: new(false),
		AllocationPools: []drivers.AllocationPool{{Start: s.first.String(), End: s.last.String()}},
	}}
}

// securityGroup lets in what the operator says, or everything; Neutron gives a new group the rules that let
// everything out.
func (b *builder) securityGroup() {
	b.add(drivers.Resource{
		Name: "security-group", Spec: drivers.SecurityGroup{Name: name(b.namespace, "-sg")},
		Exports: []string{drivers.NamespaceSecurityGroup},
	})
	b.letIn("security-group", "")
}

// letIn adds the rules that let in what the operator says, or everything.
func (b *builder) letIn(group, prefix string) {
	if len(b.ingress) == 0 {
		b.rule(group, prefix+"ingress-v4", "ingress", true, nil)
		b.rule(group, prefix+"ingress-v6", "ingress", false, nil)
	}
	seen := map[netip.Prefix]bool{}
	for _, r := range b.ingress {
		if !seen[r] {
			seen[r] = true
			b.rule(group, prefix+"ingress-"+inName(r), "ingress", r.Addr().Is4(), new(r.String()))
		}
	}
}

// inName writes a range as a part of a logical name.
func inName(r netip.Prefix) string {
	return strings.NewReplacer("/", "-", ":", "-").Replace(r.String())
}

func (b *builder) rule(group, logical, direction string, ip4 bool, remote *string) {
	etherType := "IPv6"
	if ip4 {
		etherType = "IPv4"
	}
	b.add(drivers.Resource{Name: logical, Spec: drivers.SecurityGroupRule{
		SecurityGroupID: drivers.From(group), Direction: new(direction), EtherType: new(etherType), RemoteIPPrefix: remote,
	}})
}

// policyGroups adds the groups that NetworkPolicies need: what the namespace's group lets through in two, so that a
// port can leave either, and a group of all pods. Where a policy isolates all pods, the open group of that direction
// has no rules, since it takes long until all ports have left it. The namespace's own group stays as it is, for the
// ports that are still in it.
//
// A policy cannot keep a pod from itself. What it sends itself through its Service comes from the clusterIP: OVN's load
// balancers write that, port security lets no port do it, and Octavia's amphorae have addresses of the subnet's pool.
func (b *builder) policyGroups(isolated *isolation, services []service) {
	for _, g := range [][3]string{
		{"open-in", "-in", drivers.NamespaceOpenIngress},
		{"open-out", "-out", drivers.NamespaceOpenEgress},
		{"members", "-members", drivers.NamespaceMembers},
	} {
		b.add(drivers.Resource{
			Name: g[0], Exports: []string{g[2]},
			Spec: drivers.SecurityGroup{Name: name(b.namespace, g[1]), DefaultRules: new(false)},
		})
	}
	for i := range services {
		for _, cidr := range services[i].cidrs {
			b.rule("members", drivers.MembersItself+inName(cidr), "ingress", cidr.Addr().Is4(), new(cidr.String()))
		}
	}
	if !isolated.ingress {
		b.letIn("open-in", "open-in-")
	}
	if !isolated.egress {
		b.rule("open-out", "open-out-egress-v4", "egress", true, nil)
		b.rule("open-out", "open-out-egress-v6", "egress", false, nil)
	}
}

func (b *builder) outputs() {
	subnet := "subnet" + b.families[0].suffix
	for _, o := range [][2]string{
		{NetworkAnnotation, "network"}, {SubnetAnnotation, subnet}, {SecurityGroupAnnotation, "security-group"},
	} {
		b.set.Outputs = append(b.set.Outputs, drivers.Output{
			Kind: drivers.Annotation, Key: o[0], Document: &drivers.Ref{Name: o[1]},
		})
	}
}

func (b *builder) networkMTU() *int64 {
	if b.mtu == 0 {
		return nil
	}
	return new(b.mtu)
}

// name returns a Neutron name, which has at most 255 characters; the suffix stays.
func name(of, suffix string) *string {
	const most = 255
	for utf8.RuneCountInString(of)+utf8.RuneCountInString(suffix) > most {
		_, size := utf8.DecodeLastRuneInString(of)
		of = of[:len(of)-size]
	}
	return new(of + suffix)
}
