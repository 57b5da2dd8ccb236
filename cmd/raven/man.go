// SPDX-License-Identifier: Apache-2.0

//go:build man

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// addManual adds the command that writes manual pages and completions.
func addManual(root *cobra.Command) {
	root.AddCommand(&cobra.Command{
		Use:    "man FOLDER",
		Short:  "Write the manual pages and the completions of shells into a folder",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return writeManuals(root, args[0])
		},
	})
}

// writeManuals writes what a package installs below /usr/share. SOURCE_DATE_EPOCH is the date of the pages.
func writeManuals(root *cobra.Command, folder string) error {
	root.InitDefaultCompletionCmd()
	root.DisableAutoGenTag = true
	pages := filepath.Join(folder, "man", "man1")
	if err := os.MkdirAll(pages, 0o755); err != nil { //nolint:gosec // everyone reads manuals
		return err
	}
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Raven", Manual: "Raven"}, pages); err != nil {
		return fmt.Errorf("writing the manual pages: %w", err)
	}
	for path, write := range map[string]func(string) error{
		"bash-completion/completions/raven":    func(path string) error { return root.GenBashCompletionFileV2(path, true) },
		"zsh/vendor-completions/_raven":        root.GenZshCompletionFile,
		"fish/vendor_completions.d/raven.fish": func(path string) error { return root.GenFishCompletionFile(path, true) },
	} {
		path = filepath.Join(folder, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // everyone reads completions
			return err
		}
		if err := write(path); err != nil {
			return fmt.Errorf("writing %s: %w", path, err)
		}
	}
	return nil
}
