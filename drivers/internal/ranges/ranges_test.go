// SPDX-License-Identifier: Apache-2.0

package ranges

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
		if _, err := Parse(tc.text); (err == nil) != tc.ok {
			t.Errorf("Parse(%q), %s: error %v", tc.text, tc.why, err)
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
			got, ok := Free(netip.MustParsePrefix(tc.outer), taken)
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
		if got := Last(netip.MustParsePrefix(text)); got.String() != want {
			t.Errorf("Last(%s) = %s, want %s", text, got, want)
		}
	}
}
