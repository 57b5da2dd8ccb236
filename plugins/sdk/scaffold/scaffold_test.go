// SPDX-License-Identifier: Apache-2.0

package scaffold_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kuryr/raven/plugins/sdk/scaffold"
)

// run runs a command in a folder, with nothing looked up anywhere.
func run(t *testing.T, dir string, command ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOPROXY=off", "GOFLAGS=-buildvcs=false")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", command, err, out)
	}
	return string(out)
}

func TestGoModuleBuildsAndPasses(t *testing.T) {
	checkout, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "new")
	files, err := scaffold.Write(scaffold.Module{
		Name: "my-net2", Lang: scaffold.Go, Dir: dir, Checkout: checkout, Program: "raven",
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(files, "driver/testdata/plain/want.yaml") {
		t.Errorf("there are no goldens among %v", files)
	}
	run(t, dir, "make", "build", "test")
	if said := run(t, dir, "./raven-driver-my-net2", "--help"); !strings.Contains(said, "[my_net2] suffix") {
		t.Errorf("--help says %s", said)
	}
	if out := run(t, dir, "gofmt", "-l", "."); out != "" {
		t.Errorf("not formatted: %s", out)
	}
}

func TestPythonModulePasses(t *testing.T) {
	const interpreter = "/usr/bin/python3"
	if err := exec.CommandContext(t.Context(), interpreter, "-c",
		"import cryptography, grpc, google.protobuf, yaml").Run(); err != nil {
		t.Skipf("%s lacks grpcio, protobuf, cryptography or PyYAML: %v", interpreter, err)
	}
	dir := filepath.Join(t.TempDir(), "new")
	if _, err := scaffold.Write(scaffold.Module{
		Name: "my-net2", Lang: scaffold.Python, Dir: dir, Program: "raven",
	}); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "make", "build", "test")
	if said := run(t, dir, "./raven-driver-my-net2", "--help"); !strings.Contains(said, "[my_net2] suffix") {
		t.Errorf("--help says %s", said)
	}
}

func TestRefusals(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for why, test := range map[string]struct {
		module scaffold.Module
		says   string
	}{
		"a bad name": {
			scaffold.Module{Name: "My Driver", Lang: scaffold.Python, Dir: t.TempDir()}, "no name of a driver",
		},
		"another language": {scaffold.Module{Name: "x", Lang: "cobol", Dir: t.TempDir()}, "go or python"},
		"a full folder":    {scaffold.Module{Name: "x", Lang: scaffold.Python, Dir: full}, "not empty"},
		"no checkout": {
			scaffold.Module{Name: "x", Lang: scaffold.Go, Dir: t.TempDir(), Checkout: full}, "checkout of Raven",
		},
	} {
		if _, err := scaffold.Write(test.module); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", why, err)
		}
	}
	released := filepath.Join(t.TempDir(), "new")
	if _, err := scaffold.Write(scaffold.Module{
		Name: "x", Lang: scaffold.Go, Dir: released, Release: "v1.2.3",
	}); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(released, "go.mod"))
	if err != nil || !strings.Contains(string(mod), "require github.com/kuryr/raven v1.2.3") ||
		strings.Contains(string(mod), "replace") {
		t.Errorf("go.mod: %s (%v)", mod, err)
	}
}
