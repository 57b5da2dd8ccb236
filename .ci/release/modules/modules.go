// SPDX-License-Identifier: Apache-2.0

// Package modules says which modules programs are made of, from the programs themselves, and under which licenses these
// modules are, from the module cache. It must never ask a network.
package modules

import (
	"cmp"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/licensecheck"
	"golang.org/x/mod/module"
)

// Module is a module that a program is made of.
type Module struct {
	Path, Version string
	Sum           string // as in go.sum
}

// Of returns the modules of programs but their own, in order, and the version of Go that they were built with.
func Of(programs []string) (modules []Module, golang string, err error) {
	seen := map[Module]bool{}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return nil, "", fmt.Errorf("reading what %s is made of: %w", program, err)
		}
		if golang != "" && golang != info.GoVersion {
			return nil, "", fmt.Errorf("%s is built with %s, another one with %s", program, info.GoVersion, golang)
		}
		golang = info.GoVersion
		if len(info.Deps) == 0 {
			return nil, "", fmt.Errorf("%s does not say what it is made of: build it with go build", program)
		}
		for _, dependency := range info.Deps {
			if dependency.Replace != nil {
				dependency = dependency.Replace
			}
			seen[Module{dependency.Path, dependency.Version, dependency.Sum}] = true
		}
	}
	for m := range seen {
		modules = append(modules, m)
	}
	slices.SortFunc(modules, func(a, b Module) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Version, b.Version))
	})
	return modules, golang, nil
}

// least is how much of a file must be known text of a license, in percent: the rest is names and years.
const least = 80

// Licenses returns the SPDX identifiers of a module's licenses, as the files say that lie in its folder of the cache.
func (m Module) Licenses(cache string) ([]string, error) {
	path, err := module.EscapePath(m.Path)
	if err != nil {
		return nil, err
	}
	version, err := module.EscapeVersion(m.Version)
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(cache, path+"@"+version)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("reading the folder of %s: %w; run go mod download", m.Path, err)
	}
	var licenses []string
	for _, entry := range entries {
		name := strings.ToUpper(entry.Name())
		if entry.IsDir() || !strings.HasPrefix(name, "LICENSE") && !strings.HasPrefix(name, "LICENCE") &&
			!strings.HasPrefix(name, "COPYING") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return nil, err
		}
		found := licensecheck.Scan(text)
		if found.Percent < least {
			return nil, fmt.Errorf("%s: %.0f%% of %s is text of a known license: read it", m.Path, found.Percent, entry.Name())
		}
		for _, match := range found.Match {
			licenses = append(licenses, match.ID)
		}
	}
	if len(licenses) == 0 {
		return nil, fmt.Errorf("%s: there is no file with a license in %s", m.Path, folder)
	}
	slices.Sort(licenses)
	return slices.Compact(licenses), nil
}
