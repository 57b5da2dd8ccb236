// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const executablePrefix = "raven-driver-"

// driverName is what a driver may be called.
var driverName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)

// ErrNotFound says that there is no executable for a driver.
var ErrNotFound = errors.New("not found")

// Discover returns the executable of a driver: raven-driver-<name> in pluginDir, else in the folder of Raven's own
// executable. pluginDir may be empty. The error names the folders that it searched and is ErrNotFound where there was
// nothing.
func Discover(name, pluginDir string) (string, error) {
	folders := []string{pluginDir}
	if own, err := os.Executable(); err == nil {
		folders = append(folders, filepath.Dir(own))
	}
	return discover(name, folders)
}

func discover(name string, folders []string) (string, error) {
	if !driverName.MatchString(name) {
		return "", fmt.Errorf("driver(%s): a driver's name has lower case letters, digits and dashes, 40 at most", name)
	}
	var searched []string
	for _, folder := range folders {
		if folder == "" {
			continue
		}
		path, err := filepath.Abs(filepath.Join(folder, executablePrefix+name))
		if err != nil {
			return "", fmt.Errorf("driver(%s): %w", name, err)
		}
		_, err = os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			searched = append(searched, filepath.Dir(path))
			continue
		}
		if err == nil {
			err = checkExecutable(path)
		}
		if err != nil {
			return "", fmt.Errorf("driver(%s): %w", name, err)
		}
		return path, nil
	}
	there := ""
	if names := installed(searched); len(names) > 0 {
		there = ", where the drivers " + strings.Join(names, ", ") + " are"
	}
	return "", fmt.Errorf("driver(%s): %w: no %s in %s%s; see [raven] plugin_dir", name, ErrNotFound,
		executablePrefix+name, strings.Join(searched, " or "), there)
}

// installed are the names of the drivers in folders.
func installed(folders []string) []string {
	var names []string
	for _, folder := range folders {
		paths, _ := filepath.Glob(filepath.Join(folder, executablePrefix+"*")) // the worst is that it names none
		for _, path := range paths {
			name := strings.TrimPrefix(filepath.Base(path), executablePrefix)
			if driverName.MatchString(name) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

func checkExecutable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s", ErrNotFound, path)
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a folder, not an executable", path)
	}
	if err := unix.Access(path, unix.X_OK); err != nil {
		return fmt.Errorf("%s is not executable (its mode is %s)", path, info.Mode().Perm())
	}
	return nil
}
