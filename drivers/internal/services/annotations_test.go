// SPDX-License-Identifier: Apache-2.0

package services

import "testing"

// Ranges are read as API servers read them, which let numbers begin with zeros.
func TestRangeOf(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"10.0.0.0/8", "10.0.0.0/8"},
		{" 198.51.100.7/24 ", "198.51.100.0/24"},
		{"010.001.000.0/016", "10.1.0.0/16"},
		{"0.0.0.0/0", "0.0.0.0/0"},
		{"2001:db8::1/32", "2001:db8::/32"},
		{"::/0", "::/0"},
		{"fd00::/008", "fd00::/8"},
		{"everybody", ""},
		{"", ""},
		{"10.0.0.0", ""},
		{"10.0.0.0/", ""},
		{"10.0.0/8", ""},
		{"10.0.0..1/8", ""},
		{"10.0.0.256/8", ""},
		{"10.0.0.0/33", ""},
		{"10.0.0.0/-0", ""},
	} {
		got, ok := rangeOf(tc.text)
		if ok != (tc.want != "") || ok && got.String() != tc.want {
			t.Errorf("%q: %v %v, want %q", tc.text, got, ok, tc.want)
		}
	}
}
