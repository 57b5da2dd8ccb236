// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// longestShortName is how many characters of a driver's name there is room for in a tag of 60, beside an object's UID.
const longestShortName = 11

// ShortName returns a driver's name as it stands in the identities of resources in the cloud. What it returns it
// returns unchanged.
func ShortName(driver string) string { return Shorten(driver, longestShortName, 6, ":") }

// Shorten returns s if it is at most limit long and of plain characters, otherwise a plain beginning of it, '~' and so
// many hex digits of its hash. What it returns it returns unchanged.
func Shorten(s string, limit, digits int, except string) string {
	plain := func(r rune) bool {
		return r > ' ' && r < 0x7f && r != ',' && r != '/' && r != '@' && !strings.ContainsRune(except, r)
	}
	if len(s) <= limit && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	head := strings.Map(func(r rune) rune {
		if plain(r) {
			return r
		}
		return '-'
	}, s)
	return head[:min(len(head), limit-1-digits)] + "~" + hex.EncodeToString(sum[:])[:digits]
}
