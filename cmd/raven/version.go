// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/kuryr/raven/plugins/wire"
)

// versionDocument is `raven version -o json`.
type versionDocument struct {
	FormatVersion  int    `json:"formatVersion"`
	Version        string `json:"version"`
	DriverProtocol int    `json:"driverProtocol"` // the version of the contract with drivers
	Go             string `json:"go"`
	Platform       string `json:"platform"`
}

func newVersionCommand(io streams) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program and of its contract with drivers",
		Example: "  raven version\n  raven version -o json | jq -r .version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			v := versionDocument{
				FormatVersion: formatVersion, Version: version, DriverProtocol: wire.ProtocolVersion, Go: runtime.Version(),
				Platform: runtime.GOOS + "/" + runtime.GOARCH,
			}
			if format != "table" {
				return structured(io.out, format, v)
			}
			fmt.Fprintf(io.out, "raven %s\ndriver protocol %d\n%s %s\n", v.Version, v.DriverProtocol, v.Go, v.Platform)
			return nil
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "table", "output `format`: table, json or yaml")
	return cmd
}
