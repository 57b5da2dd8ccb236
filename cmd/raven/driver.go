// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
)

func newDriverCommand(flags *globalFlags, io streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "driver",
		Short: "Look at the drivers",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var format string
	list := &cobra.Command{
		Use:     "list",
		Short:   "List the enabled drivers: where they are, and what they say of themselves",
		Example: "  raven driver list\n  raven driver list -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			return runDriverList(cmd.Context(), flags, io, format)
		},
	}
	list.Flags().StringVarP(&format, "output", "o", "table", "output `format`: table, json or yaml")
	cmd.AddCommand(list, newDriverRBACCommand(flags, io))
	cmd.AddCommand(newDriverCheckCommand(flags, io), newDriverNewCommand(flags, io))
	cmd.AddCommand(newDriverInfoCommand(flags, io), newDriverRestartCommand(flags, io))
	return cmd
}

type driverRow struct {
	Name        string   `json:"name"`
	Version     string   `json:"version"`
	Path        string   `json:"path"`
	Description string   `json:"description"`
	Kinds       []string `json:"kinds"`
}

func runDriverList(ctx context.Context, flags *globalFlags, io streams, format string) error {
	programs, err := flags.loader().Enabled(ctx)
	if err != nil {
		return err
	}
	rows := make([]driverRow, 0, len(programs))
	for _, p := range programs {
		row := driverRow{Name: p.Name, Version: p.Info.Version, Path: p.Path, Description: p.Info.Description}
		for _, kind := range p.Info.Kinds {
			row.Kinds = append(row.Kinds, string(kind))
		}
		rows = append(rows, row)
	}
	if format != "table" {
		return structured(io.out, format, rows)
	}
	text := make([][]string, 0, len(rows))
	for _, r := range rows {
		text = append(text, []string{r.Name, r.Version, strings.Join(r.Kinds, ","), r.Path, r.Description})
	}
	return table(io.out, []string{"DRIVER", "VERSION", "KINDS", "PROGRAM", "WHAT IT DOES"}, text)
}
