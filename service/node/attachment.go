// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/kuryr/raven/drivers/contract"
)

// What the kubelet writes on the mirror pods of static pods: the UID that it uses itself, and CNI's.
const (
	mirrorAnnotation = "kubernetes.io/config.mirror"
	hashAnnotation   = "kubernetes.io/config.hash"
)

// attachment is what a pod, or a node, is plugged in with, as the annotations say.
type attachment struct {
	Port      string // the Neutron port's UUID
	DeviceID  string
	HostID    string
	MAC       net.HardwareAddr
	MTU       int // 0: not known
	Addresses []address
	DNS       []string // name servers of the subnets
}

// address is one address of a port, with its subnet.
type address struct {
	Prefix  netip.Prefix // the address, with the subnet's length
	Gateway netip.Addr   // not valid: the subnet has none
	Routes  []hostRoute
}

// hostRoute is a route of a subnet.
type hostRoute struct {
	Destination netip.Prefix
	NextHop     netip.Addr // not valid: on the link
}

// missingError says that an annotation is not there (yet).
type missingError struct{ key string }

func (m *missingError) Error() string {
	return fmt.Sprintf("annotation %s, which Raven writes once the port is there", m.key)
}

// versionError says that the annotations keep another version of the contract.
type versionError struct{ version string }

func (v *versionError) Error() string {
	return fmt.Sprintf("annotation %s is %q, and this daemon knows version %s of the contract only: give nodes the "+
		"version of raven-node that belongs to this Raven", contract.VersionKey, v.version, contract.Version)
}

// The documents as Neutron gives them: only what is read.
type (
	portDocument struct {
		ID       string `json:"id"`
		MAC      string `json:"mac_address"`
		DeviceID string `json:"device_id"`
		HostID   string `json:"binding:host_id"`
		FixedIPs []struct {
			Subnet  string `json:"subnet_id"`
			Address string `json:"ip_address"`
		} `json:"fixed_ips"`
	}
	subnetDocument struct {
		ID         string   `json:"id"`
		CIDR       string   `json:"cidr"`
		Gateway    string   `json:"gateway_ip"`
		DNS        []string `json:"dns_nameservers"`
		HostRoutes []struct {
			Destination string `json:"destination"`
			NextHop     string `json:"nexthop"`
		} `json:"host_routes"`
	}
	networkDocument struct {
		MTU int `json:"mtu"`
	}
)

// parseAttachment reads annotations. The error is a *missingError where one is not there.
func parseAttachment(annotations map[string]string) (*attachment, error) {
	if annotations[contract.Port] == "" {
		return nil, &missingError{contract.Port}
	}
	switch version := annotations[contract.VersionKey]; version {
	case contract.Version:
	case "":
		return nil, &missingError{contract.VersionKey}
	default:
		return nil, &versionError{short(version)}
	}
	var port portDocument
	if err := decode(annotations, contract.Port, &port); err != nil {
		return nil, err
	}
	subnets, err := parseSubnets(annotations)
	if err != nil {
		return nil, err
	}
	var network networkDocument
	if err := decode(annotations, contract.Network, &network); err != nil {
		return nil, err
	}
	a := &attachment{Port: port.ID, DeviceID: port.DeviceID, HostID: port.HostID, MTU: network.MTU}
	if a.MTU < 0 || a.MTU > 65535 {
		return nil, fmt.Errorf("annotation %s: %d is no MTU", contract.Network, a.MTU)
	}
	if !isUUID(a.Port) {
		return nil, fmt.Errorf("annotation %s: id %q is no UUID", contract.Port, short(a.Port))
	}
	if a.MAC, err = net.ParseMAC(port.MAC); err != nil || len(a.MAC) != 6 {
		return nil, fmt.Errorf("annotation %s: mac_address %q is no MAC address", contract.Port, short(port.MAC))
	}
	return a, a.take(port, subnets)
}

// take adds the addresses of a port, with what their subnets say.
func (a *attachment) take(port portDocument, subnets map[string]subnetDocument) error {
	if len(port.FixedIPs) == 0 {
		return fmt.Errorf("annotation %s: the port has no address", contract.Port)
	}
	seen := map[string]bool{}
	for _, fixed := range port.FixedIPs {
		subnet, there := subnets[fixed.Subnet]
		if !there {
			return fmt.Errorf("annotation %s: address %s is of subnet %s, which %s and %s do not have", contract.Port,
				short(fixed.Address), short(fixed.Subnet), contract.Subnet, contract.Subnets)
		}
		one, err := subnet.address(fixed.Address)
		if err != nil {
			return err
		}
		a.Addresses = append(a.Addresses, one)
		if !seen[subnet.ID] {
			a.DNS = append(a.DNS, subnet.DNS...)
		}
		seen[subnet.ID] = true
	}
	return nil
}

func parseSubnets(annotations map[string]string) (map[string]subnetDocument, error) {
	var list []subnetDocument
	if annotations[contract.Subnets] != "" {
		if err := decode(annotations, contract.Subnets, &list); err != nil {
			return nil, err
		}
	}
	var first subnetDocument
	if err := decode(annotations, contract.Subnet, &first); err != nil {
		return nil, err
	}
	subnets := map[string]subnetDocument{}
	for _, s := range append(list, first) {
		subnets[s.ID] = s
	}
	return subnets, nil
}

// address returns an address of the subnet.
func (s subnetDocument) address(text string) (address, error) {
	bad := func(what, value string) error {
		return fmt.Errorf("annotation %s: %s %q of subnet %s cannot be read", contract.Subnet, what, short(value),
			short(s.ID))
	}
	ip, err := netip.ParseAddr(text)
	if err != nil || ip.Zone() != "" {
		return address{}, fmt.Errorf("annotation %s: ip_address %q is no address", contract.Port, short(text))
	}
	cidr, err := netip.ParsePrefix(s.CIDR)
	if err != nil {
		return address{}, bad("cidr", s.CIDR)
	}
	if !cidr.Contains(ip) {
		return address{}, fmt.Errorf("annotation %s: address %s is not in cidr %s of its subnet", contract.Port, ip, cidr)
	}
	a := address{Prefix: netip.PrefixFrom(ip, cidr.Bits())}
	if s.Gateway != "" {
		if a.Gateway, err = netip.ParseAddr(s.Gateway); err != nil || a.Gateway.Is4() != ip.Is4() {
			return address{}, bad("gateway_ip", s.Gateway)
		}
	}
	for _, route := range s.HostRoutes {
		destination, err := netip.ParsePrefix(route.Destination)
		if err != nil || destination.Addr().Is4() != ip.Is4() {
			return address{}, bad("host_routes destination", route.Destination)
		}
		hop, err := netip.ParseAddr(route.NextHop)
		if err != nil || hop.Is4() != ip.Is4() {
			return address{}, bad("host_routes nexthop", route.NextHop)
		}
		if hop.IsUnspecified() {
			hop = netip.Addr{}
		}
		a.Routes = append(a.Routes, hostRoute{destination.Masked(), hop})
	}
	return a, nil
}

// route is a route of an interface.
type route struct {
	Destination netip.Prefix
	Gateway     netip.Addr // not valid: on the link
	Source      netip.Addr // not valid: the kernel chooses
}

// routes are those of a pod: a default route for each family, by the first address that has a gateway, and the
// subnets' own. A subnet's route of the same destination comes before the default.
func (a *attachment) routes() []route {
	var all []route
	have := map[netip.Prefix]bool{}
	add := func(r route) {
		if !have[r.Destination] {
			have[r.Destination] = true
			all = append(all, r)
		}
	}
	for _, one := range a.Addresses {
		for _, r := range one.Routes {
			add(route{Destination: r.Destination, Gateway: r.NextHop})
		}
	}
	for _, one := range a.Addresses {
		if one.Gateway.IsValid() {
			add(route{Destination: everything(one.Gateway), Gateway: one.Gateway})
		}
	}
	return all
}

// everything is the destination of a default route.
func everything(like netip.Addr) netip.Prefix {
	if like.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// parseRanges reads the ranges that are routed over the node's own interface.
func parseRanges(annotations map[string]string) ([]netip.Prefix, error) {
	if annotations[contract.PodCIDRs] == "" {
		return nil, nil
	}
	var texts []string
	if err := decode(annotations, contract.PodCIDRs, &texts); err != nil {
		return nil, err
	}
	ranges := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %q is no range of addresses", contract.PodCIDRs, short(text))
		}
		if prefix.Bits() == 0 {
			return nil, fmt.Errorf("annotation %s: %s is everything: the node would reach nothing but pods", contract.PodCIDRs,
				prefix)
		}
		ranges = append(ranges, prefix.Masked())
	}
	return ranges, nil
}

func decode(annotations map[string]string, key string, into any) error {
	text := annotations[key]
	if text == "" {
		return &missingError{key}
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return fmt.Errorf("annotation %s is not the JSON document of the contract: %w", key, err)
	}
	return nil
}

// short cuts a text of others for an error.
func short(text string) string {
	const most = 64
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// isUUID says whether a text is a UUID in the form that Neutron writes.
func isUUID(text string) bool {
	if len(text) != 36 {
		return false
	}
	for i, c := range []byte(text) {
		switch {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return false
			}
		case c >= '0' && c <= '9', c >= 'a' && c <= 'f', c >= 'A' && c <= 'F':
		default:
			return false
		}
	}
	return true
}
