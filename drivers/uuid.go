// SPDX-License-Identifier: Apache-2.0

package drivers

import "strings"

// IsUUID says whether a text is a UUID in the form that OpenStack gives: 32 hexadecimal digits and four dashes.
func IsUUID(text string) bool {
	if len(text) != 36 {
		return false
	}
	for i, c := range []byte(text) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (c == '-') || !dash && !strings.ContainsRune("0123456789abcdefABCDEF", rune(c)) {
			return false
		}
	}
	return true
}
