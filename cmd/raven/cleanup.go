// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/cleanup"
	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/daemon"
	"github.com/kuryr/raven/service/host"
	"github.com/kuryr/raven/service/openstack/cloud"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/watch"
)

const cleanupHelp = `Remove from the cloud what Raven made for a cluster that is gone, and nothing else: what carries
that cluster's identity in its tags or its description. Nothing is removed without --yes.

The cluster is named by its id, which is the UID that its namespace kube-system had, or its [raven] cluster_id.
Without --cluster the clusters are listed that have something in the project.

With --driver only that goes which one driver made for objects, and which stays as it is since the driver was left
out of [raven] drivers, for as long as its objects are there. The cluster lives on, and Raven may run there. "raven
status" says which drivers have left something.

Only [neutron] has to be configured, and [ovn] where OVN load balancers were made. If the cluster is the one that
[kubernetes] reaches, and it answers, --force is needed: stop Raven there first, or it makes everything again.

Exit statuses: 0 nothing (left) to remove, 2 there is something to remove, 1 an error or something could not be
removed. The list of clusters ends with 0 whatever it shows, since a cluster in it may be in use.`

type cleanupFlags struct {
	cluster, format      string
	driver               string
	yes, retained, force bool
	patience             time.Duration
}

func newCleanupCommand(flags *globalFlags, io streams) *cobra.Command {
	var f cleanupFlags
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove what Raven made for a cluster that is gone; shows it only, unless told --yes",
		Long:  cleanupHelp,
		Example: `  raven cleanup                                  which clusters have something in this project?
  raven cleanup --cluster 48a1d20f-c094-478f-a87f-a26c15414caf
  raven cleanup --cluster 48a1d20f-c094-478f-a87f-a26c15414caf --yes
  raven cleanup --driver lbaas --yes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(f.format); err != nil {
				return err
			}
			if f.cluster == "" && f.driver == "" && (f.yes || f.retained || f.force) {
				return statusError{exitUsage, fmt.Errorf("name the cluster with --cluster; %q without flags lists them",
					"raven cleanup")}
			}
			return runCleanup(cmd.Context(), flags, io, f)
		},
	}
	cmd.Flags().StringVar(&f.cluster, "cluster", "", "the `id` of the cluster")
	cmd.Flags().StringVar(&f.driver, "driver", "", "only what this `driver` made, which is not enabled any more; the "+
		"cluster is the one that is configured, unless --cluster names another")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "remove it")
	cmd.Flags().BoolVar(&f.retained, "retained", false, "also what was to outlive its object (policy retain)")
	cmd.Flags().BoolVar(&f.force, "force", false, "also if the cluster still answers")
	cmd.Flags().DurationVar(&f.patience, "patience", 30*time.Second, "how long to go on when nothing can be removed, "+
		"because of others")
	cmd.Flags().StringVarP(&f.format, "output", "o", "table", "output `format`: table, json or yaml")
	return cmd
}

// cleanupReport is what `raven cleanup --cluster` prints.
type cleanupReport struct {
	Cluster  string             `json:"cluster"`
	Project  string             `json:"project"`
	Remove   []cleanupRow       `json:"remove"`
	Retained []cleanupRow       `json:"retained"`
	Removed  int                `json:"removed"`
	Left     []cleanup.Leftover `json:"left"`
	// Unseen says of what it is not known whether there is any.
	Unseen []string `json:"unseen,omitempty"`
}

type cleanupRow struct {
	Kind drivers.Kind `json:"kind"`
	Name string       `json:"name"`
	ID   string       `json:"id"`
}

func runCleanup(ctx context.Context, flags *globalFlags, io streams, f cleanupFlags) error {
	values, err := flags.loader().LoadCore()
	if err != nil {
		return err
	}
	cloud, err := daemon.OpenCloud(ctx, values, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer cloud.Close()
	owner := ""
	if f.driver != "" {
		if owner, err = disabledOwner(ctx, flags, f.driver); err != nil {
			return err
		}
		if f.cluster, err = configuredCluster(ctx, values, f.cluster); err != nil {
			return err
		}
	}
	if f.cluster == "" {
		return listClusters(ctx, cloud, values, io, f.format)
	}
	if f.driver == "" && alive(ctx, values, f.cluster) && !f.force {
		warning := fmt.Errorf("cluster %s answers at its Kubernetes API: stop Raven there, and say --force", f.cluster)
		if f.yes {
			return warning
		}
		fmt.Fprintln(io.err, "warning:", warning)
	}
	northbound, err := daemon.OpenNorthbound(ctx, values, f.cluster)
	if err != nil {
		return err
	}
	if northbound != nil {
		defer northbound.Close()
	}
	c := daemon.NewCleanup(cloud, northbound, f.cluster)
	c.Driver, c.Retained, c.Patience = owner, f.retained, f.patience
	return runCleanupOf(ctx, c, cloud, io, f)
}

// disabledOwner is whose name stands on what a driver made: its own, or that of its role. The driver must not be
// enabled, nor another that holds the role, for that one has taken everything over.
func disabledOwner(ctx context.Context, flags *globalFlags, name string) (string, error) {
	programs, err := flags.loader().Enabled(ctx)
	if err != nil {
		return "", err
	}
	if strings.Contains(name, "~") { // a long one, shortened as identities and `raven status` have it
		for _, p := range programs {
			if plan.ShortDriver(cmp.Or(p.Info.Role, p.Name)) == name {
				return "", fmt.Errorf("%s stands for driver %s, which is enabled", name, p.Name)
			}
		}
		return name, nil
	}
	if err := daemon.CheckName(name); err != nil {
		return "", statusError{exitUsage, err}
	}
	alone := *flags
	alone.set = append(slices.Clone(flags.set), daemon.OptionGroup+".drivers="+name)
	owner := name
	if l, err := alone.loader().Load(ctx); err == nil {
		owner = cmp.Or(l.Programs[0].Info.Role, name)
	} else if !errors.Is(err, host.ErrNotFound) {
		return "", fmt.Errorf("asking driver %s whether it holds a role: %w", name, err)
	}
	for _, p := range programs {
		if p.Name == name {
			return "", fmt.Errorf("driver %s is enabled: leave it out of [%s] drivers, and reload Raven, first", name,
				daemon.OptionGroup)
		}
		if p.Info.Role == owner {
			return "", fmt.Errorf("driver %s holds the role %s, too, and has taken over what %s made", p.Name, owner, name)
		}
	}
	return owner, nil
}

// configuredCluster is the id of the cluster that is named, or else configured.
func configuredCluster(ctx context.Context, values *config.Values, named string) (string, error) {
	if id := cmp.Or(named, values.String(daemon.OptionGroup, "cluster_id")); id != "" {
		return id, nil
	}
	rest, err := watch.RESTConfig(values, version)
	if err != nil {
		return "", err
	}
	clients, err := watch.NewClients(rest)
	if err != nil {
		return "", err
	}
	defer clients.Close()
	ctx, cancel := context.WithTimeout(ctx, daemon.RequestTimeout)
	defer cancel()
	ns, err := clients.Dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).
		Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("reading the cluster's id from namespace kube-system: %w; or name it with --cluster", err)
	}
	return string(ns.GetUID()), nil
}

func runCleanupOf(ctx context.Context, c *cleanup.Cleanup, cloud *cloud.Cloud, io streams, f cleanupFlags) error {
	p, err := c.Plan(ctx)
	if err != nil {
		return err
	}
	report := cleanupReport{
		Cluster: f.cluster, Project: cloud.ProjectID(), Remove: []cleanupRow{}, Retained: []cleanupRow{},
		Left:   []cleanup.Leftover{},
		Unseen: p.Unseen,
	}
	for _, text := range p.Unseen {
		fmt.Fprintln(io.err, "warning:", text)
	}
	for _, step := range p.Steps {
		report.Remove = append(report.Remove, cleanupRow{step.Kind, cmp.Or(p.Names[step.ID], step.Identity.Name), step.ID})
	}
	for _, o := range p.Retained {
		name, _ := o.Attrs["name"].(string)
		report.Retained = append(report.Retained, cleanupRow{o.Kind, name, o.ID})
	}
	if f.format == "table" {
		hint := " --yes removes them."
		if f.yes {
			hint = ""
		}
		printCleanup(io, report, hint)
	}
	if f.yes && len(p.Steps) > 0 {
		var removed atomic.Int64
		stop := progress(io.err, io.colour, func() string {
			return fmt.Sprintf("removed %d of %d", removed.Load(),
				len(p.Steps))
		})
		c.Removed = func(plan.Step) { removed.Add(1) }
		report.Left, err = c.Run(ctx)
		stop()
		report.Removed = int(removed.Load())
	}
	if f.format != "table" {
		if serr := structured(io.out, f.format, report); err == nil {
			err = serr
		}
	} else if f.yes {
		printLeft(io, report)
	}
	switch {
	case err != nil:
		return err
	case len(report.Left) > 0:
		return statusError{exitError, fmt.Errorf("%d resources are left, with the reasons above; run it again when they "+
			"are resolved", len(report.Left))}
	case !f.yes && len(report.Remove) > 0:
		return statusError{status: exitChanges}
	}
	return nil
}

func printCleanup(io streams, r cleanupReport, hint string) {
	for _, row := range r.Remove {
		fmt.Fprintf(io.out, "%s %-20s %s  %s\n", io.paint(red, "-"), row.Kind, row.ID, row.Name)
	}
	for _, row := range r.Retained {
		fmt.Fprintf(io.out, "%s %-20s %s  %s  (stays: its policy is retain; --retained removes it)\n",
			io.paint(yellow, "!"), row.Kind, row.ID, row.Name)
	}
	if len(r.Remove) == 0 {
		fmt.Fprintf(io.out, "Nothing to remove of cluster %s in project %s; `raven cleanup` lists the clusters that have "+
			"resources there.\n", r.Cluster, r.Project)
		return
	}
	counts := map[drivers.Kind]int{}
	for _, row := range r.Remove {
		counts[row.Kind]++
	}
	fmt.Fprintf(io.out, "\n%d to remove of cluster %s in project %s: %s.%s\n",
		len(r.Remove), r.Cluster, r.Project, countsText(counts), hint)
}

func printLeft(io streams, r cleanupReport) {
	for _, l := range r.Left {
		fmt.Fprintf(io.out, "%s %s %s %q: %s\n", io.paint(red, "!"), l.Kind, l.ID, l.Name, l.Reason)
	}
	if len(r.Remove) > 0 {
		fmt.Fprintf(io.out, "%d removed, %d left.\n", r.Removed, len(r.Left))
	}
}

func countsText(counts map[drivers.Kind]int) string {
	var parts []string
	for _, kind := range drivers.Kinds() {
		if counts[kind] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[kind], kind))
		}
	}
	return strings.Join(parts, ", ")
}

// listClusters prints which clusters have something in the project.
func listClusters(ctx context.Context, cloud *cloud.Cloud, values *config.Values, io streams, format string) error {
	clusters, err := cloud.Clusters(ctx)
	if err != nil {
		return err
	}
	if err := addClusters(ctx, values, clusters); err != nil {
		fmt.Fprintln(io.err, "warning: OVN's northbound database was not listed:", err)
	}
	if err := cloud.Octavia.Available(); err != nil {
		fmt.Fprintln(io.err, "warning: the load balancing service was not listed:", err)
	}
	if format != "table" {
		return structured(io.out, format, clusters)
	}
	if len(clusters) == 0 {
		fmt.Fprintf(io.out, "No cluster has anything in project %s.\n", cloud.ProjectID())
		return nil
	}
	rows := make([][]string, 0, len(clusters))
	for _, id := range slices.Sorted(maps.Keys(clusters)) {
		rows = append(rows, []string{id, countsText(clusters[id])})
	}
	return table(io.out, []string{"CLUSTER", "RESOURCES"}, rows)
}

// alive says whether the cluster is the one that the configuration reaches, and answers.
func alive(ctx context.Context, values *config.Values, cluster string) bool {
	if values.String(daemon.OptionGroup, "cluster_id") == cluster {
		cluster = "" // whatever answers is the one
	}
	rest, err := watch.RESTConfig(values, version)
	if err != nil {
		return false
	}
	clients, err := watch.NewClients(rest)
	if err != nil {
		return false
	}
	defer clients.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	ns, err := clients.Dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).
		Get(ctx, "kube-system", metav1.GetOptions{})
	return err == nil && (cluster == "" || string(ns.GetUID()) == cluster)
}

// progress shows a text every two seconds until it is stopped: on one line of a terminal, else line by line.
func progress(w io.Writer, terminal bool, text func() string) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(2 * time.Second)
		defer ticker.Stop()
		shown := false
		for {
			select {
			case <-done:
				if shown && terminal {
					fmt.Fprintln(w)
				}
				return
			case <-ticker.C:
				shown = true
				if terminal {
					fmt.Fprint(w, "\r"+text())
				} else {
					fmt.Fprintln(w, text())
				}
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// addClusters adds what each cluster has in OVN to what it has in OpenStack.
func addClusters(ctx context.Context, values *config.Values, clusters map[string]map[drivers.Kind]int) error {
	n, err := daemon.OpenNorthbound(ctx, values, "")
	if n == nil || err != nil {
		return err
	}
	defer n.Close()
	found, err := n.Clusters()
	if err != nil {
		return err
	}
	for id, counts := range found {
		if clusters[id] == nil {
			clusters[id] = map[drivers.Kind]int{}
		}
		maps.Copy(clusters[id], counts)
	}
	return nil
}
