// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/plugins/wire"
	"github.com/kuryr/raven/service/daemon"
	"github.com/kuryr/raven/service/host"
)

func newDriverInfoCommand(flags *globalFlags, io streams) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "info NAME",
		Short: "Show one driver: versions, digest, options, watches, the rights it needs, and what confines it here",
		Long: `Show one driver, enabled or not, as this configuration would run it: its program and the digest to pin it
by, its options, what it watches and writes, the rights in the cluster that this takes, and what confines it on this
machine.`,
		Example: "  raven driver info pod\n  raven driver info pod -o json | jq -r .sha256",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(checkFormat(format), daemon.CheckName(args[0])); err != nil {
				return statusError{exitUsage, err}
			}
			return runDriverInfo(cmd.Context(), flags, io, args[0], format)
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "table", "output `format`: table, json or yaml")
	return cmd
}

// driverInfo is what `raven driver info` prints.
type driverInfo struct {
	Name        string         `json:"name"`
	Version     string         `json:"version"`
	Protocol    int            `json:"protocol"`
	Description string         `json:"description"`
	Role        string         `json:"role,omitempty"`
	Path        string         `json:"path"`
	Args        []string       `json:"args,omitempty"`
	SHA256      string         `json:"sha256"`
	Pinned      bool           `json:"pinned"`
	Kinds       []drivers.Kind `json:"kinds"`
	Annotations []string       `json:"annotations,omitempty"`
	Labels      []string       `json:"labels,omitempty"`
	Status      []string       `json:"status,omitempty"`
	// Contributes is what it may add to resources of other drivers, "*" where nothing bounds that.
	Contributes []string `json:"contributes"`
	// Capabilities are abilities that the driver names beyond the contract's version.
	Capabilities []string            `json:"capabilities,omitempty"`
	Options      []optionInfo        `json:"options"`
	Watches      []watchInfo         `json:"watches"`
	Rules        []rbacv1.PolicyRule `json:"rules"` // of namespaces that its watches are limited to, too
	Sandbox      []host.Measure      `json:"sandbox"`
}

type optionInfo struct {
	Group    string   `json:"group"`
	Name     string   `json:"name"`
	Type     string   `json:"type"`
	Default  string   `json:"default,omitempty"`
	Required bool     `json:"required,omitempty"`
	Secret   bool     `json:"secret,omitempty"`
	Choices  []string `json:"choices,omitempty"`
	Help     string   `json:"help"`
}

type watchInfo struct {
	Name          string   `json:"name"`
	Resource      string   `json:"resource"`
	Version       string   `json:"version"`
	Namespace     string   `json:"namespace,omitempty"`
	LabelSelector string   `json:"labelSelector,omitempty"`
	FieldSelector string   `json:"fieldSelector,omitempty"`
	Fields        []string `json:"fields,omitempty"`
	Source        bool     `json:"source"`
}

func runDriverInfo(ctx context.Context, flags *globalFlags, io streams, name, format string) error {
	alone := *flags
	// whether it is enabled or not
	alone.set = append(append([]string{}, flags.set...), daemon.OptionGroup+".drivers="+name)
	l, err := alone.loader().Load(ctx)
	if err != nil {
		return err
	}
	p := l.Programs[0]
	watches, err := l.Watches(ctx, p)
	if err != nil {
		return err
	}
	digest, err := host.Digest(p.Path)
	if err != nil {
		return fmt.Errorf("driver(%s): %w", name, err)
	}
	info := describe(p, watches, digest)
	if format != "table" {
		return structured(io.out, format, info)
	}
	return info.print(io.out)
}

func describe(p daemon.Program, watches []drivers.Watch, digest string) driverInfo {
	info := driverInfo{
		Name: p.Name, Version: p.Info.Version, Protocol: wire.ProtocolVersion, Description: p.Info.Description,
		Role: p.Info.Role,
		Path: p.Path, Args: p.Args, SHA256: digest, Pinned: p.Authority.SHA256 != "", Kinds: p.Info.Kinds,
		Annotations: p.Info.Annotations, Labels: p.Info.Labels, Status: p.Info.Status, Capabilities: p.Info.Capabilities,
		Sandbox: p.Sandbox.Measures(),
		Options: []optionInfo{}, Watches: []watchInfo{}, Rules: []rbacv1.PolicyRule{},
	}
	if attributes, all := p.Authority.Contributes(p.Name); all {
		info.Contributes = []string{"*"}
	} else {
		info.Contributes = append([]string{}, attributes...)
	}
	for _, o := range p.Info.Options {
		shown := optionInfo{
			Group: o.Group, Name: o.Name, Type: string(o.Type), Required: o.Required, Secret: o.Secret, Choices: o.Choices,
			Help: o.Help,
		}
		if o.HasDefault && !o.Secret {
			shown.Default = o.Default
		}
		info.Options = append(info.Options, shown)
	}
	n := rights{}
	n.driver(p.Info, watches)
	for _, w := range watches {
		info.Watches = append(info.Watches, watchInfo{
			Name: w.Name, Resource: daemon.ResourceName(w.GVR), Version: w.GVR.Version, Namespace: w.Namespace,
			LabelSelector: w.LabelSelector,
			FieldSelector: w.FieldSelector, Fields: w.Fields, Source: w.Source,
		})
	}
	for _, namespace := range slices.Sorted(maps.Keys(n)) {
		info.Rules = append(info.Rules, n.rules(namespace)...)
	}
	return info
}

func (i driverInfo) print(out io.Writer) error {
	if err := table(out, []string{"WHAT", ""}, i.overview()); err != nil {
		return err
	}
	fmt.Fprintln(out)
	header := []string{"WATCHES", "VERSION", "FOR", "NAMESPACE", "LABELS", "FIELDS", "READS"}
	if err := table(out, header, i.watchRows()); err != nil {
		return err
	}
	var rows [][]string
	for _, r := range i.Rules {
		rows = append(rows, []string{
			strings.Join(r.Resources, ","), strings.Join(r.APIGroups, ","),
			strings.Join(r.Verbs, ","),
		})
	}
	fmt.Fprintln(out)
	if err := table(out, []string{"RIGHTS ON", "GROUP", "VERBS"}, rows); err != nil || len(i.Options) == 0 {
		return err
	}
	rows = nil
	for _, o := range i.Options {
		rows = append(rows, []string{"[" + o.Group + "] " + o.Name, o.Type, o.Default, o.Help})
	}
	fmt.Fprintln(out)
	return table(out, []string{"OPTION", "TYPE", "DEFAULT", "HELP"}, rows)
}

// overview is what the driver is and may do, and what confines it.
func (i driverInfo) overview() [][]string {
	program := strings.Join(append([]string{i.Path}, i.Args...), " ")
	pinned := ", not pinned: [" + daemon.DriverGroup(i.Name) + "] sha256"
	if i.Pinned {
		pinned = ", pinned"
	}
	rows := [][]string{
		{"driver", i.Name + " " + i.Version + ": " + i.Description},
		{"program", program},
		{"sha256", i.SHA256 + pinned},
		{"protocol", fmt.Sprint(i.Protocol)},
		{"makes", joined(i.Kinds)},
	}
	if i.Role != "" {
		rows = append(rows, []string{"role", i.Role})
	}
	for _, written := range []struct {
		what string
		keys []string
	}{
		{"annotates", i.Annotations},
		{"labels", i.Labels},
		{"status", i.Status},
		{"can, unknown to this Raven and ignored", i.Capabilities},
	} {
		if len(written.keys) > 0 {
			rows = append(rows, []string{written.what, strings.Join(written.keys, ", ")})
		}
	}
	may := "nothing: [" + daemon.DriverGroup(i.Name) + "] allow_contributions"
	if len(i.Contributes) > 0 {
		may = strings.Join(i.Contributes, ", ")
	}
	rows = append(rows, []string{"may add to what others make", may})
	for _, m := range i.Sandbox {
		state := "no"
		if m.Active {
			state = "yes"
		}
		rows = append(rows, []string{"sandbox: " + m.Name, state + ", " + m.Detail})
	}
	return rows
}

func (i driverInfo) watchRows() [][]string {
	rows := make([][]string, 0, len(i.Watches))
	for _, w := range i.Watches {
		why := "needs"
		if w.Source {
			why = "source"
		}
		rows = append(rows, []string{
			w.Resource, w.Version, why, w.Namespace, w.LabelSelector, w.FieldSelector,
			strings.Join(w.Fields, ","),
		})
	}
	return rows
}

func joined[T ~string](list []T) string {
	words := make([]string, len(list))
	for i, word := range list {
		words[i] = string(word)
	}
	return strings.Join(words, ", ")
}
