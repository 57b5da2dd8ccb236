// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

func newServeCommand() *cobra.Command {
	var (
		dir     string
		latency time.Duration
		kubelet bool
	)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the simulations until Ctrl-C, and print how to reach them",
		Example: `  raven-sim serve --dir /tmp/sim
  raven-sim serve --latency 50ms      every Neutron request takes 50 ms`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ko := simkube.Options{Endpoints: &simkube.EndpointController{}}
			if kubelet {
				ko.Kubelet = &simkube.Kubelet{
					NeedPort: true, ScheduleDelay: 200 * time.Millisecond, RunDelay: 200 * time.Millisecond,
				}
			}
			return serve(cmd.Context(), cmd.OutOrStdout(), dir, ko, simcloud.Options{
				Profile: simcloud.Flat(latency), Providers: providers(),
			})
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "",
		"`folder` for kubeconfig, clouds.yaml and kuryr.conf; it is kept (default: a temporary one)")
	cmd.Flags().DurationVar(&latency, "latency", 0, "`time` that every request to Neutron or Octavia takes")
	cmd.Flags().BoolVar(&kubelet, "kubelet", true, "schedule pods, and let them run once they have a port")
	return cmd
}

func serve(ctx context.Context, out io.Writer, dir string, ko simkube.Options, co simcloud.Options) error {
	s, err := newStage(ctx, dir, ko, co)
	if err != nil {
		return err
	}
	defer s.close()
	if _, _, err := s.configure(fmt.Sprintf(servicesConf, usualDrivers)); err != nil {
		return err
	}
	s.printAccess(out)
	fmt.Fprintf(out, "  raven run --config-file %s\n\nCtrl-C ends it.\n", s.conf())
	<-ctx.Done()
	return nil
}
