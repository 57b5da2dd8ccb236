// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kuryr/raven/test/sim/northbound"
)

// usualDrivers are those that serve everything, Services by Octavia.
const usualDrivers = "namespace,pod,lbaas"

// balancing is how Services are served: what raven has to be told of it, and OVN's northbound database where a driver
// needs that, the real one if it is installed.
type balancing struct {
	conf     string
	database *northbound.Server  // nil: none
	neutron  *northbound.Neutron // keeps it in step with the cloud
}

// balance prepares what the drivers need to serve Services.
func (s *stage) balance(ctx context.Context, drivers string) (*balancing, error) {
	b := &balancing{conf: fmt.Sprintf(servicesConf, drivers)}
	named := slices.ContainsFunc(strings.Split(drivers, ","), func(name string) bool {
		return strings.TrimSpace(name) == "kubeproxy"
	})
	if !named {
		return b, nil
	}
	dir := filepath.Join(s.dir, "ovn")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making a folder for OVN's northbound database: %w", err)
	}
	var err error
	if b.database, err = northbound.StartAny(ctx, northbound.Config{Dir: dir}); err != nil {
		return nil, fmt.Errorf("starting OVN's northbound database: %w", err)
	}
	if b.neutron, err = northbound.Follow(context.WithoutCancel(ctx), s.cloud, b.database.Unix()); err != nil {
		return nil, errors.Join(err, b.close())
	}
	b.conf += "[ovn]\nnb_connection = " + b.database.Unix() + "\n\n"
	return b, nil
}

// close ends what was prepared.
func (b *balancing) close() error {
	var err error
	if b.neutron != nil {
		err = b.neutron.Close()
	}
	if b.database != nil {
		b.database.Kill()
	}
	return err
}

// printAccess is how to look into the database from another terminal.
func (b *balancing) printAccess(out io.Writer) {
	switch {
	case b.database == nil:
	case !b.database.Real():
		fmt.Fprintf(out,
			"OVN's northbound database is one in this process: install ovn-common and openvswitch-common for the real one.\n\n")
	default:
		fmt.Fprintf(out, "  ovn-nbctl --db=%s --no-leader-only --columns=name,vips list Load_Balancer\n\n", b.database.Unix())
	}
}
