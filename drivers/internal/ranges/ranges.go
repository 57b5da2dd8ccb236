// SPDX-License-Identifier: Apache-2.0

// Package ranges holds what the drivers of the tree know of ranges of addresses: reading them, dividing them, and
// refusing those that overlap. It must never know what a range is for.
package ranges

import (
	"fmt"
	"net/netip"
)

// Parse reads a range in CIDR form. A range with bits set behind its prefix is refused, because it is not said which
// of the two the operator meant.
func Parse(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not a range in CIDR form, such as 10.0.0.0/16", text)
	}
	if p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%q is an IPv4 range in IPv6 form", text)
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("%q has bits set behind its prefix; %s is the range", text, p.Masked())
	}
	return p, nil
}

// Contains says whether the inner range lies in the outer one and is smaller.
func Contains(outer, inner netip.Prefix) bool {
	return outer.Bits() < inner.Bits() && outer.Contains(inner.Addr())
}

// Parent returns the next larger range; false for a range of everything.
func Parent(p netip.Prefix) (netip.Prefix, bool) {
	if p.Bits() == 0 {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(p.Addr(), p.Bits()-1).Masked(), true
}

// Halves splits a range in two.
func Halves(p netip.Prefix) (low, high netip.Prefix) {
	bits := p.Bits() + 1
	raw := p.Addr().AsSlice()
	raw[p.Bits()/8] |= 1 << (7 - p.Bits()%8)
	upper, _ := netip.AddrFromSlice(raw)
	return netip.PrefixFrom(p.Addr(), bits), netip.PrefixFrom(upper, bits)
}

// Last returns the last address of a range.
func Last(p netip.Prefix) netip.Addr {
	raw := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(raw)*8; bit++ {
		raw[bit/8] |= 1 << (7 - bit%8)
	}
	addr, _ := netip.AddrFromSlice(raw)
	return addr
}

// Free returns the largest range of outer that overlaps none of the taken ones, the first of several; false where
// none is left.
func Free(outer netip.Prefix, taken []netip.Prefix) (netip.Prefix, bool) {
	touched := false
	for _, t := range taken {
		if t.Bits() <= outer.Bits() && t.Contains(outer.Addr()) {
			return netip.Prefix{}, false
		}
		touched = touched || outer.Overlaps(t)
	}
	if !touched {
		return outer, true
	}
	low, high := Halves(outer)
	a, okA := Free(low, taken)
	b, okB := Free(high, taken)
	if okB && (!okA || b.Bits() < a.Bits()) {
		return b, true
	}
	return a, okA
}

// Private says whether every address of the range is one of a private network.
func Private(p netip.Prefix) bool {
	for _, block := range []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"} {
		b := netip.MustParsePrefix(block)
		if b.Bits() <= p.Bits() && b.Contains(p.Addr()) {
			return true
		}
	}
	return false
}

// Version returns the IP version of a range, 4 or 6.
func Version(r netip.Prefix) int64 {
	if r.Addr().Is4() {
		return 4
	}
	return 6
}

// Only returns those of an IP version.
func Only(ranges []netip.Prefix, version int64) []netip.Prefix {
	var some []netip.Prefix
	for _, r := range ranges {
		if Version(r) == version {
			some = append(some, r)
		}
	}
	return some
}
