// SPDX-License-Identifier: Apache-2.0

package drivers

// Kind is the kind of a resource, by OpenStack's name for it.
type Kind string

// The kinds of resources.
const (
	KindNetwork           Kind = "network"
	KindSubnet            Kind = "subnet"
	KindSubnetPool        Kind = "subnetpool"
	KindRouter            Kind = "router"
	KindRouterInterface   Kind = "router_interface"
	KindPort              Kind = "port"
	KindPortPool          Kind = "port_pool"
	KindLoadBalancer      Kind = "loadbalancer"
	KindFloatingIP        Kind = "floatingip"
	KindSecurityGroup     Kind = "security_group"
	KindSecurityGroupRule Kind = "security_group_rule"
	KindLookup            Kind = "lookup"
	// OVN's own, in its northbound database.
	KindOVNLoadBalancerGroup Kind = "ovn_loadbalancer_group"
	KindOVNLoadBalancer      Kind = "ovn_loadbalancer"
)

// Kinds lists every kind, in an order in which resources can be made: what refers comes after what it refers to.
func Kinds() []Kind {
	return []Kind{
		KindLookup, KindSecurityGroup, KindSecurityGroupRule, KindNetwork, KindSubnetPool, KindSubnet, KindRouter,
		KindRouterInterface, KindPort, KindPortPool, KindLoadBalancer, KindFloatingIP, KindOVNLoadBalancerGroup,
		KindOVNLoadBalancer,
	}
}

// Spec is what a resource should be. In every spec an unset field (nil, or the zero Value) is unmanaged: the cloud's
// own choice stands. A set field is enforced, an empty one too (a pointer to an empty string, an empty list that is
// not nil). Field names and units are Neutron's. The tag of a field is its Neutron name, then:
//
//	immutable  a change means another resource: the old one is replaced
//	required   must be set
//	unordered  a list that is compared as a set
//	besteffort left out, and said once, where the credentials do not allow it
type Spec interface {
	Kind() Kind
}

// Network is a Neutron network.
type Network struct {
	Name                *string `raven:"name"`
	AdminStateUp        *bool   `raven:"admin_state_up"`
	MTU                 *int64  `raven:"mtu"` // bytes
	PortSecurityEnabled *bool   `raven:"port_security_enabled"`
	DNSDomain           *string `raven:"dns_domain"`
}

// Subnet is a Neutron subnet. Its range is given by CIDR, or by SubnetPool with PrefixLength.
type Subnet struct {
	Name            *string          `raven:"name"`
	NetworkID       Value            `raven:"network_id,required,immutable"`
	IPVersion       *int64           `raven:"ip_version,required,immutable"` // 4 or 6
	CIDR            *string          `raven:"cidr,immutable"`
	SubnetPoolID    Value            `raven:"subnetpool_id,immutable"`
	PrefixLength    *int64           `raven:"prefixlen,immutable"` // bits; only with SubnetPoolID
	GatewayIP       *string          `raven:"gateway_ip"`          // empty: no gateway
	EnableDHCP      *bool            `raven:"enable_dhcp"`
	DNSNameservers  []string         `raven:"dns_nameservers"`
	AllocationPools []AllocationPool `raven:"allocation_pools,unordered"`
	HostRoutes      []Route          `raven:"host_routes,unordered"`
	IPv6AddressMode *string          `raven:"ipv6_address_mode,immutable"`
	IPv6RAMode      *string          `raven:"ipv6_ra_mode,immutable"`
}

// AllocationPool is a range of addresses, both ends included.
type AllocationPool struct {
	Start string `raven:"start"`
	End   string `raven:"end"`
}

// Route is a route: destination in CIDR form, next hop an address.
type Route struct {
	Destination string `raven:"destination"`
	NextHop     string `raven:"nexthop"`
}

// SubnetPool is a Neutron subnet pool.
type SubnetPool struct {
	Name             *string  `raven:"name"`
	Prefixes         []string `raven:"prefixes,required,unordered"`
	DefaultPrefixLen *int64   `raven:"default_prefixlen"`
	MinPrefixLen     *int64   `raven:"min_prefixlen"`
	MaxPrefixLen     *int64   `raven:"max_prefixlen"`
}

// Router is a Neutron router. Its routes come by contributions only.
type Router struct {
	Name         *string `raven:"name"`
	AdminStateUp *bool   `raven:"admin_state_up"`
	// ExternalGateway with an unset network means "no gateway".
	ExternalGateway *ExternalGateway `raven:"external_gateway_info"`
}

// ExternalGateway is a router's way out.
type ExternalGateway struct {
	NetworkID  Value `raven:"network_id"`
	EnableSNAT *bool `raven:"enable_snat"`
}

// RouterInterface joins a subnet to a router, by a port of its own.
type RouterInterface struct {
	RouterID Value `raven:"router_id,required,immutable"`
	SubnetID Value `raven:"subnet_id,required,immutable"`
	// NetworkID is the subnet's network.
	NetworkID Value `raven:"network_id,required,immutable"`
	// IPAddress is the interface's address: usually the subnet's gateway_ip. Unset lets Neutron choose a free one.
	IPAddress Value `raven:"ip_address,immutable"`
}

// Port is a Neutron port.
type Port struct {
	Name      *string `raven:"name"`
	NetworkID Value   `raven:"network_id,required,immutable"`
	// FixedIPs unset lets Neutron give one address of every IP version that the network has.
	FixedIPs            []FixedIP     `raven:"fixed_ips,unordered"`
	MACAddress          *string       `raven:"mac_address,immutable"` // unset: the core derives one from the identity
	AdminStateUp        *bool         `raven:"admin_state_up"`
	DeviceOwner         *string       `raven:"device_owner"`
	DeviceID            *string       `raven:"device_id"`
	HostID              *string       `raven:"binding:host_id,besteffort"`
	VNICType            *string       `raven:"binding:vnic_type"`
	SecurityGroups      []Value       `raven:"security_groups,unordered"`
	AllowedAddressPairs []AddressPair `raven:"allowed_address_pairs,unordered"`
	PortSecurityEnabled *bool         `raven:"port_security_enabled"`
}

// PortPool keeps ready ports on a network. The create of a port there takes one of them and needs no request before
// others know of the port; afterwards its name, device_id, binding:host_id and tags follow. A port that is wanted with
// other security groups is changed first, one that is wanted with none of the pool's or with an address of its own
// takes none. A port that was taken is deleted with its owner, and never given again.
type PortPool struct {
	NetworkID      Value   `raven:"network_id,required,immutable"`
	SecurityGroups []Value `raven:"security_groups,unordered"`
	// DeviceOwner is that of ready ports. Only ports that are wanted with the same take one.
	DeviceOwner *string `raven:"device_owner"`
	// Min is how many ready ports wait at least, as far as they can be made; 0: as many as were taken a short while ago.
	Min *int64 `raven:"min"`
	// Max is how many wait at most; 0: no bound.
	Max *int64 `raven:"max"`
	// Batch is how many are made by one request at most; 0: the core's choice.
	Batch *int64 `raven:"batch"`
	// Interval is the time in seconds between two tries to fill a pool that could not be filled; 0: the core's choice.
	Interval *int64 `raven:"interval"`
}

// FixedIP is an address of a port: either of its parts may be unset.
type FixedIP struct {
	SubnetID  Value  `raven:"subnet_id"`
	IPAddress string `raven:"ip_address"`
}

// AddressPair is an address that a port may use beside its own.
type AddressPair struct {
	IPAddress  string `raven:"ip_address"` // an address or a CIDR
	MACAddress string `raven:"mac_address"`
}

// FloatingIP is a Neutron floating IP.
type FloatingIP struct {
	FloatingNetworkID Value   `raven:"floating_network_id,required,immutable"`
	SubnetID          Value   `raven:"subnet_id,immutable"`
	FloatingIPAddress *string `raven:"floating_ip_address,immutable"`
	PortID            Value   `raven:"port_id"` // Empty: it leads nowhere
	FixedIPAddress    *string `raven:"fixed_ip_address"`
}

// SecurityGroup is a Neutron security group. Its rules are resources of their own.
type SecurityGroup struct {
	Name     *string `raven:"name"`
	Stateful *bool   `raven:"stateful"`
	// DefaultRules false says that the group has no rules but those that are resources of Sets: the rules that Neutron
	// gives a new group, and those that others add, are deleted. Until they are gone no reference leads to the group,
	// so that no port is in it. True is refused: leave it unset instead. It is the core's, not Neutron's; a core that
	// does not name BareGroups among its capabilities does not know it.
	DefaultRules *bool `raven:"default_rules"`
}

// SecurityGroupRule is a Neutron security group rule.
type SecurityGroupRule struct {
	SecurityGroupID Value   `raven:"security_group_id,required,immutable"`
	Direction       *string `raven:"direction,required,immutable"` // ingress or egress
	EtherType       *string `raven:"ethertype,required,immutable"` // IPv4 or IPv6
	Protocol        *string `raven:"protocol,immutable"`
	PortRangeMin    *int64  `raven:"port_range_min,immutable"`
	PortRangeMax    *int64  `raven:"port_range_max,immutable"`
	RemoteIPPrefix  *string `raven:"remote_ip_prefix,immutable"`
	RemoteGroupID   Value   `raven:"remote_group_id,immutable"`
}

// Lookup is an existing resource that an operator named. It is referred to, never changed beyond attaching, never
// deleted.
type Lookup struct {
	// Of is the kind of what is looked up.
	Of Kind `raven:"of,required"`
	// ID is its UUID or, where no resource has that id, its name. Two resources of one name are an error.
	ID string `raven:"id,required"`
}

// Kind implements Spec.
func (Network) Kind() Kind { return KindNetwork }

// Kind implements Spec.
func (Subnet) Kind() Kind { return KindSubnet }

// Kind implements Spec.
func (SubnetPool) Kind() Kind { return KindSubnetPool }

// Kind implements Spec.
func (PortPool) Kind() Kind { return KindPortPool }

// Kind implements Spec.
func (Router) Kind() Kind { return KindRouter }

// Kind implements Spec.
func (RouterInterface) Kind() Kind { return KindRouterInterface }

// Kind implements Spec.
func (Port) Kind() Kind { return KindPort }

// Kind implements Spec.
func (FloatingIP) Kind() Kind { return KindFloatingIP }

// Kind implements Spec.
func (SecurityGroup) Kind() Kind { return KindSecurityGroup }

// Kind implements Spec.
func (SecurityGroupRule) Kind() Kind { return KindSecurityGroupRule }

// Kind implements Spec.
func (Lookup) Kind() Kind { return KindLookup }
