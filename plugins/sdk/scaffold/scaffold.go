// SPDX-License-Identifier: Apache-2.0

// Package scaffold writes the first files of a driver's own module, in Go or in Python: ones that build, test and run
// at once. It must never write over anything.
package scaffold

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"

	"github.com/kuryr/raven/plugins/sdk/python"
)

// The languages.
const (
	Go     = "go"
	Python = "python"
)

// Module says what to write.
type Module struct {
	// Name is the driver's name: lower case letters, digits and dashes, at most 40.
	Name string
	// Lang is Go or Python.
	Lang string
	// Dir is the folder; it is made, or must be empty.
	Dir string
	// Module is the path of the Go module; empty is example.org/raven-driver-<name>.
	Module string
	// Checkout is a folder with Raven's source that the Go module is built against, as long as no released version is.
	// Empty: Release.
	Checkout string
	// Release is the version of Raven that the Go module requires, such as v1.2.3.
	Release string
	// Program is the raven program that the Makefile calls.
	Program string
}

//go:embed all:templates
var templates embed.FS

var driverName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)

// Write writes the files and returns their names, in order.
func Write(m Module) ([]string, error) {
	if !driverName.MatchString(m.Name) {
		return nil, fmt.Errorf("%q is no name of a driver: it has lower case letters, digits and dashes, at most 40", m.Name)
	}
	if m.Module == "" {
		m.Module = "example.org/raven-driver-" + m.Name
	}
	var files []file
	var err error
	switch m.Lang {
	case Go:
		files, err = m.goFiles()
	case Python:
		files, err = m.pythonFiles()
	default:
		err = fmt.Errorf("language %q: it must be %s or %s", m.Lang, Go, Python)
	}
	if err != nil {
		return nil, err
	}
	if entries, err := os.ReadDir(m.Dir); err == nil && len(entries) > 0 {
		return nil, fmt.Errorf("%s is not empty: name another folder with --dir", m.Dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	names := make([]string, 0, len(files))
	for _, f := range files {
		path := filepath.Join(m.Dir, f.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // an author's source
			return nil, err
		}
		if err := os.WriteFile(path, f.content, 0o644); err != nil { //nolint:gosec // likewise
			return nil, err
		}
		names = append(names, f.name)
	}
	return names, nil
}

type file struct {
	name    string
	content []byte
}

// words are what the templates are filled with.
type words struct {
	Name, Path, Program, Group, Label, Annotation, Start string
}

func (m Module) render(start string, of map[string]string, order []string) ([]file, error) {
	w := words{
		Name: m.Name, Path: m.Module, Program: m.Program, Group: strings.ReplaceAll(m.Name, "-", "_"),
		Label:      m.Name + ".example.org/network",
		Annotation: m.Name + ".example.org/network-id", Start: start,
	}
	files := make([]file, 0, len(order))
	for _, name := range order {
		text, err := templates.ReadFile("templates/" + of[name] + ".tmpl")
		if err != nil {
			return nil, err
		}
		parsed, err := template.New(name).Delims("[[", "]]").Option("missingkey=error").Parse(string(text))
		if err != nil {
			return nil, err
		}
		var out bytes.Buffer
		if err := parsed.Execute(&out, w); err != nil {
			return nil, err
		}
		content := out.Bytes()
		if strings.HasSuffix(name, ".go") {
			if content, err = format.Source(content); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		files = append(files, file{name, content})
	}
	return files, nil
}

func (m Module) goFiles() ([]file, error) {
	start := "It is built against Raven " + m.Release + "; `go get github.com/kuryr/raven@latest` takes a newer one."
	if m.Checkout != "" {
		start = "go.mod leads to a checkout of Raven beside it (`replace`), with all that this checkout requires. Once " +
			"there is a release:\n" +
			"`go mod edit -dropreplace github.com/kuryr/raven && go get github.com/kuryr/raven@latest && make tidy`."
	}
	files, err := m.render(start, map[string]string{
		"main.go": "go/main.go", "driver/driver.go": "go/driver.go", "driver/driver_test.go": "go/driver_test.go",
		"Makefile":  "go/Makefile",
		"README.md": "README.md", "example.yaml": "in.yaml", "driver/testdata/plain/in.yaml": "in.yaml",
		"driver/testdata/plain/want.yaml": "go/want-plain.yaml", "driver/testdata/refused/in.yaml": "in.yaml",
		"driver/testdata/refused/config.yaml": "config-refused.yaml",
		"driver/testdata/refused/want.yaml":   "go/want-refused.yaml",
	}, []string{
		"main.go", "driver/driver.go", "driver/driver_test.go", "driver/testdata/plain/in.yaml",
		"driver/testdata/plain/want.yaml",
		"driver/testdata/refused/in.yaml", "driver/testdata/refused/config.yaml", "driver/testdata/refused/want.yaml",
		"example.yaml",
		"Makefile", "README.md",
	})
	if err != nil {
		return nil, err
	}
	mod, sums, err := m.goModule()
	if err != nil {
		return nil, err
	}
	files = append(files, file{"go.mod", mod}, file{".gitignore", []byte("/raven-driver-" + m.Name + "\n")})
	if len(sums) > 0 {
		files = append(files, file{"go.sum", sums})
	}
	return files, nil
}

// goModule makes go.mod and go.sum. With a checkout they hold all that it requires, so that nothing has to be looked
// up to build.
func (m Module) goModule() (mod, sums []byte, err error) {
	if m.Checkout == "" {
		return fmt.Appendf(nil, "module %s\n\ngo 1.26.0\n\nrequire github.com/kuryr/raven %s\n", m.Module, m.Release), nil,
			nil
	}
	required, err := os.ReadFile(filepath.Join(m.Checkout, "go.mod"))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the checkout of Raven: %w", err)
	}
	head, rest, found := strings.Cut(string(required), "\nrequire (")
	if !found || !strings.HasPrefix(head, "module github.com/kuryr/raven\n") {
		return nil, nil, fmt.Errorf("%s is no checkout of Raven: its go.mod does not begin as Raven's does", m.Checkout)
	}
	if sums, err = os.ReadFile(filepath.Join(m.Checkout, "go.sum")); err != nil {
		return nil, nil, fmt.Errorf("reading the checkout of Raven: %w", err)
	}
	version := strings.TrimSpace(strings.TrimPrefix(head, "module github.com/kuryr/raven\n"))
	mod = fmt.Appendf(nil, "module %s\n\n%s\n\nrequire github.com/kuryr/raven v0.0.0\n\n"+
		"// Raven as it stands there; a released version takes its place one day.\nreplace github.com/kuryr/raven => "+
		"%s\n\nrequire (%s",
		m.Module, version, m.Checkout, rest)
	return mod, sums, nil
}

func (m Module) pythonFiles() ([]file, error) {
	start := "`raven_driver` is the SDK for Python, of protocol version 1; it needs grpcio, protobuf and " +
		"cryptography, and its tests PyYAML."
	files, err := m.render(start, map[string]string{
		"__main__.py": "python/__main__.py", "driver.py": "python/driver.py", "test_driver.py": "python/test_driver.py",
		"Makefile": "python/Makefile", "README.md": "README.md", "example.yaml": "in.yaml",
		"testdata/plain/in.yaml":   "in.yaml",
		"testdata/plain/want.json": "python/want-plain.json", "testdata/refused/in.yaml": "in.yaml",
		"testdata/refused/config.yaml": "config-refused.yaml", "testdata/refused/want.json": "python/want-refused.json",
	}, []string{
		"__main__.py", "driver.py", "test_driver.py", "testdata/plain/in.yaml", "testdata/plain/want.json",
		"testdata/refused/in.yaml",
		"testdata/refused/config.yaml", "testdata/refused/want.json", "example.yaml", "Makefile", "README.md",
	})
	if err != nil {
		return nil, err
	}
	files = append(files, file{".gitignore", []byte("/raven-driver-" + m.Name + "\n/build/\n__pycache__/\n")})
	sdk := python.Files()
	err = fs.WalkDir(sdk, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(sdk, path)
		files = append(files, file{path, content})
		return err
	})
	return files, err
}
