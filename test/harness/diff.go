// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// LineDiff shows the lines that only one of two dumps has, "" where they have the same lines.
func LineDiff(want, have string) string {
	count := map[string]int{}
	for line := range strings.Lines(want) {
		count[line]++
	}
	for line := range strings.Lines(have) {
		count[line]--
	}
	var b strings.Builder
	for _, line := range slices.Sorted(maps.Keys(count)) {
		switch n := count[line]; {
		case n > 0:
			fmt.Fprintf(&b, "-%d× %s", n, line)
		case n < 0:
			fmt.Fprintf(&b, "+%d× %s", -n, line)
		}
	}
	return b.String()
}
