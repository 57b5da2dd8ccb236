// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"fmt"
	"slices"
)

// LoadBalancer is an Octavia load balancer with all that is in it, so that it can be made by one request. Listeners
// and pools are known by their names, members by address and port; what the load balancer has besides, and what was
// made for it, goes. Field names and units are Octavia's.
//
// Others refer to its vip_port_id (a floating IP, for example) and its vip_address. These are there as soon as the load
// balancer is asked for, before it is ready.
type LoadBalancer struct {
	Name *string `raven:"name"`
	// One of VIPSubnetID, VIPNetworkID and VIPPortID is set. A VIP on an external network is reachable from outside as
	// it is.
	VIPSubnetID  Value   `raven:"vip_subnet_id,immutable"`
	VIPNetworkID Value   `raven:"vip_network_id,immutable"`
	VIPAddress   *string `raven:"vip_address,immutable"`
	// VIPPortID is a port that exists; not every provider takes one.
	VIPPortID Value `raven:"vip_port_id,immutable"`
	// AdditionalVIPs are further addresses of the same load balancer, all on one network. Nil leaves those that there
	// are, empty removes them. Some providers ignore them: the core then says so, and keeps what there is.
	AdditionalVIPs   []AdditionalVIP `raven:"additional_vips,unordered,immutable"`
	Provider         *string         `raven:"provider,immutable"` // amphora, ovn, …; unset: the cloud's default
	FlavorID         *string         `raven:"flavor_id,immutable"`
	AvailabilityZone *string         `raven:"availability_zone,immutable"`
	AdminStateUp     *bool           `raven:"admin_state_up"`
	// VIPSecurityGroups are the security groups of the VIP's port.
	VIPSecurityGroups []Value    `raven:"vip_sg_ids,unordered,besteffort"`
	Listeners         []Listener `raven:"listeners,unordered"`
	Pools             []Pool     `raven:"pools,unordered"`
}

// AdditionalVIP is a further address of a load balancer.
type AdditionalVIP struct {
	SubnetID  Value  `raven:"subnet_id"`
	IPAddress string `raven:"ip_address"` // empty: any of the subnet
}

// Listener is one port of a load balancer. Another protocol or port means that it is replaced.
type Listener struct {
	Name         string  `raven:"name"`          // unique in the load balancer, stable over time
	Protocol     *string `raven:"protocol"`      // TCP, UDP, SCTP, HTTP, HTTPS, TERMINATED_HTTPS or PROMETHEUS
	ProtocolPort *int64  `raven:"protocol_port"` // 1 to 65535
	// DefaultPool is the name of a pool of the same load balancer. Empty: none.
	DefaultPool     string   `raven:"default_pool"`
	ConnectionLimit *int64   `raven:"connection_limit"` // -1: no limit
	AllowedCIDRs    []string `raven:"allowed_cidrs"`    // empty: everybody
	// Timeouts are in milliseconds.
	TimeoutClientData    *int64 `raven:"timeout_client_data"`
	TimeoutMemberConnect *int64 `raven:"timeout_member_connect"`
	TimeoutMemberData    *int64 `raven:"timeout_member_data"`
	TimeoutTCPInspect    *int64 `raven:"timeout_tcp_inspect"`
	AdminStateUp         *bool  `raven:"admin_state_up"`
}

// Pool is a group of members. Another protocol means that it is replaced.
type Pool struct {
	Name        string  `raven:"name"`         // unique in the load balancer, stable over time
	Protocol    *string `raven:"protocol"`     // TCP, UDP, SCTP, HTTP, HTTPS, PROXY or PROXYV2
	LBAlgorithm *string `raven:"lb_algorithm"` // ROUND_ROBIN, LEAST_CONNECTIONS, SOURCE_IP or SOURCE_IP_PORT
	// SessionPersistence with an empty type means none.
	SessionPersistence *SessionPersistence `raven:"session_persistence"`
	// HealthMonitor with an empty type means none.
	HealthMonitor *HealthMonitor `raven:"healthmonitor"`
	Members       []Member       `raven:"members"`
	AdminStateUp  *bool          `raven:"admin_state_up"`
}

// SessionPersistence is how a client keeps its member.
type SessionPersistence struct {
	Type       string `raven:"type"` // SOURCE_IP, HTTP_COOKIE or APP_COOKIE
	CookieName string `raven:"cookie_name"`
	// PersistenceTimeout is in seconds; only for UDP and SCTP.
	PersistenceTimeout     *int64 `raven:"persistence_timeout"`
	PersistenceGranularity string `raven:"persistence_granularity"`
}

// HealthMonitor is how the members of a pool are checked. Another type means that it is replaced.
type HealthMonitor struct {
	Type           string  `raven:"type"`    // TCP, UDP-CONNECT, SCTP, PING, HTTP, HTTPS or TLS-HELLO
	Delay          *int64  `raven:"delay"`   // seconds between two checks
	Timeout        *int64  `raven:"timeout"` // seconds that a check may take, less than Delay
	MaxRetries     *int64  `raven:"max_retries"`
	MaxRetriesDown *int64  `raven:"max_retries_down"`
	HTTPMethod     *string `raven:"http_method"`
	URLPath        *string `raven:"url_path"`
	ExpectedCodes  *string `raven:"expected_codes"`
}

// Member is one endpoint. Address and ProtocolPort are what it is known by in its pool.
type Member struct {
	Name         string `raven:"name"`
	Address      string `raven:"address"`
	ProtocolPort *int64 `raven:"protocol_port"`
	// SubnetID is the subnet that the address is on. Unset: the member is reached by the VIP's router. Where the subnet
	// is an expandable one, the core takes the one of its subnets that holds the address.
	SubnetID Value `raven:"subnet_id"`
	// Weight is 0 to 256; 0 takes no new connections.
	Weight         *int64 `raven:"weight"`
	Backup         *bool  `raven:"backup"`
	MonitorAddress string `raven:"monitor_address"`
	MonitorPort    *int64 `raven:"monitor_port"`
	AdminStateUp   *bool  `raven:"admin_state_up"`
}

// Kind implements Spec.
func (LoadBalancer) Kind() Kind { return KindLoadBalancer }

// poolParts are the attributes of a pool that its document shows: not its members, of which there may be thousands.
func poolParts() []string {
	return []string{
		"id", "name", "protocol", "lb_algorithm", "session_persistence", "healthmonitor_id", "project_id", "admin_state_up",
	}
}

func listenerParts() []string {
	return []string{
		"id", "name", "protocol", "protocol_port", "default_pool_id", "connection_limit", "allowed_cidrs",
		"timeout_client_data",
		"timeout_member_connect", "timeout_member_data", "timeout_tcp_inspect", "project_id", "admin_state_up",
	}
}

// PartDocuments returns the documents of a load balancer's "pools" or "listeners", sorted by name; nil for anything
// else. Pools are shown without their members.
func PartDocuments(part string, attrs map[string]any) []any {
	names := map[string][]string{"pools": poolParts(), "listeners": listenerParts()}[part]
	list, _ := attrs[part].([]any)
	if names == nil {
		return nil
	}
	documents := make([]any, 0, len(list))
	for _, element := range list {
		from, _ := element.(map[string]any)
		document := map[string]any{}
		for _, name := range names {
			if value, ok := from[name]; ok {
				document[name] = copied(name, value)
			}
		}
		documents = append(documents, document)
	}
	slices.SortStableFunc(documents, compareNames)
	return documents
}

func compareNames(a, b any) int {
	name := func(v any) string {
		m, _ := v.(map[string]any)
		s, _ := m["name"].(string)
		return s
	}
	switch x, y := name(a), name(b); {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// balancer checks a load balancer.
func (v *validator) balancer(at string, s LoadBalancer) {
	if s.VIPSubnetID.IsZero() && s.VIPNetworkID.IsZero() && s.VIPPortID.IsZero() {
		v.say("%s: needs vip_subnet_id, vip_network_id or vip_port_id", at)
	}
	for i, vip := range s.AdditionalVIPs {
		if vip.SubnetID.IsZero() {
			v.say("%s: additional_vips[%d]: subnet_id must be set", at, i)
		}
	}
	pools := map[string]bool{}
	for i, pool := range s.Pools {
		here := fmt.Sprintf("%s: pools[%d] %q", at, i, pool.Name)
		v.partName(here, pool.Name, pools)
		v.pool(here, pool)
	}
	names, ports := map[string]bool{}, map[string]string{}
	for i, listener := range s.Listeners {
		here := fmt.Sprintf("%s: listeners[%d] %q", at, i, listener.Name)
		v.partName(here, listener.Name, names)
		v.listener(here, listener, ports)
		if listener.DefaultPool != "" && !pools[listener.DefaultPool] {
			v.say("%s: default_pool: %q is not among the pools", here, listener.DefaultPool)
		}
	}
}

// partName checks the name of a part, which it is known by.
func (v *validator) partName(at, name string, seen map[string]bool) {
	switch {
	case name == "":
		v.say("%s: name must be set", at)
	case len([]rune(name)) > 255:
		v.say("%s: name is longer than 255 characters", at)
	case seen[name]:
		v.say("%s: its name is there twice", at)
	}
	seen[name] = true
}

func (v *validator) listener(at string, l Listener, ports map[string]string) {
	v.choice(at+": protocol", l.Protocol, "TCP", "UDP", "SCTP", "HTTP", "HTTPS", "TERMINATED_HTTPS", "PROMETHEUS")
	v.port(at+": protocol_port", l.ProtocolPort)
	for _, cidr := range l.AllowedCIDRs {
		if problem := badPrefix(cidr); problem != "" || cidr == "" {
			v.say("%s: allowed_cidrs: %q %s", at, cidr, problem)
		}
	}
	if l.Protocol == nil || l.ProtocolPort == nil {
		return
	}
	transport := *l.Protocol
	if transport != "UDP" && transport != "SCTP" {
		transport = "TCP"
	}
	key := fmt.Sprintf("%s %d", transport, *l.ProtocolPort)
	if other, taken := ports[key]; taken {
		v.say("%s: listens on %s, as %q does", at, key, other)
	}
	ports[key] = l.Name
}

func (v *validator) pool(at string, p Pool) {
	v.choice(at+": protocol", p.Protocol, "TCP", "UDP", "SCTP", "HTTP", "HTTPS", "PROXY", "PROXYV2")
	v.choice(at+": lb_algorithm", p.LBAlgorithm, "ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP", "SOURCE_IP_PORT")
	if s := p.SessionPersistence; s != nil {
		v.choice(at+": session_persistence: type", &s.Type, "", "SOURCE_IP", "HTTP_COOKIE", "APP_COOKIE")
	}
	if m := p.HealthMonitor; m != nil {
		v.choice(at+": healthmonitor: type", &m.Type, "", "TCP", "UDP-CONNECT", "SCTP", "PING", "HTTP", "HTTPS", "TLS-HELLO")
		if m.Type != "" && (m.Delay == nil || m.Timeout == nil || m.MaxRetries == nil) {
			v.say("%s: healthmonitor: delay, timeout and max_retries must be set", at)
		}
	}
	seen := map[string]bool{}
	for i, m := range p.Members {
		here := fmt.Sprintf("%s: members[%d]", at, i)
		if problem := badAddress(m.Address); problem != "" || m.Address == "" {
			v.say("%s: address: %q is no IP address", here, m.Address)
		}
		v.port(here+": protocol_port", m.ProtocolPort)
		if m.Weight != nil && (*m.Weight < 0 || *m.Weight > 256) {
			v.say("%s: weight: %d is not between 0 and 256", here, *m.Weight)
		}
		if m.ProtocolPort == nil {
			continue
		}
		key := fmt.Sprintf("%s %d", m.Address, *m.ProtocolPort)
		if seen[key] {
			v.say("%s: address and port are there twice: %s", here, key)
		}
		seen[key] = true
	}
}

func (v *validator) choice(at string, text *string, choices ...string) {
	if text == nil {
		v.say("%s must be set", at)
	} else if !slices.Contains(choices, *text) {
		v.say("%s: %q %s", at, *text, oneOf(*text, choices...))
	}
}

func (v *validator) port(at string, port *int64) {
	if port == nil {
		v.say("%s must be set", at)
	} else if *port < 1 || *port > 65535 {
		v.say("%s: %d is not between 1 and 65535", at, *port)
	}
}
