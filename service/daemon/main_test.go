// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/kuryr/raven/service/host/confine"
	"github.com/kuryr/raven/test/programs"
)

// namer is the program of the drivers, set by TestMain.
var namer string

// The test binary is a Raven that becomes a driver, too.
func TestMain(m *testing.M) {
	if confine.Called(os.Args) {
		confine.Main(os.Args)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "namer")
	if err == nil {
		defer func() { _ = os.RemoveAll(folder) }()
		namer = filepath.Join(folder, filepath.Base(programs.Namer))
		err = programs.Put(folder, programs.Namer)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "daemon tests:", err)
		return 1
	}
	status := m.Run()
	if err := goleak.Find(); err != nil && status == 0 {
		fmt.Fprintln(os.Stderr, "daemon tests:", err)
		return 1
	}
	return status
}
