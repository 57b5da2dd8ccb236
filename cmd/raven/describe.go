// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kuryr/raven/service/daemon"
	"github.com/kuryr/raven/service/reconcile"
)

func newDescribeCommand(flags *globalFlags, io streams) *cobra.Command {
	var format, address, namespace string
	cmd := &cobra.Command{
		Use:   "describe KIND/NAME",
		Short: "Ask a running daemon for all that it knows of one object: resources, needs, reconciles, Events",
		Long: `Ask a running daemon, over its status endpoint on this machine, for all that it knows of one object: what it
waits for and since when, its resources with ids, addresses and status in the cloud, what it carries in Kubernetes,
the objects that it needs, the last reconciles with the time of each phase, and the last Events. KIND is written as
for kubectl: Pod, pods or po. Reconciles and Events are those that the daemon remembers since it leads.

Exit statuses: 0 the object is described, 1 the daemon does not know it or did not answer.`,
		Example: `  raven describe pod/web-0 -n shop
  raven describe service/web -n shop -o json | jq '.objects[].reconciles'`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, name, ok := strings.Cut(strings.Join(args, "/"), "/")
			if !ok || kind == "" || name == "" || strings.Contains(name, "/") {
				return statusError{exitUsage, fmt.Errorf("%q: it must be KIND/NAME, for example pod/web-0",
					strings.Join(args, " "))}
			}
			if err := checkFormat(format); err != nil {
				return err
			}
			if address == "" {
				var err error
				if address, err = flags.statusAddress(); err != nil {
					return err
				}
			}
			return runDescribe(cmd.Context(), io, address, kind, namespace, name, format)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&format, "output", "o", "table", "output `format`: table, json or yaml")
	f.StringVar(&address, "address", "", "`host:port` of the daemon's health server (default: from the configuration)")
	f.StringVarP(&namespace, "namespace", "n", "", "`namespace` of the object (default: objects of that name in all)")
	return cmd
}

func runDescribe(ctx context.Context, out streams, address, kind, namespace, name, format string) error {
	query := url.Values{daemon.DescribeQuery: {"true"}, "name": {name}}
	if namespace != "" {
		query.Set("namespace", namespace)
	}
	var report daemon.Descriptions
	if err := askDaemon(ctx, address, query, &report); err != nil {
		return err
	}
	report.Objects = slices.DeleteFunc(report.Objects, func(d reconcile.Description) bool { return !isKind(kind, d.Kind) })
	switch {
	case len(report.Objects) > 0:
	case report.WaitsFor != "":
		return fmt.Errorf("the daemon knows no objects yet: its start waits for %s", report.WaitsFor)
	case report.Leader != nil && !report.Leader.Leading:
		return errors.New(report.Leader.String())
	default:
		return notKnown(ctx, address, kind, namespace, name)
	}
	if format != "table" {
		return structured(out.out, format, report)
	}
	for i, d := range report.Objects {
		if i > 0 {
			fmt.Fprintln(out.out)
		}
		if err := printDescription(out, d); err != nil {
			return err
		}
	}
	return nil
}

// notKnown is the error of an object that the daemon does not know. Where it has none of that kind, it says so: no
// enabled driver may read them.
func notKnown(ctx context.Context, address, kind, namespace, name string) error {
	where := ""
	if namespace != "" {
		where = " in namespace " + namespace
	}
	report, err := askStatus(ctx, address, nil)
	if err != nil {
		return err
	}
	kinds := map[string]bool{}
	for _, o := range report.Objects {
		kinds[o.Kind] = true
	}
	for known := range kinds {
		if isKind(kind, known) {
			return fmt.Errorf("the daemon knows no %s %s%s; raven status shows all that it knows", kind, name, where)
		}
	}
	enabled := make([]string, len(report.Drivers))
	for i, d := range report.Drivers {
		enabled[i] = d.Name
	}
	if len(kinds) == 0 {
		return fmt.Errorf("the daemon knows no %s: no enabled driver (%s) has any object yet", kind,
			strings.Join(enabled, ", "))
	}
	return fmt.Errorf("the daemon knows no %s at all: no enabled driver (%s) has one; they have objects of the kinds %s",
		kind, strings.Join(enabled, ", "), strings.Join(sortedKeys(kinds), ", "))
}

// isKind says whether a word of the command line means a kind, as kubectl has it.
func isKind(word, kind string) bool {
	short := map[string]string{"po": "pod", "svc": "service", "ns": "namespace", "no": "node"}
	word, kind = strings.ToLower(word), strings.ToLower(kind)
	if long, ok := short[word]; ok {
		word = long
	}
	return word == kind || word == kind+"s" || word == kind+"es"
}

// triesText says when the next try is, and how many have failed before it.
func triesText(wait time.Duration, failed int) string {
	text := max(wait, 0).Truncate(time.Second).String()
	switch failed {
	case 0:
		return text
	case 1:
		return text + ", after 1 failed try"
	default:
		return fmt.Sprintf("%s, after %d failed tries", text, failed)
	}
}

// printDescription prints one object for people.
func printDescription(out streams, d reconcile.Description) error {
	name := d.Name
	if d.Namespace != "" {
		name = d.Namespace + "/" + d.Name
	}
	fmt.Fprintf(out.out, "%s  %s\n", out.paint(bold, d.Kind+" "+name), out.paint(dim, "driver "+d.Driver+", UID "+d.UID))
	fmt.Fprintf(out.out, "State:  %s since %s (%s ago)\n", out.paint(stateColour(string(d.State)), string(d.State)),
		d.Since.UTC().Format(time.RFC3339), age(d.Since))
	if d.Page != "" {
		fmt.Fprintf(out.out, "Page:  %s\n", d.Page)
	}
	if d.Deleted {
		fmt.Fprintln(out.out, "The object is deleted; its resources are being deleted.")
	}
	if d.NextTry != nil {
		fmt.Fprintf(out.out, "Next try:  in %s\n", triesText(time.Until(*d.NextTry), d.Tries))
	}
	printList(out.out, "Why:", d.Reasons)
	printList(out.out, "The driver says:", d.Messages)
	sections := []struct {
		title  string
		header []string
		rows   [][]string
	}{
		{"Resources in the cloud:", []string{"KIND", "NAME", "ID", "ADDRESSES", "STATUS"}, resourceRows(d)},
		{"On the object in Kubernetes:", []string{"WHAT", "VALUE"}, carriedRows(d.Kubernetes)},
		{"Needs:", []string{"WATCH", "OBJECT", "STATE"}, needRows(d.Needs)},
		{"Last reconciles:", []string{
			"AGO", "OUTCOME", "ALL", "TRANSLATE", "PLAN", "APPLY", "WRITE BACK", "STEPS", "WHY",
		}, reconcileRows(d.Reconciles)},
		{"Events:", []string{"AGO", "TYPE", "REASON", "MESSAGE"}, eventRows(d.Events)},
	}
	for _, s := range sections {
		if len(s.rows) == 0 {
			continue
		}
		fmt.Fprintln(out.out, s.title)
		if err := indentedTable(out.out, s.header, s.rows); err != nil {
			return err
		}
	}
	return nil
}

func printList(w io.Writer, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintln(w, title)
	for _, line := range lines {
		fmt.Fprintln(w, "  "+line)
	}
}

// indentedTable is table, below a title.
func indentedTable(w io.Writer, header []string, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		fmt.Fprintln(tw, "  "+strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	return tw.Flush()
}

func resourceRows(d reconcile.Description) (rows [][]string) {
	for _, r := range d.Resources {
		status := r.Status
		if r.Shared {
			status = strings.TrimPrefix(status+", shared", ", ")
		}
		name := r.Name
		if name == "" {
			name = r.Role
		}
		rows = append(rows, []string{string(r.Kind), name, r.ID, addressOf(r), status})
	}
	for _, w := range d.Wants {
		rows = append(rows, []string{w.Kind, w.Role, "-", "", "not made yet"})
	}
	return rows
}

// maxShownValue is how much of an annotation is shown to people; -o json has all of it.
const maxShownValue = 90

func carriedRows(c *reconcile.Carried) (rows [][]string) {
	if c == nil {
		return nil
	}
	for _, key := range sortedKeys(c.Annotations) {
		value := c.Annotations[key]
		if len(value) > maxShownValue {
			value = strings.ToValidUTF8(value[:maxShownValue], "") + "…"
		}
		rows = append(rows, []string{"annotation " + key, value})
	}
	for _, key := range sortedKeys(c.Labels) {
		rows = append(rows, []string{"label " + key, c.Labels[key]})
	}
	if len(c.Addresses) > 0 {
		rows = append(rows, []string{"status.loadBalancer", strings.Join(c.Addresses, " ")})
	}
	return rows
}

func needRows(list []reconcile.NeedStatus) (rows [][]string) {
	for _, n := range list {
		object := n.Name
		if object == "" {
			object = fmt.Sprintf("selected by %q (%d)", n.Selector, n.Objects)
		}
		if n.Namespace != "" {
			object = n.Namespace + "/" + object
		}
		rows = append(rows, []string{n.Watch, object, n.State})
	}
	return rows
}

func reconcileRows(list []reconcile.Reconciled) (rows [][]string) {
	for _, r := range list {
		rows = append(rows, []string{
			age(r.Ended), string(r.Outcome), seconds(r.Seconds), seconds(r.TranslateSeconds), seconds(r.PlanSeconds),
			seconds(r.ApplySeconds), seconds(r.WriteBackSeconds), strconv.Itoa(r.Steps), r.Why,
		})
	}
	return rows
}

func eventRows(list []reconcile.Told) (rows [][]string) {
	for _, e := range list {
		rows = append(rows, []string{age(e.Time), e.Type, e.Reason, e.Message})
	}
	return rows
}

// seconds shows a time for people.
func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Microsecond).String()
}

func stateColour(state string) string {
	switch state {
	case "done":
		return green
	case "failing", "terminal":
		return red
	default:
		return yellow
	}
}
