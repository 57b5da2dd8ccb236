// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"encoding/binary"
	"math"
	"net"
	"net/netip"
	"slices"
)

// span is a range of addresses, both ends included.
type span struct{ from, to netip.Addr }

func (s span) holds(a netip.Addr) bool { return s.from.Compare(a) <= 0 && a.Compare(s.to) <= 0 }

// size saturates at the largest int64.
func (s span) size() int64 {
	a, b := s.from.As16(), s.to.As16()
	if binary.BigEndian.Uint64(a[:8]) != binary.BigEndian.Uint64(b[:8]) {
		return math.MaxInt64
	}
	n := binary.BigEndian.Uint64(b[8:]) - binary.BigEndian.Uint64(a[8:])
	if n >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(n) + 1
}

func (s span) doc() map[string]any {
	return map[string]any{"start": s.from.String(), "end": s.to.String()}
}

func (s span) String() string { return s.from.String() + "-" + s.to.String() }

// ipam keeps a subnet's addresses.
type ipam struct {
	prefix netip.Prefix
	pools  []span
	used   map[netip.Addr]struct{}
	taken  int64 // of the pools' addresses
	room   int64 // addresses in the pools
	pool   int   // where the next search begins
	next   netip.Addr
	eui64  bool // addresses follow from the MAC
}

func newIPAM(prefix netip.Prefix, eui64 bool) *ipam {
	return &ipam{prefix: prefix, used: map[netip.Addr]struct{}{}, eui64: eui64}
}

func (i *ipam) setPools(pools []span) {
	i.pools, i.taken, i.room, i.pool = pools, 0, 0, 0
	for _, p := range pools {
		if n := p.size(); n > math.MaxInt64-i.room {
			i.room = math.MaxInt64
		} else {
			i.room += n
		}
	}
	for a := range i.used {
		if i.pooled(a) {
			i.taken++
		}
	}
	if len(pools) > 0 {
		i.next = pools[0].from
	}
}

func (i *ipam) pooled(a netip.Addr) bool {
	return slices.ContainsFunc(i.pools, func(s span) bool { return s.holds(a) })
}

func (i *ipam) take(a netip.Addr) {
	i.used[a] = struct{}{}
	if i.pooled(a) {
		i.taken++
	}
}

func (i *ipam) release(a netip.Addr) {
	if _, ok := i.used[a]; !ok {
		return
	}
	delete(i.used, a)
	if i.pooled(a) {
		i.taken--
	}
}

// free finds a free address of the pools: the one after the last given first, so that a freed one rests a while.
func (i *ipam) free() (netip.Addr, bool) {
	if i.taken >= i.room {
		return netip.Addr{}, false
	}
	for {
		if a := i.next; i.pools[i.pool].holds(a) {
			i.next = a.Next()
			if _, used := i.used[a]; !used {
				return a, true
			}
			continue
		}
		i.pool = (i.pool + 1) % len(i.pools)
		i.next = i.pools[i.pool].from
	}
}

// usable: neither the network's own address nor the broadcast address.
func usable(p netip.Prefix, a netip.Addr) bool {
	if !p.Contains(a) {
		return false
	}
	if a.Is4() && p.Bits() < 31 {
		return a != p.Masked().Addr() && a != lastOf(p)
	}
	return a.Is4() || a != p.Masked().Addr() || p.Bits() >= 127
}

// lastOf returns a prefix's highest address.
func lastOf(p netip.Prefix) netip.Addr {
	if p.Addr().Is4() {
		b := p.Masked().Addr().As4()
		n := binary.BigEndian.Uint32(b[:])
		n |= uint32(uint64(1)<<(32-p.Bits()) - 1)
		binary.BigEndian.PutUint32(b[:], n)
		return netip.AddrFrom4(b)
	}
	b := p.Masked().Addr().As16()
	for bit := p.Bits(); bit < 128; bit++ {
		b[bit/8] |= 1 << (7 - bit%8)
	}
	return netip.AddrFrom16(b)
}

// defaultPools are all usable addresses but the gateway's.
func defaultPools(p netip.Prefix, gateway netip.Addr) []span {
	first, last := p.Masked().Addr(), lastOf(p)
	if first.Is4() && p.Bits() < 31 {
		first, last = first.Next(), last.Prev()
	} else if first.Is6() && p.Bits() < 127 {
		first = first.Next()
	}
	whole := span{first, last}
	if !gateway.IsValid() || !whole.holds(gateway) {
		return []span{whole}
	}
	var out []span
	if gateway.Compare(first) > 0 {
		out = append(out, span{first, gateway.Prev()})
	}
	if gateway.Compare(last) < 0 {
		out = append(out, span{gateway.Next(), last})
	}
	return out
}

// eui64 derives a SLAAC address from a MAC.
func eui64(p netip.Prefix, mac string) netip.Addr {
	m, err := net.ParseMAC(mac)
	if err != nil || len(m) != 6 {
		return p.Addr()
	}
	b := p.Masked().Addr().As16()
	copy(b[8:], []byte{m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]})
	return netip.AddrFrom16(b)
}

// claim takes an address of a subnet within the transaction.
func (t *tx) claim(sub *object, a netip.Addr) error {
	if _, used := sub.ipam.used[a]; used {
		return conflict("IpAddressAlreadyAllocated", "IP address %s already allocated in subnet %s", a, sub.id)
	}
	sub.ipam.take(a)
	t.onUndo(func() { sub.ipam.release(a) })
	return nil
}

// unclaim gives an address back within the transaction.
func (t *tx) unclaim(sub *object, a netip.Addr) {
	sub.ipam.release(a)
	t.onUndo(func() { sub.ipam.take(a) })
}

// subnetsOf returns a network's subnets in the order of their creation.
func (c *Cloud) subnetsOf(network string) []*object {
	var out []*object
	for s := range c.by("subnet", "network_id", network) {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *object) int { return int(a.seq - b.seq) })
	return out
}

// request is one address that a port asks for. Either part may be empty.
type request struct {
	subnet *object
	addr   netip.Addr
}

// resolve checks what a port asks for against its network.
func (t *tx) resolve(network string, asked []any, verb string) ([]request, error) {
	subnets := t.c.subnetsOf(network)
	out := make([]request, 0, len(asked))
	for _, f := range asked {
		m, _ := f.(map[string]any)
		var r request
		if a := str(m, "ip_address"); a != "" {
			r.addr = netip.MustParseAddr(a) // checked by the schema
		}
		if id := str(m, "subnet_id"); id != "" {
			i := slices.IndexFunc(subnets, func(s *object) bool { return s.id == id })
			if i < 0 {
				if _, exists := t.get("subnet", id); !exists {
					return nil, notFound("SubnetNotFound", "Subnet %s could not be found.", id)
				}
				return nil,
					invalidInput("Failed to %s port on network %s, because fixed_ips included invalid subnet %s", verb, network, id)
			}
			r.subnet = subnets[i]
			if r.addr.IsValid() && !usable(r.subnet.ipam.prefix, r.addr) {
				return nil, neutron(400, "InvalidIpForSubnet", "IP address %s is not a valid IP for the specified subnet.", r.addr)
			}
		} else if r.addr.IsValid() {
			i := slices.IndexFunc(subnets, func(s *object) bool { return usable(s.ipam.prefix, r.addr) })
			if i < 0 {
				return nil,
					neutron(400, "InvalidIpForNetwork",
						"IP address %s is not a valid IP for any of the subnets on the specified network.", r.addr)
			}
			r.subnet = subnets[i]
		} else {
			return nil, invalidInput("IP allocation requires subnet_id or ip_address")
		}
		out = append(out, r)
	}
	return out, nil
}

// allocate gives a port its addresses. It marks those that the cloud chose in auto.
func (t *tx) allocate(network, mac string, router bool, asked []request, auto map[string]bool) ([]any, error) {
	out := make([]any, 0, len(asked))
	give := func(s *object, a netip.Addr) {
		out = append(out, map[string]any{"subnet_id": s.id, "ip_address": a.String()})
	}
	for _, r := range asked { // addresses by name first: the others choose around them
		if !r.addr.IsValid() {
			continue
		}
		if r.subnet.ipam.eui64 && !router && r.addr != eui64(r.subnet.ipam.prefix, mac) {
			return nil, neutron(400, "AllocationOnAutoAddressSubnet",
				"IPv6 address %s cannot be directly assigned to a port on subnet %s as the subnet is configured for automatic "+
					"addresses", r.addr, r.subnet.id)
		}
		if err := t.claim(r.subnet, r.addr); err != nil {
			return nil, err
		}
		give(r.subnet, r.addr)
	}
	for _, r := range asked {
		if r.addr.IsValid() {
			continue
		}
		a, err := t.allocateFrom(network, mac, []*object{r.subnet}, auto)
		if err != nil {
			return nil, err
		}
		give(r.subnet, a)
	}
	return out, nil
}

// allocateFrom takes an address of the first of the subnets that has room.
func (t *tx) allocateFrom(network, mac string, subnets []*object, auto map[string]bool) (netip.Addr, error) {
	for _, s := range subnets {
		a, ok := s.ipam.free()
		if s.ipam.eui64 {
			a, ok = eui64(s.ipam.prefix, mac), true
		}
		if !ok {
			continue
		}
		if err := t.claim(s, a); err != nil {
			return a, err
		}
		auto[a.String()] = true
		return a, nil
	}
	return netip.Addr{}, conflict("IpAddressGenerationFailure", "No more IP addresses available on network %s.", network)
}
