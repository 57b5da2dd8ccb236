// SPDX-License-Identifier: Apache-2.0

//go:build !man

package main

import "github.com/spf13/cobra"

// addManual adds nothing: only a raven that is built with the tag man, for the build of packages, writes manual pages
// and completions, so that programs do not contain what makes them.
func addManual(*cobra.Command) {}
