// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kuryr/raven/service/daemon"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
)

func checkState(name string) error {
	states := []state.Phase{
		state.Pending, state.Done, state.Waiting, state.Failing, state.Terminal,
	}
	if name != "" && !slices.Contains(states, state.Phase(name)) {
		return statusError{exitUsage, fmt.Errorf("--state %q: it must be one of %v", name, states)}
	}
	return nil
}

func newStatusCommand(flags *globalFlags, io streams) *cobra.Command {
	var (
		format, address string
		watching        bool
		query           = map[string]*string{
			"driver": new(""), "kind": new(""), "namespace": new(""), "name": new(""),
			"state": new(""),
		}
	)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Ask a running daemon what became of each object, and why",
		Long: `Ask a running daemon, over its status endpoint on this machine, how each driver stands and what became of
each source object: done; waiting, and for what; failing, since when, why and until when; and its resources.

Exit statuses: 0 the daemon answered, 1 it did not, or it knows no object of that driver, kind, namespace and name.`,
		Example: `  raven status
  raven status --namespace shop --state waiting
  raven status -w
  raven status --kind Pod -o json | jq '.objects[].reasons'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(checkFormat(format), checkState(*query["state"])); err != nil {
				return err
			}
			if address == "" {
				var err error
				if address, err = flags.statusAddress(); err != nil {
					return err
				}
			}
			q := url.Values{}
			for name, value := range query {
				if *value != "" {
					q.Set(name, *value)
				}
			}
			if !watching {
				return runStatus(cmd.Context(), io, address, q, format)
			}
			if format != "table" {
				return statusError{exitUsage, errors.New("-w shows a table: leave out -o")}
			}
			return watchStatus(cmd.Context(), io, address, q)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&format, "output", "o", "table", "output `format`: table, json or yaml")
	f.BoolVarP(&watching, "watch", "w", false,
		"show it until Ctrl-C: drawn anew on a terminal, elsewhere a line per change")
	f.StringVar(&address, "address", "", "`host:port` of the daemon's health server (default: from the configuration)")
	f.StringVar(query["kind"], "kind", "", "only objects of this `kind`, for example Pod")
	f.StringVarP(query["namespace"], "namespace", "n", "", "only objects of this `namespace`")
	f.StringVar(query["name"], "name", "", "only objects of this `name`")
	f.StringVar(query["driver"], "driver", "", "only objects of this `driver`")
	f.StringVar(query["state"], "state", "", "only objects in this `state`: pending, done, waiting, failing or terminal")
	return cmd
}

func runStatus(ctx context.Context, out streams, address string, query url.Values, format string) error {
	report, err := askStatus(ctx, address, query)
	if err != nil {
		return err
	}
	if format == "table" {
		err = printStatus(out, report)
	} else {
		err = structured(out.out, format, report)
	}
	if err != nil || len(report.Objects) > 0 || report.Leader != nil && !report.Leader.Leading || report.WaitsFor != "" {
		return err
	}
	return unknownObject(ctx, address, query)
}

// unknownObject is the error of a filter that names what the daemon does not know. That no object is in some state is
// none.
func unknownObject(ctx context.Context, address string, query url.Values) error {
	named := url.Values{}
	var texts []string
	for _, name := range []string{"driver", "kind", "namespace", "name"} {
		if value := query.Get(name); value != "" {
			named.Set(name, value)
			texts = append(texts, name+" "+value)
		}
	}
	if len(named) == 0 {
		return nil
	}
	if query.Get("state") != "" {
		report, err := askStatus(ctx, address, named)
		if err != nil || len(report.Objects) > 0 {
			return err
		}
	}
	return fmt.Errorf("the daemon knows no object of %s; raven status shows all", strings.Join(texts, ", "))
}

// askStatus asks a daemon for its status.
func askStatus(ctx context.Context, address string, query url.Values) (report daemon.Report, err error) {
	err = askDaemon(ctx, address, query, &report)
	return report, err
}

// askDaemon asks a daemon's status endpoint for a document.
func askDaemon(ctx context.Context, address string, query url.Values, document any) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	target := url.URL{Scheme: "http", Host: address, Path: "/status", RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return fmt.Errorf("asking the daemon at %s: %w", address, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("asking the daemon at %s: %w; is `raven run` running, with this [health_server] port?",
			address, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("reading the answer of %s: %w", address, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the daemon at %s answered %s: %s", address, response.Status,
			strings.TrimSpace(string(body)))
	}
	if err := json.Unmarshal(body, document); err != nil {
		return fmt.Errorf("what answers at %s is no Raven: %w", address, err)
	}
	return nil
}

func printStatus(out streams, r daemon.Report) error {
	if err := printDaemon(out, r); err != nil || r.WaitsFor != "" && len(r.Objects) == 0 {
		return err
	}
	var rows [][]string
	for _, o := range r.Objects {
		name := strings.TrimPrefix(objectText(o), o.Kind+" ")
		rows = append(rows, []string{
			o.Kind, name, o.Driver, string(o.State), age(o.Since), resourcesText(o), addressesText(o), reasonText(o),
		})
	}
	fmt.Fprintln(out.out)
	return table(out.out, []string{"KIND", "OBJECT", "DRIVER", "STATE", "SINCE", "RESOURCES", "ADDRESSES", "WHY"}, rows)
}

// printDaemon prints how the daemon and its drivers stand.
func printDaemon(out streams, r daemon.Report) error {
	fmt.Fprintf(out.out, "raven %s, up for %s\n", r.Version, age(r.Started))
	if r.WaitsFor != "" {
		fmt.Fprintf(out.out, "%s %s\n", out.paint(yellow, "the start waits for"), r.WaitsFor)
		if len(r.Drivers) == 0 {
			return nil // it has not come to them
		}
		fmt.Fprintln(out.out)
	}
	if r.Leader != nil {
		fmt.Fprintf(out.out, "%s\n\n", r.Leader)
	}
	var rows [][]string
	for _, d := range r.Drivers {
		state := d.State
		switch {
		case d.Guard != nil:
			state = "held: " + d.Guard.String()
		case d.Problem != "":
			state += ", " + d.Problem
		case !d.Replayed:
			state += ", answering"
		}
		rows = append(rows, []string{d.Name, d.Version, strconv.Itoa(d.Objects), state})
	}
	if err := table(out.out, []string{"DRIVER", "VERSION", "OBJECTS", "STATE"}, rows); err != nil {
		return err
	}
	if r.OVN != nil {
		fmt.Fprintf(out.out, "\n%s\n", daemon.NorthboundText(*r.OVN))
	}
	if r.Handover.Waiting > 0 {
		fmt.Fprintf(out.out, "\n%s\n", r.Handover)
	}
	for _, f := range r.Disabled {
		fmt.Fprintf(out.out, "\n%s\n", f)
	}
	printDrifts(out, r.Drifts)
	return nil
}

// maxShownDrifts is how many resources that others have changed are shown to people; -o json has more.
const maxShownDrifts = 5

func printDrifts(out streams, list []reconcile.DriftStatus) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintln(out.out, "\nOthers have changed these resources; "+
		"Raven repairs what its drivers want, and leaves the rest:")
	for i, d := range list {
		if i == maxShownDrifts {
			fmt.Fprintf(out.out, "  and %d more, see -o json\n", len(list)-i)
			break
		}
		fmt.Fprintf(out.out, "  %s ago  %s %s (%s): %s\n", age(d.Found), d.Kind, d.ID, d.Of, d.What)
	}
}

// age is for how long something has been so, for people.
func age(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return time.Since(t).Truncate(time.Second).String()
}

func resourcesText(o reconcile.ObjectStatus) string {
	var parts []string
	for _, r := range o.Resources {
		if !r.Shared {
			parts = append(parts, string(r.Kind))
		}
	}
	if len(parts) > 3 {
		return fmt.Sprintf("%d resources", len(parts))
	}
	return strings.Join(parts, ", ")
}

// addressOf returns what people know a resource by: a port's addresses, a subnet's range, a load balancer's VIP.
func addressOf(r reconcile.ResourceStatus) string {
	var addresses []string
	for _, key := range []string{"cidr", "floating_ip_address", "vip_address"} {
		if text, ok := r.Attrs[key].(string); ok && text != "" {
			addresses = append(addresses, text)
		}
	}
	for _, list := range [][2]string{{"fixed_ips", "ip_address"}, {"additional_vips", "ip_address"}, {"vips", "address"}} {
		items, _ := r.Attrs[list[0]].([]any)
		for _, item := range items {
			m, _ := item.(map[string]any)
			if text, ok := m[list[1]].(string); ok && !slices.Contains(addresses, text) {
				addresses = append(addresses, text)
			}
		}
	}
	return strings.Join(addresses, " ")
}

func reasonText(o reconcile.ObjectStatus) string {
	if len(o.Reasons) == 0 {
		if len(o.Resources) == 0 && len(o.Messages) > 0 {
			return o.Messages[0] // why the driver wants nothing for it
		}
		return ""
	}
	text := o.Reasons[0]
	if len(o.Reasons) > 1 {
		text += fmt.Sprintf(" (and %d more)", len(o.Reasons)-1)
	}
	if o.NextTry != nil {
		text += ", next try in " + time.Until(*o.NextTry).Truncate(time.Second).String()
	}
	return text
}

func hostPort(host string, port int64) string {
	return net.JoinHostPort(host, strconv.FormatInt(port, 10))
}
