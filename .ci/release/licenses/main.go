// SPDX-License-Identifier: Apache-2.0

// Command licenses lists the modules that programs are made of with their licenses, and fails when one is not allowed
// or not known:
//
//	licenses MODULE-CACHE PROGRAM...
package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/kuryr/raven/ci/release/modules"
)

// allowed are licenses whose code may be in a program under Apache-2.0 that is given away as it is, unchanged.
func allowed() []string {
	return []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "Zlib"}
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: licenses MODULE-CACHE PROGRAM...")
		os.Exit(2)
	}
	if err := list(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

func list(cache string, programs []string) error {
	all, golang, err := modules.Of(programs)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "stdlib\t%s\tBSD-3-Clause\n", golang)
	var faults []error
	for _, m := range all {
		licenses, err := m.Licenses(cache)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", m.Path, m.Version, strings.Join(licenses, " AND "))
		for _, license := range licenses {
			if !slices.Contains(allowed(), license) {
				faults = append(faults, fmt.Errorf("%s: %s is not among %s", m.Path, license, strings.Join(allowed(), ", ")))
			}
		}
	}
	return errors.Join(table.Flush(), errors.Join(faults...))
}
