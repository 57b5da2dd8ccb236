// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
)

// update is a variable of the package because flags must exist before the test binary reads its command line.
//
//nolint:gochecknoglobals // see above
var update = flag.Bool("update", false, "write what drivers give now into want.yaml")

// Golden runs every folder of dir as a test of the driver. A folder holds
//
//	in.yaml      one source object or several, as documents
//	config.yaml  options as {group: {name: value}}; the rest have their defaults. May be missing.
//	needs.yaml   objects that answer needs, as {watch: [object, …]}, or {watch: unknown} for a watch that has not synced.
//	             A need that nothing here meets, as the watch shows it, is answered as absent. May be missing.
//	want.yaml    what the driver gives: a document for each object of in.yaml, its Set and the needs that were asked, or
//	             "error:" with the message; a driver that refuses config.yaml gives the one document "refused:"
//
// Run the tests with -update to write want.yaml; read it before you commit it. Every object is translated by direct
// call and over gRPC, twice each: the four results must be the same, and the Set must be valid. A driver that is a
// drivers.CoreAware is told the capabilities first, if there are any.
func Golden(t *testing.T, driver drivers.Driver, dir string, capabilities ...string) {
	t.Helper()
	if len(capabilities) > 0 {
		aware, ok := driver.(drivers.CoreAware)
		if !ok {
			t.Fatalf("driver %s does not hear of the core's capabilities: it is no drivers.CoreAware", driver.Info().Name)
		}
		aware.Core(capabilities)
		driver = struct{ drivers.Driver }{driver} // so that nothing tells it others
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatalf("reading the cases: %v", err)
	}
	cases := 0
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		cases++
		t.Run(entry.Name(), func(t *testing.T) { golden(t, driver, filepath.Join(dir, entry.Name())) })
	}
	if cases == 0 {
		t.Fatalf("%s has no cases", dir)
	}
}

func golden(t *testing.T, driver drivers.Driver, dir string) {
	t.Helper()
	input, err := readCase(dir, driver.Info())
	if err != nil {
		t.Fatal(err)
	}
	direct := run(t, driver, input)
	remote := run(t, Connect(t, driver), input)
	if diff := cmp.Diff(direct, remote); diff != "" {
		t.Errorf("over gRPC (+) the driver gives something else than by direct call (-):\n%s", diff)
	}
	path := filepath.Join(dir, "want.yaml")
	if *update {
		if err := os.WriteFile(path, []byte(direct), 0o644); err != nil { //nolint:gosec // a file of the repository
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%s does not exist; run the test with -update. The driver gives:\n%s", path, direct)
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), direct); diff != "" {
		t.Errorf("the driver gives (+) something else than %s (-); -update writes it:\n%s", path, diff)
	}
}

// run configures a driver and renders what it makes of every object.
func run(t *testing.T, driver drivers.Driver, input testCase) string {
	t.Helper()
	if err := driver.Configure(t.Context(), input.values); err != nil {
		return fmt.Sprintf("refused: %s\n", quote(err.Error()))
	}
	watches := driver.Watches()
	answer, err := input.answers(watches)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for i, document := range input.objects {
		object, err := sourceObject(document, watches)
		if err != nil {
			t.Fatalf("document %d of in.yaml: %v", i+1, err)
		}
		first := translate(t, driver, object, answer)
		if again := translate(t, driver, object, answer); again != first {
			t.Errorf("document %d of in.yaml: the second call gives something else (+) than the first (-):\n%s", i+1,
				cmp.Diff(first, again))
		}
		if text != "" {
			text += "---\n"
		}
		text += first
	}
	return text
}

func translate(
	t *testing.T, driver drivers.Driver, object drivers.Object, answer func(drivers.Need) ([]drivers.Object, bool),
) string {
	t.Helper()
	set, needs, err := Translate(t.Context(), driver, object, answer)
	if err != nil {
		return render(drivers.Set{}, needs, err)
	}
	if err := validate(set, driver.Info()); err != nil {
		t.Errorf("the Set is not valid: %v", err)
	}
	return render(set, needs, nil)
}

func validate(set any, info drivers.Info) error {
	checked, ok := set.(interface{ Validate(drivers.Info) error })
	if !ok {
		return nil
	}
	return checked.Validate(info)
}
