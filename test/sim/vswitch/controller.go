// SPDX-License-Identifier: Apache-2.0

package vswitch

import (
	"context"
	"errors"
	"fmt"
	"sync"

	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/kuryr/raven/service/openvswitch/vswitchdb"
	"github.com/kuryr/raven/service/ovsdb"
)

// Controller plays ovn-controller: it says of each interface with an iface-id that it is installed.
type Controller struct {
	session *ovsdb.Session
	copy    *ovsdb.Copy
	wake    chan struct{}
	cancel  context.CancelFunc
	done    chan struct{}

	mu     sync.Mutex // guards what follows
	paused bool
}

// Control starts a controller for the local database.
func (s *Server) Control(ctx context.Context) (*Controller, error) {
	session, err := ovsdb.Dial(ctx, s.Endpoint(), nil)
	if err != nil {
		return nil, err
	}
	c := &Controller{session: session, wake: make(chan struct{}, 1), done: make(chan struct{})}
	models, err := vswitchdb.FullDatabaseModel()
	if err == nil {
		c.copy, err = session.Follow(ctx, models, map[string][]string{vswitchdb.InterfaceTable: {"name", "external_ids"}},
			func(libovsdb.TableUpdates2) { c.again() })
	}
	if err != nil {
		session.Close()
		return nil, fmt.Errorf("playing ovn-controller: %w", err)
	}
	ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	c.again()
	go c.run(ctx)
	return c, nil
}

func (c *Controller) again() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Pause stops it from doing anything, until Resume.
func (c *Controller) Pause() { c.set(true) }

// Resume ends Pause.
func (c *Controller) Resume() { c.set(false) }

func (c *Controller) set(paused bool) {
	c.mu.Lock()
	c.paused = paused
	c.mu.Unlock()
	c.again()
}

// Close ends it.
func (c *Controller) Close() {
	c.cancel()
	<-c.done
	c.session.Close()
}

func (c *Controller) run(ctx context.Context) {
	defer close(c.done)
	for {
		select {
		case <-c.wake:
		case <-ctx.Done():
			return
		case <-c.session.Lost():
			return
		}
		c.mu.Lock()
		paused := c.paused
		c.mu.Unlock()
		if paused {
			continue
		}
		if err := c.install(ctx); err != nil && ctx.Err() == nil {
			c.session.GiveUp(err)
		}
	}
}

func (c *Controller) install(ctx context.Context) error {
	var problems []error
	for uuid, m := range c.copy.Rows.Table(vswitchdb.InterfaceTable).Rows() {
		row, ok := m.(*vswitchdb.Interface)
		if !ok || row.ExternalIDs["iface-id"] == "" || row.ExternalIDs["ovn-installed"] != "" {
			continue
		}
		installed, err := libovsdb.NewOvsMap(map[string]string{"ovn-installed": "true"})
		if err != nil {
			return err
		}
		_, err = c.session.Transact(ctx, "Open_vSwitch", libovsdb.Operation{
			Op: libovsdb.OperationMutate, Table: vswitchdb.InterfaceTable,
			Where: []libovsdb.Condition{
				libovsdb.NewCondition("_uuid", libovsdb.ConditionEqual, libovsdb.UUID{GoUUID: uuid}),
			},
			Mutations: []libovsdb.Mutation{*libovsdb.NewMutation("external_ids", libovsdb.MutateOperationInsert, installed)},
		})
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}
