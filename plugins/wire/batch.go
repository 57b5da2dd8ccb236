// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
)

// A message takes at most so many parts, and grows no further once it has so many bytes: large ones would hold up the
// small.
const (
	batchCount = 1024
	batchBytes = 1 << 20
)

// batch says how many of the first parts go into one message; at least one does.
func batch[M proto.Message](parts []M) int {
	bytes := 0
	for i, part := range parts {
		bytes += proto.Size(part)
		if i > 0 && (i == batchCount || bytes > batchBytes) {
			return i
		}
	}
	return len(parts)
}

// wake notifies a waiter, without waiting for it.
func wake(waiter chan<- struct{}) {
	select {
	case waiter <- struct{}{}:
	default:
	}
}

func validText(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return strings.ToValidUTF8(text, "�")
}
