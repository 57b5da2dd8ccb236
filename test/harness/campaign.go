// SPDX-License-Identifier: Apache-2.0

package harness

import "testing"

// Campaign skips a test with hundreds of starts and kills where tests are to be short.
func Campaign(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("a campaign of minutes: `make test-long` runs it")
	}
}
