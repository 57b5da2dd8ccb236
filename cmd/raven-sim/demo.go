// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// demoOptions are the flags of demo.
type demoOptions struct {
	raven    string
	drivers  string
	length   time.Duration
	latency  time.Duration
	interval time.Duration
}

func newDemoCommand(hurry <-chan struct{}) *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the simulations, the real raven and a workload, and show live what becomes of it",
		Long: `Run the simulated cluster and cloud, the real raven with its real drivers, and a small workload; show live what
becomes of each namespace, pod and service. On a terminal the picture is redrawn; elsewhere there is a line for each
change. The workload keeps its replicas: delete its pods as you like. NO_COLOR is heeded.

Ctrl-C stops everything in order and leaves nothing behind; a second one does not wait for raven.`,
		Example: `  raven-sim demo
  raven-sim demo --for 20s | cat
  raven-sim demo --drivers namespace,pod,kubeproxy`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), hurry, cmd.OutOrStdout())
		},
	}
	runsRaven(cmd, &o.raven)
	f := cmd.Flags()
	f.StringVar(&o.drivers, "drivers", usualDrivers,
		"the `drivers`; with kubeproxy OVN's northbound database runs as well: the real one where Debian's ovn-common is "+
			"installed")
	f.DurationVar(&o.length, "for", 0, "end after this `time` (default: on Ctrl-C)")
	f.DurationVar(&o.latency, "latency", 50*time.Millisecond, "`time` that every request to Neutron or Octavia takes")
	f.DurationVar(&o.interval, "every", 2*time.Second, "`time` between two changes of the workload")
	return cmd
}

// servicesConf makes raven serve Services with some drivers, and floating IPs from the simulated cloud's external
// network.
const servicesConf = `drivers = %s

[neutron_defaults]
external_svc_net = public

[octavia_defaults]
provider = amphora

`

// providers are those of the simulated cloud, several times as fast as real ones were measured: one sees them work,
// and need not wait.
func providers() []simcloud.Provider {
	const times = 3
	return []simcloud.Provider{simcloud.LabAmphora(times), simcloud.LabOVN(times)}
}

func (o demoOptions) run(ctx context.Context, hurry <-chan struct{}, out io.Writer) (err error) {
	if o.interval <= 0 {
		return fmt.Errorf("--every %s: it must be more than 0", o.interval)
	}
	ko := simkube.Options{PodGrace: time.Second, Endpoints: &simkube.EndpointController{}, Kubelet: &simkube.Kubelet{
		NeedPort: true, ScheduleDelay: 300 * time.Millisecond, RunDelay: 300 * time.Millisecond,
		Nodes: []string{"worker-1", "worker-2", "worker-3"},
	}}
	s, err := newStage(ctx, "", ko, simcloud.Options{Profile: simcloud.Flat(o.latency), Providers: providers()})
	if err != nil {
		return err
	}
	defer s.close()
	b, err := s.balance(ctx, o.drivers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	s.printAccess(out)
	b.printAccess(out)
	d, err := s.startRaven(o.raven, "cluster_name = demo\n"+b.conf)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "the web page: %s\n", d.page)
	live, cancel := context.WithCancel(ctx)
	defer cancel()
	failures := make(chan error, 1)
	life := newWorkload(s.kube)
	var work sync.WaitGroup
	work.Go(func() {
		if err := life.run(live, o.interval); err != nil {
			failures <- err
		}
	})
	work.Go(func() { newView(out, s, d, life).run(live) })
	failed := o.wait(ctx, d, failures)
	cancel()
	work.Wait()
	fmt.Fprintln(out, "stopping raven")
	if stopped := d.stop(hurry); stopped != nil && failed == nil {
		failed = stopped
	}
	if failed == nil {
		fmt.Fprintln(out, "stopped; nothing is left behind")
	}
	return failed
}

// wait returns when the demo is over, with an error when it is so before its time.
func (o demoOptions) wait(ctx context.Context, d *daemon, failures <-chan error) error {
	var over <-chan time.Time
	if o.length > 0 {
		timer := time.NewTimer(o.length)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-ctx.Done():
		return nil
	case <-over:
		return nil
	case err := <-failures:
		return err
	case <-d.Ended:
		return d.failure("raven ended by itself")
	}
}

// terminal returns the file descriptor of an output that may be redrawn in place.
func terminal(out io.Writer) (fd int, ok bool) {
	f, ok := out.(interface{ Fd() uintptr })
	if !ok || os.Getenv("TERM") == "dumb" || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	return int(f.Fd()), true
}
