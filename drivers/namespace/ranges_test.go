// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"net/netip"
	"testing"
)

func TestPrefix(t *testing.T) {
	for _, tc := range []struct {
		text string
		ok   bool
		why  string
	}{
		{"10.96.0.0/12", true, "a range"},
		{"fd00::/64", true, "a range"},
		{"10.96.0.1/12", false, "bits behind the prefix"},
		{"10.96.0.0", false, "an address"},
		{"::ffff:10.0.0.0/104", false, "IPv4 in IPv6"},
		{"default", false, "a word"},
	} {
		if _, err := prefix(tc.text); (err == nil) != tc.ok {
			t.Errorf("prefix(%q), %s: error %v", tc.text, tc.why, err)
		}
	}
}

func TestFree(t *testing.T) {
	for _, tc := range []struct {
		name, outer string
		taken       []string
		want        string // empty: none
	}{
		{"nothing taken", "10.0.0.0/8", nil, "10.0.0.0/8"},
		{"lower half taken", "10.96.0.0/11", []string{"10.96.0.0/12"}, "10.112.0.0/12"},
		{"upper half taken", "10.96.0.0/11", []string{"10.112.0.0/12"}, "10.96.0.0/12"},
		{"all taken", "10.96.0.0/12", []string{"10.96.0.0/12"}, ""},
		{"taken by a larger one", "10.96.0.0/12", []string{"10.0.0.0/8"}, ""},
		{"taken in two parts", "10.96.0.0/12", []string{"10.96.0.0/13", "10.104.0.0/13"}, ""},
		{"a corner taken", "10.0.0.0/8", []string{"10.0.0.0/24"}, "10.128.0.0/9"},
		{"two halves touched", "10.0.0.0/8", []string{"10.0.0.0/24", "10.255.0.0/24"}, "10.64.0.0/10"},
		{"elsewhere", "10.0.0.0/8", []string{"192.168.0.0/16"}, "10.0.0.0/8"},
		{"version 6", "fd00:10:96::/111", []string{"fd00:10:96::/112"}, "fd00:10:96::1:0/112"},
		{"a single address left", "10.0.0.0/31", []string{"10.0.0.0/32"}, "10.0.0.1/32"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var taken []netip.Prefix
			for _, text := range tc.taken {
				taken = append(taken, netip.MustParsePrefix(text))
			}
			got, ok := free(netip.MustParsePrefix(tc.outer), taken)
			if ok != (tc.want != "") || ok && got.String() != tc.want {
				t.Errorf("got %s, %v", got, ok)
			}
		})
	}
}

func TestLast(t *testing.T) {
	for text, want := range map[string]string{
		"10.96.0.0/11": "10.127.255.255", "10.0.0.4/30": "10.0.0.7", "10.0.0.4/32": "10.0.0.4",
		"fd00::/126": "fd00::3", "0.0.0.0/0": "255.255.255.255",
	} {
		if got := last(netip.MustParsePrefix(text)); got.String() != want {
			t.Errorf("last(%s) = %s, want %s", text, got, want)
		}
	}
}

// Kubernetes assigns any address of its range: wherever that lies in the subnet, Neutron must give none of them by
// itself.
func TestPlanKeepsOutOfKubernetesRange(t *testing.T) {
	c := &config{}
	for _, subnet := range []string{"10.0.0.0/8", "10.96.0.0/12", "10.96.0.0/27", "fd00:10:96::/108"} {
		outer := netip.MustParsePrefix(subnet)
		inner := []netip.Prefix{}
		for p, bits := outer, outer.Bits(); p.Bits() < bits+3; {
			low, high := halves(p)
			inner = append(inner, low, high)
			p = high
		}
		for _, cidr := range inner {
			f := &family{version: versionOf(outer), serviceSubnet: outer}
			s, err := c.plan(f, []netip.Prefix{cidr})
			if err != nil {
				t.Errorf("%s in %s: %v", cidr, outer, err)
				continue
			}
			for what, addr := range map[string]netip.Addr{"gateway": s.gateway, "first": s.first, "last": s.last} {
				if cidr.Contains(addr) || !outer.Contains(addr) || addr == outer.Addr() {
					t.Errorf("%s in %s: %s is %s", cidr, outer, what, addr)
				}
			}
			if s.last.Less(s.first) || !s.gateway.Less(s.first) || s.first.Less(cidr.Addr()) != s.last.Less(cidr.Addr()) {
				t.Errorf("%s in %s: gateway %s, pool %s to %s", cidr, outer, s.gateway, s.first, s.last)
			}
			if outer.Addr().Is4() && s.last == last(outer) {
				t.Errorf("%s in %s: the pool ends with the broadcast address", cidr, outer)
			}
		}
	}
}
