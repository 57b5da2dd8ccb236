// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// tryOptions are the flags of try.
type tryOptions struct {
	raven    string
	drivers  []string
	files    []string
	set      []string
	patience time.Duration
	remove   bool
}

func newTryCommand(hurry <-chan struct{}) *cobra.Command {
	var o tryOptions
	cmd := &cobra.Command{
		Use: "try --driver NAME=PROGRAM -f FILE",
		Short: "Run drivers of your own in the real raven against the simulations, on the objects of a manifest, and " +
			"show what comes of it",
		Long: `Run the simulated cluster and cloud and the real raven with its drivers namespace and pod and with yours, make
the objects of the manifests, wait until raven is done with all of them, and print what was made. Definitions of custom
resources come first, namespaces that are missing are made. Your drivers may add to what others make all that there is
to add; for less:
--set driver:NAME.allow_contributions=routes. It ends by itself.

Exit statuses: 0 everything was done, 1 something was not, which is printed.`,
		Example: `  raven-sim try --driver floatingip=./raven-driver-floatingip -f crd.yaml -f example.yaml --delete`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), hurry, cmd.OutOrStdout())
		},
	}
	runsRaven(cmd, &o.raven)
	f := cmd.Flags()
	f.StringArrayVar(&o.drivers, "driver", nil, "a driver as `NAME=PROGRAM`; may be given again")
	f.StringArrayVarP(&o.files, "filename", "f", nil, "manifest `file`; may be given again")
	f.StringArrayVar(&o.set, "set", nil, "an option as `GROUP.NAME=VALUE`; may be given again")
	f.DurationVar(&o.patience, "timeout", time.Minute, "`time` to wait for raven to be done")
	f.BoolVar(&o.remove, "delete", false, "delete the objects in the end, and see that the drivers leave nothing behind")
	return cmd
}

// contributions is all that a driver may add to what others make: who tries his own driver allows it all.
const contributions = "security_groups, allowed_address_pairs, routes, networks, routers"

func (o tryOptions) sets(key string) bool {
	return slices.ContainsFunc(o.set, func(option string) bool { return strings.HasPrefix(option, key+"=") })
}

// configuration are the lines of kuryr.conf from [raven] on.
func (o tryOptions) configuration() (text string, names []string, err error) {
	conf := map[string][]string{
		"neutron_defaults": {"external_svc_net = public"}, "raven": {"sweep_interval = 1"},
	}
	for _, driver := range o.drivers {
		name, program, ok := strings.Cut(driver, "=")
		if !ok {
			return "", nil, fmt.Errorf("--driver %s: it must be NAME=PROGRAM", driver)
		}
		path, err := filepath.Abs(program)
		if err != nil {
			return "", nil, fmt.Errorf("--driver %s: %w", driver, err)
		}
		names = append(names, name)
		conf["driver:"+name] = append(conf["driver:"+name], "command = "+path)
		if !o.sets("driver:" + name + ".allow_contributions") {
			conf["driver:"+name] = append(conf["driver:"+name], "allow_contributions = "+contributions)
		}
	}
	conf["raven"] = append(conf["raven"], "drivers = "+strings.Join(append([]string{"namespace", "pod"}, names...), ", "))
	for _, option := range o.set {
		key, value, ok := strings.Cut(option, "=")
		group, name, dotted := strings.Cut(key, ".")
		if !ok || !dotted {
			return "", nil, fmt.Errorf("--set %s: it must be GROUP.NAME=VALUE", option)
		}
		conf[group] = append(conf[group], name+" = "+value)
	}
	var b strings.Builder
	b.WriteString(strings.Join(conf["raven"], "\n") + "\n") // the group that the stage has begun
	delete(conf, "raven")
	for _, group := range slices.Sorted(maps.Keys(conf)) {
		fmt.Fprintf(&b, "\n[%s]\n%s\n", group, strings.Join(conf[group], "\n"))
	}
	return b.String(), names, nil
}

func (o tryOptions) run(ctx context.Context, hurry <-chan struct{}, out io.Writer) (err error) {
	conf, names, err := o.configuration()
	if err != nil {
		return err
	}
	ko := simkube.Options{Endpoints: &simkube.EndpointController{}, Kubelet: &simkube.Kubelet{NeedPort: true}}
	s, err := newStage(ctx, "", ko, simcloud.Options{Providers: providers()})
	if err != nil {
		return err
	}
	defer s.close()
	cluster, err := newManifests(s.kubeconfig())
	if err != nil {
		return err
	}
	if err := cluster.create(ctx, o.files); err != nil {
		return err
	}
	d, err := s.startRaven(o.raven, conf)
	if err != nil {
		return err
	}
	defer func() {
		if stopped := d.stop(hurry); err == nil {
			err = stopped
		}
	}()
	if err := o.await(ctx, d, "to be done", func(r *report) string { return cluster.unfinished(r, names) }); err != nil {
		return err
	}
	if err := printTried(ctx, out, s, d, cluster, names); err != nil {
		return err
	}
	if !o.remove {
		return nil
	}
	if err := cluster.remove(ctx); err != nil {
		return err
	}
	fmt.Fprintln(out, "The objects are deleted; raven deletes what they had.")
	return o.await(ctx, d, "to have removed all", func(*report) string {
		return strings.Join(have(s.cloud, cluster.uids()), "\n")
	})
}

// await asks raven how it stands until f has nothing to say any more.
func (o tryOptions) await(ctx context.Context, d *daemon, what string, f func(*report) string) error {
	late, tick := time.NewTimer(o.patience), time.NewTicker(50*time.Millisecond)
	defer late.Stop()
	defer tick.Stop()
	missing := "it does not answer"
	for {
		if r, err := d.status(ctx, url.Values{}); err == nil {
			if missing = f(r); missing == "" {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-d.Ended:
			return d.failure("raven ended by itself")
		case <-late.C:
			return fmt.Errorf("waited %s for raven %s: %s\nthe end of its log:\n%s", o.patience, what, missing, tail(d.log))
		}
	}
}

// have lists what others than Raven's own drivers have in the cloud, of some objects or, without any, of all, leaving
// out the identities.
func have(cloud *simcloud.Cloud, uids []string) []string {
	// The owner in an identity is a driver or its role, and the object.
	owned := regexp.MustCompile(`raven:owner=([^:\] ]+)(?::([^\] ]+))?`)
	identity := regexp.MustCompile(` (description=raven:.*?raven:policy=[a-z]+(?: raven:source=[^ ]+)?|tags=\[[^]]*\])`)
	var found []string
	lines := bufio.NewScanner(strings.NewReader(cloud.Dump(simcloud.DumpOptions{Identity: true, Addresses: true})))
	for lines.Scan() {
		owner := owned.FindStringSubmatch(lines.Text())
		if owner == nil || slices.Contains([]string{"namespace", "pod", "shared"}, owner[1]) ||
			uids != nil && !slices.Contains(uids, owner[2]) {
			continue
		}
		found = append(found, identity.ReplaceAllString(lines.Text(), ""))
	}
	return found
}

func printTried(ctx context.Context, out io.Writer, s *stage, d *daemon, cluster *manifests, names []string) error {
	r, err := d.status(ctx, url.Values{})
	if err != nil {
		return err
	}
	rows := [][]string{{"KIND", "OBJECT", "DRIVER", "STATE", "RESOURCES"}}
	for _, o := range r.Objects {
		if !slices.Contains(names, o.Driver) {
			continue
		}
		var made []string
		for _, resource := range o.Resources {
			made = append(made, strings.TrimSpace(resource.Kind+" "+resource.Name))
		}
		rows = append(rows,
			[]string{o.Kind, strings.TrimPrefix(o.Namespace+"/"+o.Name, "/"), o.Driver, o.State, strings.Join(made, ", ")})
	}
	notes, err := cluster.notes(ctx)
	if err != nil {
		return err
	}
	for _, part := range []struct {
		title string
		lines []string
	}{
		{"What raven did:", columns(rows)}, {"On the objects:", notes}, {"In the cloud:", have(s.cloud, nil)},
	} {
		fmt.Fprintf(out, "%s\n  %s\n\n", part.title, strings.Join(part.lines, "\n  "))
	}
	return nil
}
