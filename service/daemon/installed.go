// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kuryr/raven/service/config"
)

// InstalledOptions are the options of the core and of every driver beside the raven program, and, where configured says
// so, of the drivers that the configuration enables.
func (l Loader) InstalledOptions(ctx context.Context, configured bool) ([]config.Option, error) {
	names, err := installed()
	if err != nil {
		return nil, err
	}
	sources := config.Sources{}
	if configured {
		if sources, err = l.Sources(); err != nil {
			return nil, err
		}
		core, err := l.LoadCore()
		if err != nil {
			return nil, err
		}
		for _, name := range core.List(OptionGroup, "drivers") {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	sources.Strict = false
	options := append(Options(), authorityOptions(names)...)
	values, _, err := config.Load(known(sources, options), options)
	if err != nil {
		return nil, err
	}
	programs, err := l.inspect(ctx, names, values)
	if err != nil {
		return nil, err
	}
	for _, p := range programs {
		for _, o := range p.Info.Options {
			options = append(options, driverOption(p.Name, o))
		}
	}
	return options, nil
}

// ProgramPrefix is what the name of a driver's program begins with.
const ProgramPrefix = "raven-driver-"

// installed lists the drivers beside the raven program.
func installed() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the drivers beside the raven program: %w", err)
	}
	paths, err := filepath.Glob(filepath.Join(filepath.Dir(self), ProgramPrefix+"*"))
	if err != nil {
		return nil, fmt.Errorf("finding the drivers beside the raven program: %w", err)
	}
	names := make([]string, 0, len(paths))
	for _, path := range paths {
		names = append(names, strings.TrimPrefix(filepath.Base(path), ProgramPrefix))
	}
	slices.Sort(names)
	if len(names) == 0 {
		return nil, fmt.Errorf("there are no programs %s* in %s", ProgramPrefix, filepath.Dir(self))
	}
	return names, nil
}
