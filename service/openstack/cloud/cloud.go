// SPDX-License-Identifier: Apache-2.0

// Package cloud joins the services of one project of a cloud. It must not know more of them than how they are reached.
package cloud

import (
	"context"
	"log/slog"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/neutron"
	"github.com/kuryr/raven/service/openstack/octavia"
)

// Cloud is the networking and the load balancing service of one project, by one connection. It is safe for concurrent
// use.
type Cloud struct {
	*openstack.Connection
	Neutron *neutron.Client
	Octavia *octavia.Client
}

// Connect logs in, finds the services and reads what they can do. Its errors are those of openstack.Connect.
func Connect(ctx context.Context, config openstack.Config, logger *slog.Logger) (*Cloud, error) {
	connection, err := openstack.Connect(ctx, config, logger)
	if err != nil {
		return nil, err
	}
	return New(ctx, connection)
}

// New reads what the services of a connection can do. It closes the connection where it returns an error.
func New(ctx context.Context, connection *openstack.Connection) (*Cloud, error) {
	networking, err := neutron.New(ctx, connection)
	if err != nil {
		connection.Close()
		return nil, err
	}
	return &Cloud{connection, networking, octavia.New(connection, networking)}, nil
}

// Clusters counts, by cluster id and kind, what stands in the project with the identity of any cluster. Load
// balancers are left out where the cloud has no service for them.
func (c *Cloud) Clusters(ctx context.Context) (map[string]map[drivers.Kind]int, error) {
	clusters, err := c.Neutron.Clusters(ctx)
	if err != nil || c.Octavia.Available() != nil {
		return clusters, err
	}
	balancers, err := c.Octavia.Clusters(ctx)
	if err != nil {
		return nil, err
	}
	for id, n := range balancers {
		if clusters[id] == nil {
			clusters[id] = map[drivers.Kind]int{}
		}
		clusters[id][drivers.KindLoadBalancer] = n
	}
	return clusters, nil
}
