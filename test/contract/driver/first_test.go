// SPDX-License-Identifier: Apache-2.0

// Package driver_test holds the contract of drivers to what was released: a driver that was built against the first one
// still works.
package driver_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/plugins/sdktest"
	"github.com/kuryr/raven/service/host"
	"github.com/kuryr/raven/test/programs"
)

// source is the driver of the first contract. It is a process of its own, as under Raven.
const source = "../../../" + programs.First

// build builds the driver as it is.
func build(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := programs.Put(folder, programs.First); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(folder, filepath.Base(programs.First))
}

// The contract of then is frozen: who changes it changes what this test is for.
func TestContractIsFrozen(t *testing.T) {
	described, err := os.ReadFile(source + "/contract.binpb")
	if err != nil {
		t.Fatal(err)
	}
	const frozen = "c7b78f6484e41acc81b6e1a8ac3aae1895f431b5399da0e5aef902de6f0bef53"
	if sum := sha256.Sum256(described); hex.EncodeToString(sum[:]) != frozen {
		t.Errorf("contract.binpb has sha256 %x, the first contract had %s: put it back", sum, frozen)
	}
	deps, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./"+source).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(deps)) {
		if name := strings.TrimSpace(line); strings.HasPrefix(name, "github.com/kuryr/raven/") &&
			!strings.HasPrefix(name, "github.com/kuryr/raven/test/drivers/raven-driver-first") {
			t.Errorf("it uses %s of today's Raven", name)
		}
	}
}

func TestFirstContractStillWorks(t *testing.T) {
	program := build(t)
	t.Run("today's host runs it", func(t *testing.T) { runs(t, program) })
	// What the first contract asked of a driver is all that today's asks of it.
	t.Run("it conforms", func(t *testing.T) { sdktest.ConformProgram(t, program) })
}

// runs has today's host run it, and reads from it what it meant then.
func runs(t *testing.T, program string) {
	t.Helper()
	values := drivers.Values{"first": {"colour": "blue", "depth": int64(1), "ranges": []string{"10.0.0.0/8"}}}
	plugin, err := host.Launch(t.Context(), host.Config{Name: "first", Path: program, Values: values})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := plugin.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	if names := plugin.Info().Capabilities; len(names) > 0 {
		t.Errorf("it is from before there were capabilities, and names %v", names)
	}
	object := drivers.Object{
		Watch: "pods", Raw: []byte(`{"metadata":{"name":"web","namespace":"shop"},"spec":{"nodeName":"n1"}}`),
	}
	set, asked, err := sdktest.Translate(t.Context(), plugin, object, func(drivers.Need) ([]drivers.Object, bool) {
		return []drivers.Object{{Watch: "namespaces", Raw: []byte(`{"metadata":{"name":"shop"}}`)}}, true
	})
	if err != nil || len(asked) != 1 || asked[0].Name != "shop" {
		t.Fatalf("asked %v: %v", asked, err)
	}
	if err := set.Validate(plugin.Info()); err != nil {
		t.Error(err)
	}
	got, err := yaml.Marshal(set.Render())
	if err != nil {
		t.Fatal(err)
	}
	if flag.Lookup("update").Value.String() == "true" { // sdktest declares it
		if err := os.WriteFile("testdata/want.yaml", got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/want.yaml")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("today it is read as something else (%v):\n%s", err, cmp.Diff(string(want), string(got)))
	}
	if err := plugin.Configure(t.Context(), drivers.Values{"first": {"depth": int64(-1)}}); err == nil ||
		!strings.Contains(err.Error(), "negative") {
		t.Errorf("its refusal is read as %v", err)
	}
}
