// SPDX-License-Identifier: Apache-2.0

package northbound

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/kuryr/raven/service/ovn/nbdb"
	"github.com/kuryr/raven/test/sim/openstack"
)

// Neutron makes in a northbound database what Neutron's OVN driver makes there, as far as Raven reads it: a switch for
// every network and a router for every router of a simulated cloud, by Neutron's names for them, before the cloud
// answers the request.
type Neutron struct {
	cloud  *openstack.Cloud
	client client.Client
	ended  chan struct{} // closed when the connection is

	mu  sync.Mutex // one synchronization at a time
	err error      // the first that went wrong
}

// neutronPrefix begins the names of Neutron's switches and routers.
const neutronPrefix = "neutron-"

// connect connects to a database; ended is closed when the connection is.
func connect(ctx context.Context, endpoint string) (c client.Client, ended chan struct{}, err error) {
	models, err := nbdb.FullDatabaseModel()
	if err != nil {
		return nil, nil, fmt.Errorf("the model of the northbound database: %w", err)
	}
	if c, err = client.NewOVSDBClient(models, client.WithEndpoint(endpoint)); err != nil {
		return nil, nil, fmt.Errorf("preparing a connection to %s: %w", endpoint, err)
	}
	if err := c.Connect(ctx); err != nil {
		return nil, nil, fmt.Errorf("connecting to %s: %w", endpoint, err)
	}
	ended = make(chan struct{})
	go func() {
		<-c.DisconnectNotify()
		close(ended)
	}()
	return c, ended, nil
}

// Follow begins to keep a database at an endpoint in step with a cloud, until Close.
func Follow(ctx context.Context, cloud *openstack.Cloud, endpoint string) (*Neutron, error) {
	c, ended, err := connect(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	n := &Neutron{cloud: cloud, client: c, ended: ended}
	if err := n.Sync(ctx); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	cloud.OnRequest(func(_ int, r openstack.Request) {
		if r.After && r.Method != http.MethodGet &&
			(strings.Contains(r.Path, "/networks") || strings.Contains(r.Path, "/routers")) {
			_ = n.Sync(context.WithoutCancel(ctx)) // Close tells
		}
	})
	return n, nil
}

// Close ends it. The error is the first that a synchronization met.
func (n *Neutron) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.client == nil {
		return n.err
	}
	n.client.Close()
	<-n.ended
	n.client = nil
	return n.err
}

// Sync makes the rows what the cloud has.
func (n *Neutron) Sync(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.client == nil {
		return nil
	}
	err := errors.Join(
		n.sync(ctx, nbdb.LogicalSwitchTable, n.cloud.Networks()), n.sync(ctx, nbdb.LogicalRouterTable, n.cloud.Routers()),
	)
	if n.err == nil {
		n.err = err
	}
	return err
}

func (n *Neutron) sync(ctx context.Context, table string, docs []map[string]any) error {
	results, err := n.client.Transact(ctx,
		ovsdb.Operation{Op: ovsdb.OperationSelect, Table: table, Columns: []string{"name"}})
	if err != nil {
		return fmt.Errorf("reading %s: %w", table, err)
	}
	there := map[string]bool{}
	for _, row := range results[0].Rows {
		if name, _ := row["name"].(string); strings.HasPrefix(name, neutronPrefix) {
			there[name] = true
		}
	}
	var ops []ovsdb.Operation
	for _, doc := range docs {
		id, _ := doc["id"].(string)
		if name := neutronPrefix + id; there[name] {
			delete(there, name)
		} else {
			ops = append(ops, ovsdb.Operation{Op: ovsdb.OperationInsert, Table: table, Row: ovsdb.Row{"name": name}})
		}
	}
	for name := range there {
		ops = append(ops, ovsdb.Operation{
			Op: ovsdb.OperationDelete, Table: table,
			Where: []ovsdb.Condition{ovsdb.NewCondition("name", ovsdb.ConditionEqual, name)},
		})
	}
	if len(ops) == 0 {
		return nil
	}
	if results, err = n.client.Transact(ctx, ops...); err == nil {
		_, err = ovsdb.CheckOperationResults(results, ops)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", table, err)
	}
	return nil
}
