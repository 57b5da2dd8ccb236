// SPDX-License-Identifier: Apache-2.0

package python_test

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"testing"

	"github.com/kuryr/raven/plugins/sdk/python"
)

// update is a variable of the package because flags must exist before the test binary reads its command line.
var update = flag.Bool("update", false, "write raven_driver/contract.py")

func TestContractIsNotStale(t *testing.T) {
	want, err := python.Contract()
	if err != nil {
		t.Fatal(err)
	}
	const path = "raven_driver/contract.py"
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := fs.ReadFile(python.Files(), path)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s is not made of today's contract (%v): run go test ./plugins/sdk/python -update", path, err)
	}
}
