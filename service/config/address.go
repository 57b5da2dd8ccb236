// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// isIP says whether a text is an address as inet_pton(3) reads it: without a zone and without leading zeros.
func isIP(text string, version int) bool {
	address, err := netip.ParseAddr(text)
	return err == nil && address.Zone() == "" && isVersion(address, version)
}

func isVersion(address netip.Addr, version int) bool {
	return version == 0 || address.Is4() == (version == 4)
}

// isCIDR says whether a text is a range of addresses. One with host bits is none: it is a typo more often than a way
// of speaking.
func isCIDR(text string, version int) bool {
	prefix, err := netip.ParsePrefix(text)
	return err == nil && prefix == prefix.Masked() && isVersion(prefix.Addr(), version)
}

// isURI says whether a text is a URI of RFC 3986 with a scheme and a host.
func isURI(text string, schemes []string) bool {
	const marks = "-._~" + ":/?#[]@" + "!$&'()*+,;=" + "%" // unreserved, delimiters, and what begins an escape
	for _, c := range []byte(text) {
		if !isAlphanumeric(c) && strings.IndexByte(marks, c) < 0 {
			return false
		}
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Hostname() == "" {
		return false
	}
	return len(schemes) == 0 || slices.Contains(schemes, u.Scheme)
}

// isHostname says whether a text is a host name of RFC 1123: up to 253 characters, labels of letters, digits and
// inner dashes, the last one not all digits, so that a mistyped address is none.
func isHostname(text string) bool {
	if len(text) == 0 || len(text) > 253 {
		return false
	}
	labels := strings.Split(strings.TrimSuffix(text, "."), ".")
	for _, label := range labels {
		if len(label) == 0 || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if !isAlphanumeric(c) && c != '-' {
				return false
			}
		}
	}
	return strings.Trim(labels[len(labels)-1], "0123456789") != ""
}

func isAlphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
