// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/daemon"
)

// globalFlags are the flags that every command takes.
type globalFlags struct {
	files, dirs []string
	set         []string
	strict      bool
}

func (g *globalFlags) register(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringArrayVar(&g.files, "config-file", nil, "configuration `file`; may be given again, the later one wins "+
		"(default: kuryr.conf in ~/.kuryr, ~, /etc/kuryr, /etc)")
	f.StringArrayVar(&g.dirs, "config-dir", nil, "`folder` whose *.conf are read after the files; may be given again")
	f.StringArrayVar(&g.set, "set", nil, "an option as `GROUP.NAME=VALUE`, stronger than any file; may be given again")
	f.BoolVar(&g.strict, "strict", false, "take unknown options and groups as errors")
}

func splitSet(text string) (group, name, value string, err error) {
	key, value, ok := strings.Cut(text, "=")
	group, name, dotted := strings.Cut(key, ".")
	if !ok || !dotted || group == "" || name == "" {
		return "", "", "", statusError{exitUsage, fmt.Errorf("--set %q: it must be GROUP.NAME=VALUE, for example "+
			"raven.drivers=namespace,pod", text)}
	}
	return group, name, value, nil
}

// sources returns where the configuration comes from.
func (g *globalFlags) sources() (config.Sources, error) {
	s := config.Sources{
		Environ: os.Environ(), Files: g.files, Dirs: g.dirs, Strict: g.strict,
		Args: map[config.Name][]string{},
	}
	for _, text := range g.set {
		group, name, value, err := splitSet(text)
		if err != nil {
			return s, err
		}
		key := config.Name{Group: group, Name: name}
		s.Args[key] = append(s.Args[key], value)
	}
	home, _ := os.UserHomeDir()
	s = s.WithDefaults(home, "/etc")
	if dir := os.Getenv("CREDENTIALS_DIRECTORY"); dir != "" {
		s.Dirs = append(s.Dirs, dir) // what systemd hands over: *.conf there win over all other files
	}
	return s, nil
}

// loader reads the configuration that the flags name.
func (g *globalFlags) loader() daemon.Loader {
	return daemon.Loader{Sources: g.sources, Version: version}
}

// given says whether the command line names a configuration.
func (g *globalFlags) given() bool { return len(g.files)+len(g.dirs)+len(g.set) > 0 }
