// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/daemon"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/reconcile"
)

func newPlanCommand(flags *globalFlags, io streams) *cobra.Command {
	var (
		format string
		files  []string
	)
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Print what Raven would create, change and delete, and why; write nothing",
		Long: `Print what Raven would create, change and delete now, and why. Nothing is written, neither to the cloud
nor to Kubernetes.

With -f neither is asked, and each object of the files is accounted for: it prints what would be made of the
objects in the files, if they were all of a cluster and nothing of it existed in the cloud. What an operator names
there is taken to exist, and shown by its name in place of its id.

Exit statuses: 0 nothing to do, 2 there are changes, 1 an error.`,
		Example: `  raven plan
  raven plan --config-file /etc/kuryr/kuryr.conf -o json
  raven plan --set raven.drivers=namespace     what if only this driver ran?
  raven plan -f manifest.yaml                  with no cluster and no cloud`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			if len(files) > 0 {
				return runPlanOffline(cmd.Context(), flags, io, files, format)
			}
			return runPlan(cmd.Context(), flags, io, format)
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "table", "output `format`: table, json or yaml")
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "manifest `file`, - for standard input, in place of "+
		"cluster and cloud; may be given again")
	return cmd
}

func runPlan(ctx context.Context, flags *globalFlags, io streams, format string) error {
	l, err := flags.loader().Load(ctx)
	if err != nil {
		return err
	}
	warn(io, l.Warnings)
	planned, err := l.Plan(ctx)
	if err != nil {
		return err
	}
	return finishPlan(io, planned, format)
}

// finishPlan prints a plan and makes an exit status of it.
func finishPlan(io streams, p daemon.DryRun, format string) error {
	report := planReport{
		FormatVersion: formatVersion, Cluster: p.Cluster, Project: p.Project, Objects: p.Objects, Held: p.Held,
		Unread: p.Unread, Unchanged: p.Unchanged,
	}
	report.count()
	if format != "table" {
		if err := structured(io.out, format, report.document()); err != nil {
			return err
		}
	} else {
		printPlan(io, report)
	}
	switch {
	case report.Problems > 0:
		return statusError{exitError, fmt.Errorf("%d objects have no whole plan; the reasons are above", report.Problems)}
	case report.Create+report.Change+report.Delete+report.Write > 0:
		return statusError{status: exitChanges}
	default:
		return nil
	}
}

// planReport is what `raven plan` prints; planDocument is its form in JSON.
type planReport struct {
	FormatVersion                           int
	Cluster, Project                        string
	Create, Change, Delete, Write, Problems int // Write: objects whose annotations or labels would be written
	Held                                    []reconcile.Guard
	Objects                                 []reconcile.Planned
	Unread                                  []daemon.Unread
	Unchanged                               []string
}

func (p *planReport) count() {
	for _, o := range p.Objects {
		for _, s := range o.Steps {
			switch s.Op {
			case plan.Create:
				p.Create++
			case plan.Delete, plan.Detach:
				p.Delete++
			case plan.Update, plan.Tag, plan.Attach, plan.Failover:
				p.Change++
			}
		}
		if len(o.Writes) > 0 {
			p.Write++
		}
		if len(o.Problems) > 0 {
			p.Problems++
		}
	}
}

func printPlan(io streams, p planReport) {
	for _, o := range p.Objects {
		fmt.Fprintf(io.out, "%s  %s\n", io.paint(bold, o.Object), io.paint(dim, "driver "+o.Driver))
		for _, s := range o.Steps {
			printStep(io, s)
		}
		if len(o.Writes) > 0 {
			fmt.Fprintf(io.out, "  %s write %s\n", io.paint(yellow, "~"), strings.Join(o.Writes, ", "))
		}
		if o.Held > 0 {
			fmt.Fprintf(io.out, "  %s %d deletions are held back\n", io.paint(yellow, "!"), o.Held)
		}
		for _, problem := range o.Problems {
			fmt.Fprintf(io.out, "  %s %s\n", io.paint(red, "!"), problem)
		}
	}
	for _, object := range p.Unchanged {
		fmt.Fprintf(io.out, "%s  %s\n", io.paint(bold, object), io.paint(dim, "nothing is to be made of it"))
	}
	for _, u := range p.Unread {
		fmt.Fprintf(io.out, "%s  %s %s\n", io.paint(bold, u.Object), io.paint(yellow, "not read:"), u.Reason)
	}
	for _, g := range p.Held {
		fmt.Fprintln(io.out, io.paint(yellow, "held: ")+g.String())
	}
	if p.Create+p.Change+p.Delete+p.Write == 0 && p.Problems == 0 && len(p.Held) == 0 &&
		len(p.Unread)+len(p.Unchanged) == 0 {
		fmt.Fprintln(io.out, "Nothing to do: the cloud is as the cluster wants it.")
		return
	}
	fmt.Fprintf(io.out, "\n%d to create, %d to change, %d to delete, %d objects to annotate.\n", p.Create, p.Change,
		p.Delete, p.Write)
}

func printStep(io streams, s plan.Step) {
	mark := map[plan.Op]string{
		plan.Create: io.paint(green, "+"), plan.Delete: io.paint(red, "-"), plan.Detach: io.paint(red, "-"),
		plan.Update: io.paint(yellow, "~"), plan.Tag: io.paint(yellow, "~"), plan.Attach: io.paint(yellow, "~"),
		plan.Failover: io.paint(yellow, "~"),
	}[s.Op]
	fmt.Fprintf(io.out, "  %s %s %s %s%s\n", mark, s.Op, s.Kind, nameOf(s), io.paint(dim, "  "+s.Reason))
	for _, key := range sortedKeys(s.Attrs) {
		if key == "name" && s.Op == plan.Create {
			continue
		}
		if old, ok := s.Old[key]; ok {
			fmt.Fprintf(io.out, "      %s: %s -> %s\n", key, show(old), show(s.Attrs[key]))
		} else {
			fmt.Fprintf(io.out, "      %s: %s\n", key, show(s.Attrs[key]))
		}
	}
	shown := show(s.Attrs)
	for _, w := range s.Waits {
		if w.Ref != nil && strings.Contains(shown, show(*w.Ref)) {
			continue // the attribute says so
		}
		fmt.Fprintf(io.out, "      %s\n", io.paint(dim, "after: "+w.Message))
	}
}

func nameOf(s plan.Step) string {
	if s.Part != nil {
		return fmt.Sprintf("%s (%s): %s", s.Identity.Name, s.ID, s.Part)
	}
	if name, ok := s.Attrs["name"].(string); ok && name != "" {
		return fmt.Sprintf("%q", name)
	}
	if s.ID != "" {
		return fmt.Sprintf("%s (%s)", s.Identity.Name, s.ID)
	}
	return s.Identity.Name
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// show renders a value for people; what is known only after a create is said so.
func show(v any) string {
	switch v := v.(type) {
	case drivers.Ref:
		return "(the " + v.String() + ", known after it is made)"
	case string:
		return fmt.Sprintf("%q", v)
	case []any:
		parts := make([]string, len(v))
		for i, item := range v {
			parts[i] = show(item)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		var parts []string
		for _, key := range sortedKeys(v) {
			parts = append(parts, key+": "+show(v[key]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	default:
		text, err := json.Marshal(v)
		if err != nil {
			return fmt.Sprint(v)
		}
		return string(text)
	}
}

// runPlanOffline prints what would be made of the objects in files if they were all of a cluster, in a cloud where
// nothing of it exists.
func runPlanOffline(ctx context.Context, flags *globalFlags, io streams, files []string, format string) error {
	objects, err := readManifests(io.in, files)
	if err != nil {
		return err
	}
	l, err := flags.loader().Load(ctx)
	if err != nil {
		return err
	}
	warn(io, l.Warnings)
	for _, missing := range missingNamespaces(objects) {
		fmt.Fprintln(io.err, "warning: "+missing)
	}
	planned, err := l.PlanOffline(ctx, objects)
	if err != nil {
		return err
	}
	return finishPlan(io, planned, format)
}

// missingNamespaces says which namespaces of the objects are not among them: what drivers make of a namespace is then
// unknown to whatever refers to it.
func missingNamespaces(objects []*unstructured.Unstructured) []string {
	there, first := map[string]bool{}, map[string]*unstructured.Unstructured{}
	for _, o := range objects {
		if o.GetKind() == "Namespace" && o.GroupVersionKind().Group == "" {
			there[o.GetName()] = true
		} else if name := o.GetNamespace(); name != "" && first[name] == nil {
			first[name] = o
		}
	}
	var texts []string
	for _, name := range sortedKeys(first) {
		if !there[name] {
			texts = append(texts, fmt.Sprintf("the files have no Namespace %s, which %s %s/%s is in: add it, or what refers to "+
				"its network waits", name, first[name].GetKind(), name, first[name].GetName()))
		}
	}
	return texts
}
