// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		os.Stderr.WriteString(err.Error() + "\n") //nolint:errcheck // about to exit
		code = 1
	}
	os.Exit(code)
}
