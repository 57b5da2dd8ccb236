// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Sources are the places that values come from. A stronger place hides a weaker one: Args > Environ > Dirs > Files >
// defaults.
type Sources struct {
	// Args are values from the command line. Several values matter for Multi options only; otherwise the last wins.
	Args map[Name][]string
	// Environ holds NAME=value as os.Environ returns it; nil is none.
	Environ []string
	// Dirs are folders whose *.conf are read in sorted order, after Files. Files are read in order; the later wins. Each
	// that is named here must exist.
	Dirs  []string
	Files []string
	// Strict makes unknown options and groups errors instead of warnings.
	Strict bool
}

// WithDefaults fills in the default files and folders where none are named: the first kuryr.conf and then the first
// raven.conf found in home/.kuryr, home, etc/kuryr and etc, and likewise the folders kuryr.conf.d and raven.conf.d.
// An empty home is skipped.
func (s Sources) WithDefaults(home, etc string) Sources {
	var dirs []string
	if home != "" {
		dirs = append(dirs, filepath.Join(home, ".kuryr"), home)
	}
	dirs = append(dirs, filepath.Join(etc, "kuryr"), etc)
	if len(s.Files) == 0 {
		s.Files = firstOf(dirs, false, "kuryr.conf", "raven.conf")
	}
	if len(s.Dirs) == 0 {
		s.Dirs = firstOf(dirs, true, "kuryr.conf.d", "raven.conf.d")
	}
	return s
}

func firstOf(dirs []string, wantDir bool, names ...string) []string {
	var found []string
	for _, name := range names {
		for _, dir := range dirs {
			path := filepath.Join(dir, name)
			if info, err := os.Stat(path); err == nil && info.IsDir() == wantDir {
				found = append(found, path)
				break
			}
		}
	}
	return found
}

// written is one value as it stands in a source, before substitution.
type written struct {
	name   Name // canonical group
	text   string
	origin Origin
}

// readFiles returns what stands in each file, weakest file first. All errors are returned, joined.
func (s Sources) readFiles() ([][]written, error) {
	paths := slices.Clone(s.Files)
	var errs []error
	for _, dir := range s.Dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			errs = append(errs, &Error{File: dir, Message: "reading the configuration folder: " + cause(err)})
		}
		for _, entry := range entries { // ReadDir sorts
			if strings.HasSuffix(entry.Name(), ".conf") && !entry.IsDir() {
				paths = append(paths, filepath.Join(dir, entry.Name()))
			}
		}
	}
	files := make([][]written, 0, len(paths))
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			errs = append(errs, &Error{File: path, Message: "reading the configuration file: " + cause(err)})
			continue
		}
		values, err := parseFile(path, data)
		if err != nil {
			errs = append(errs, err)
		}
		files = append(files, values)
	}
	return files, errors.Join(errs...)
}

// cause drops the path from a file error, since Error names it already.
func cause(err error) string {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err.Error()
	}
	return err.Error()
}

// environment looks values up by variable name.
func (s Sources) environment() map[string]string {
	env := map[string]string{}
	for _, assignment := range s.Environ {
		if name, text, ok := strings.Cut(assignment, "="); ok {
			env[name] = text
		}
	}
	return env
}

// EnvName returns the environment variable of an option: OS_<GROUP>__<OPTION> in upper case.
func EnvName(group, name string) string {
	return "OS_" + strings.ToUpper(canonicalGroup(group)) + "__" + strings.ToUpper(name)
}
