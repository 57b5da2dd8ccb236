// SPDX-License-Identifier: Apache-2.0

// Command deb makes a Debian package from the description in an nfpm.yaml, whose variables are those of the
// environment. It is nfpm without the formats that Raven does not need:
//
//	deb NFPM.YAML TARGET-FOLDER
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers itself
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: deb NFPM.YAML TARGET-FOLDER")
		os.Exit(2)
	}
	path, err := build(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "deb:", err)
		os.Exit(1)
	}
	fmt.Println(path)
}

func build(description, folder string) (string, error) {
	text, err := os.ReadFile(description)
	if err != nil {
		return "", err
	}
	// nfpm itself replaces variables in some fields only.
	config, err := nfpm.Parse(strings.NewReader(os.ExpandEnv(string(text))))
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", description, err)
	}
	info, err := config.Get("deb")
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", description, err)
	}
	info = nfpm.WithDefaults(info)
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
		return "", fmt.Errorf("collecting the files: %w", err)
	}
	packager, err := nfpm.Get("deb")
	if err != nil {
		return "", err
	}
	path := filepath.Join(folder, packager.ConventionalFileName(info))
	file, err := os.Create(path)
	if err != nil {
		return "", err
	}
	info.Target = path
	if err := packager.Package(info, file); err != nil {
		_ = file.Close()
		_ = os.Remove(path)
		return "", fmt.Errorf("writing %s: %w", path, err)
	}
	return path, file.Close()
}
