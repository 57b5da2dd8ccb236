// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"net/http"
	"net/netip"
	"slices"
)

func subnetPoolMissing(id string) *apiError {
	return notFound("SubnetPoolNotFound", "Subnet pool %s could not be found.", id)
}

func subnetPoolKind() *kind {
	bits := asInt(0, 128)
	return &kind{
		name: "subnetpool", plural: "subnetpools", path: "subnetpools", missing: subnetPoolMissing,
		fields: fieldsOf(
			field{"prefixes", rw | required, listOf(asSubnet, true), nil},
			field{"default_prefixlen", rw | none, bits, nil},
			field{"min_prefixlen", rw | none, bits, nil},
			field{"max_prefixlen", rw | none, bits, nil},
			field{"default_quota", rw, orNil(asInt(0, maxInt)), nil},
			field{"shared", post | adminPost, asBool, false},
			field{"is_default", rw | adminPost | adminPut, asBool, false},
			field{"address_scope_id", rw, orNil(asUUID), nil},
			field{"ip_version", none, nil, nil},
		),
		create: createSubnetPool, update: updateSubnetPool, remove: removeSubnetPool,
	}
}

func prefixesOf(doc map[string]any) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range stringList(doc["prefixes"]) {
		out = append(out, netip.MustParsePrefix(s)) // checked by the schema
	}
	return out
}

// compact merges what can be one prefix, as Neutron does, and sorts.
func compact(in []netip.Prefix) []any {
	ps := slices.Clone(in)
	for again := true; again; {
		again = false
		slices.SortFunc(ps, func(a, b netip.Prefix) int {
			if n := a.Addr().Compare(b.Addr()); n != 0 {
				return n
			}
			return a.Bits() - b.Bits()
		})
		for i := 0; i+1 < len(ps); i++ {
			if ps[i].Overlaps(ps[i+1]) { // the first one is the larger
				ps, again = slices.Delete(ps, i+1, i+2), true
				break
			}
			up := netip.PrefixFrom(ps[i].Addr(), ps[i].Bits()-1)
			if ps[i].Bits() == ps[i+1].Bits() && up.Masked() == up && up.Contains(ps[i+1].Addr()) {
				ps[i], ps, again = up, slices.Delete(ps, i+1, i+2), true
				break
			}
		}
	}
	out := make([]any, 0, len(ps))
	for _, p := range ps {
		out = append(out, p.String())
	}
	return out
}

func createSubnetPool(t *tx, in map[string]any) (*object, error) {
	ps := prefixesOf(in)
	if len(ps) == 0 {
		return nil, neutron(http.StatusBadRequest, "EmptySubnetPoolPrefixList", "Empty subnet pool prefix list.")
	}
	v4 := ps[0].Addr().Is4()
	if slices.ContainsFunc(ps, func(p netip.Prefix) bool { return p.Addr().Is4() != v4 }) {
		return nil,
			neutron(http.StatusBadRequest, "PrefixVersionMismatch", "Cannot mix IPv4 and IPv6 prefixes in a subnet pool.")
	}
	low, high, version := int64(8), int64(32), int64(4)
	if !v4 {
		low, high, version = 64, 128, 6
	}
	set := func(name string, def int64) {
		if _, ok := in[name]; !ok {
			in[name] = def
		}
	}
	set("min_prefixlen", low)
	set("max_prefixlen", high)
	set("default_prefixlen", integer(in, "min_prefixlen"))
	if err := checkBounds(in); err != nil {
		return nil, err
	}
	in["ip_version"], in["prefixes"] = version, compact(ps)
	return t.insert(t.c.kinds["subnetpools"], in), nil
}

func checkBounds(doc map[string]any) error {
	low, def, high := integer(doc, "min_prefixlen"), integer(doc, "default_prefixlen"), integer(doc, "max_prefixlen")
	bad := func(a string, x int64, b string, y int64) error {
		return neutron(http.StatusBadRequest, "IllegalSubnetPoolPrefixBounds", "Illegal prefix bounds: %s=%d, %s=%d.", a, x,
			b, y)
	}
	switch {
	case low > high:
		return bad("max_prefixlen", high, "min_prefixlen", low)
	case def < low:
		return bad("default_prefixlen", def, "min_prefixlen", low)
	case def > high:
		return bad("default_prefixlen", def, "max_prefixlen", high)
	}
	return nil
}

// updateSubnetPool: prefixes may be added, never removed.
func updateSubnetPool(t *tx, o *object, in map[string]any) error {
	if _, given := in["prefixes"]; given {
		next := prefixesOf(in)
		for _, old := range prefixesOf(o.doc) {
			if !slices.ContainsFunc(next, func(p netip.Prefix) bool {
				return p.Bits() <= old.Bits() && p.Contains(old.Addr())
			}) {
				return neutron(http.StatusBadRequest, "IllegalSubnetPoolPrefixUpdate",
					"Illegal update to prefixes: Existing prefixes must be a subset of the new prefixes.")
			}
		}
		in["prefixes"] = compact(next)
	}
	if err := checkBounds(cloneWith(o.doc, in)); err != nil {
		return err
	}
	t.update(o, in)
	return nil
}

func removeSubnetPool(t *tx, o *object) error {
	if len(t.c.by("subnet", "subnetpool_id", o.id)) > 0 {
		return neutron(http.StatusBadRequest, "SubnetPoolDeleteError",
			"Unable to delete subnet pool: Subnet pool has existing allocations.")
	}
	t.erase(o)
	return nil
}

// fromPool takes a subnet's range out of a pool. It returns true if the cloud chose it.
func (t *tx) fromPool(pool, net *object, in map[string]any) (bool, error) {
	taken := map[netip.Prefix]bool{}
	var inUse int64
	for s := range t.c.by("subnet", "subnetpool_id", pool.id) {
		taken[s.ipam.prefix] = true
		if s.project == str(in, "project_id") {
			inUse += addresses(s.ipam.prefix)
		}
	}
	for _, s := range t.c.subnetsOf(net.id) {
		if s.doc["subnetpool_id"] != pool.id && integer(s.doc, "ip_version") == integer(in, "ip_version") {
			return false,
				neutron(http.StatusBadRequest, "NetworkSubnetPoolAffinityError",
					"Subnets hosted on the same network must be allocated from the same subnet pool.")
		}
	}
	chosen := str(in, "cidr") == ""
	bits := integer(pool.doc, "default_prefixlen")
	if n, ok := in["prefixlen"].(int64); ok {
		bits = n
	}
	if !chosen {
		bits = int64(netip.MustParsePrefix(str(in, "cidr")).Bits())
	}
	if low := integer(pool.doc, "min_prefixlen"); bits < low {
		return false,
			neutron(http.StatusBadRequest, "MinPrefixSubnetAllocationError",
				"Unable to allocate subnet with prefix length %d, minimum allowed prefix is %d.", bits, low)
	}
	if high := integer(pool.doc, "max_prefixlen"); bits > high {
		return false,
			neutron(http.StatusBadRequest, "MaxPrefixSubnetAllocationError",
				"Unable to allocate subnet with prefix length %d, maximum allowed prefix is %d.", bits, high)
	}
	var found netip.Prefix
	if chosen {
		found = firstFree(prefixesOf(pool.doc), taken, int(bits))
		if !found.IsValid() {
			return false,
				neutron(http.StatusInternalServerError, "SubnetAllocationError",
					"Failed to allocate subnet: Insufficient prefix space to allocate subnet size /%d.", bits)
		}
	} else {
		found = netip.MustParsePrefix(str(in, "cidr"))
		inside := slices.ContainsFunc(prefixesOf(pool.doc), func(p netip.Prefix) bool {
			return p.Bits() <= found.Bits() && p.Contains(found.Addr())
		})
		if !inside || overlapsAny(found, taken) {
			return false,
				neutron(http.StatusInternalServerError, "SubnetAllocationError",
					"Failed to allocate subnet: Cannot allocate requested subnet from the available set of prefixes.")
		}
	}
	if quota, ok := pool.doc["default_quota"].(int64); ok && inUse+addresses(found) > quota {
		return false, conflict("SubnetPoolQuotaExceeded", "Per-tenant subnet pool prefix quota exceeded.")
	}
	in["cidr"] = found.String()
	return chosen, nil
}

// addresses counts what a quota counts: addresses for IPv4, /64 networks for IPv6.
func addresses(p netip.Prefix) int64 {
	full := 64
	if p.Addr().Is4() {
		full = 32
	}
	if p.Bits() >= full {
		return 1
	}
	return int64(1) << min(full-p.Bits(), 62)
}

func overlapsAny(p netip.Prefix, taken map[netip.Prefix]bool) bool {
	for t := range taken {
		if t.Overlaps(p) {
			return true
		}
	}
	return false
}

// firstFree finds the lowest free prefix of that length. It jumps over what is taken, so that many subnets of one
// size are no trouble.
func firstFree(from []netip.Prefix, taken map[netip.Prefix]bool, bits int) netip.Prefix {
	used := make([]netip.Prefix, 0, len(taken))
	for p := range taken {
		used = append(used, p)
	}
	slices.SortFunc(used, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	for _, p := range from {
		if bits < p.Bits() {
			continue
		}
		candidate := netip.PrefixFrom(p.Addr(), bits)
		for _, u := range used {
			if candidate.Overlaps(u) {
				after := lastOf(candidate)
				if last := lastOf(u); after.Less(last) {
					after = last
				}
				candidate = alignUp(after.Next(), bits)
			}
		}
		if candidate.IsValid() && p.Contains(candidate.Addr()) {
			return candidate
		}
	}
	return netip.Prefix{}
}

// alignUp returns the first prefix of that length at or after an address.
func alignUp(a netip.Addr, bits int) netip.Prefix {
	if !a.IsValid() {
		return netip.Prefix{}
	}
	p := netip.PrefixFrom(a, bits)
	if p.Masked() == p {
		return p
	}
	next := lastOf(p).Next()
	if !next.IsValid() {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(next, bits)
}
