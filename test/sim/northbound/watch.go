// SPDX-License-Identifier: Apache-2.0

package northbound

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"

	"github.com/kuryr/raven/service/ovn/nbdb"
)

// Watch is an onlooker of a database: it is told of every change as soon as that is committed, as OVN's northd is.
type Watch struct {
	client  client.Client
	ended   chan struct{}
	changes atomic.Int64
}

// StartWatch begins to watch: see is called with the name and the VIPs of every load balancer that is there, is
// made or changes; of one that goes VIPs are nil. It is called by one goroutine, and must be quick.
func StartWatch(ctx context.Context, endpoint string, see func(name string, vips map[string]string)) (*Watch, error) {
	c, ended, err := connect(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	w := &Watch{client: c, ended: ended}
	saw := func(m model.Model, there bool) {
		w.changes.Add(1)
		if lb, ok := m.(*nbdb.LoadBalancer); ok {
			if !there {
				lb = &nbdb.LoadBalancer{Name: lb.Name}
			}
			see(lb.Name, lb.Vips)
		}
	}
	c.Cache().AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc:    func(_ string, m model.Model) { saw(m, true) },
		UpdateFunc: func(_ string, _, m model.Model) { saw(m, true) },
		DeleteFunc: func(_ string, m model.Model) { saw(m, false) },
	})
	_, err = c.Monitor(ctx,
		c.NewMonitor(client.WithTable(&nbdb.LoadBalancer{}), client.WithTable(&nbdb.LoadBalancerGroup{}),
			client.WithTable(&nbdb.LogicalSwitch{}), client.WithTable(&nbdb.LogicalRouter{})))
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("watching %s: %w", endpoint, err)
	}
	return w, nil
}

// Changes counts the rows of load balancers, groups, switches and routers that were made, changed or removed since it
// began, and those that were there then.
func (w *Watch) Changes() int64 { return w.changes.Load() }

// Close ends it.
func (w *Watch) Close() {
	w.client.Close()
	<-w.ended
}
