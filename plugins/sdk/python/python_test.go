package python_test

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
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

// The example in Python has a copy of the SDK, as any driver in Python does.
func TestExampleHasTheSDK(t *testing.T) {
	const example = "../../../examples/firewall"
	files, err := filepath.Glob("raven_driver/*.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(filepath.Join(example, path), want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(filepath.Join(example, path)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s of the example is another (%v): run go test ./plugins/sdk/python -update", path, err)
		}
	}
}
