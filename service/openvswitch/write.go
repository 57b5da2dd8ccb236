// SPDX-License-Identifier: Apache-2.0

package openvswitch

import (
	"context"
	"errors"
	"fmt"

	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/kuryr/raven/service/openvswitch/vswitchdb"
	"github.com/kuryr/raven/service/ovsdb"
)

// ForeignError says that a row in the way has no mark of Raven.
type ForeignError struct {
	Name string // of the interface
	Key  string // "name" or "iface-id", whatever both would have
}

func (f *ForeignError) Error() string {
	return fmt.Sprintf("interface %s of Open vSwitch has the same %s and no mark of Raven: remove it if nothing uses it",
		f.Name, f.Key)
}

// TakenError says that another interface of Raven has the same iface-id.
type TakenError struct{ Name string }

func (t *TakenError) Error() string { return fmt.Sprintf("interface %s has the same iface-id", t.Name) }

// Others says what becomes of other interfaces of Raven with the same iface-id.
type Others bool

// Either they are replaced, or they stay, and plugging is a *TakenError.
const (
	ReplaceOthers Others = true
	KeepOthers    Others = false
)

// Plug puts an interface into the integration bridge. A row of Raven of the same name is replaced, in the same
// transaction. It returns once the row is in View. The errors are *UnavailableError (the row may be there or not),
// *TakenError and *ForeignError; others say that the database has refused it.
func (s *Switch) Plug(ctx context.Context, want Interface, others Others) (Interface, error) {
	var row string
	err := s.write(ctx, func(v *View) ([]libovsdb.Operation, error) {
		if v.BridgeUUID == "" {
			return nil, fmt.Errorf("there is no bridge %s: ovn-controller makes it", s.config.Bridge)
		}
		if v.Elsewhere[want.Name] {
			return nil, &ForeignError{want.Name, "name"}
		}
		replaced, err := v.inTheWay(want, others)
		if err != nil {
			return nil, err
		}
		return plugging(v.BridgeUUID, want, replaced)
	}, func(results []libovsdb.OperationResult) func(*View) bool {
		row = results[0].UUID.GoUUID
		return func(v *View) bool { return v.Interfaces[want.Name].UUID == row }
	})
	if err != nil {
		return Interface{}, fmt.Errorf("plugging %s into %s: %w", want.Name, s.config.Bridge, err)
	}
	want.UUID = row
	return want, nil
}

// inTheWay returns the ports of the rows that an interface replaces.
func (v *View) inTheWay(want Interface, others Others) ([]string, error) {
	var replaced []string
	for name, i := range v.Interfaces {
		same := ""
		switch {
		case name == want.Name:
			same = "name"
		case i.ExternalIDs[IfaceID] == want.ExternalIDs[IfaceID]:
			same = IfaceID
		default:
			continue
		}
		if !i.Raven() {
			return nil, &ForeignError{name, same}
		}
		if same == IfaceID && others == KeepOthers {
			return nil, &TakenError{name}
		}
		replaced = append(replaced, i.PortUUID)
	}
	return replaced, nil
}

func plugging(bridge string, want Interface, replaced []string) ([]libovsdb.Operation, error) {
	ids, err := libovsdb.NewOvsMap(want.ExternalIDs)
	if err != nil {
		return nil, fmt.Errorf("writing external_ids: %w", err)
	}
	row := libovsdb.Row{"name": want.Name, "type": want.Type, "external_ids": ids}
	if want.MAC != "" {
		row["mac"] = want.MAC
	}
	if want.MTU != 0 {
		row["mtu_request"] = want.MTU
	}
	ops := []libovsdb.Operation{
		{Op: libovsdb.OperationInsert, Table: vswitchdb.InterfaceTable, UUIDName: "interface", Row: row},
		{
			Op: libovsdb.OperationInsert, Table: vswitchdb.PortTable, UUIDName: "port",
			Row: libovsdb.Row{"name": want.Name, "interfaces": libovsdb.UUID{GoUUID: "interface"}},
		},
	}
	if len(replaced) > 0 {
		ops = append(ops, ports(bridge, libovsdb.MutateOperationDelete, replaced...))
	}
	return append(ops, ports(bridge, libovsdb.MutateOperationInsert, "port")), nil
}

// ports adds ports to a bridge or takes them out; rows that nothing refers to are deleted by the database.
func ports(bridge string, mutator libovsdb.Mutator, uuids ...string) libovsdb.Operation {
	set := libovsdb.OvsSet{}
	for _, uuid := range uuids {
		set.GoSet = append(set.GoSet, libovsdb.UUID{GoUUID: uuid})
	}
	return libovsdb.Operation{
		Op: libovsdb.OperationMutate, Table: vswitchdb.BridgeTable,
		Where: []libovsdb.Condition{
			libovsdb.NewCondition("_uuid", libovsdb.ConditionEqual, libovsdb.UUID{GoUUID: bridge}),
		},
		Mutations: []libovsdb.Mutation{*libovsdb.NewMutation("ports", mutator, set)},
	}
}

// Unplug takes those of Raven's interfaces that match out of the integration bridge, and returns them. It returns once
// they are not in View any more. That none matches is no error.
func (s *Switch) Unplug(ctx context.Context, match func(Interface) bool) ([]Interface, error) {
	var gone []Interface
	err := s.write(ctx, func(v *View) ([]libovsdb.Operation, error) {
		if gone = v.Where(match); len(gone) == 0 {
			return nil, nil
		}
		uuids := make([]string, 0, len(gone))
		for _, i := range gone {
			uuids = append(uuids, i.PortUUID)
		}
		return []libovsdb.Operation{ports(v.BridgeUUID, libovsdb.MutateOperationDelete, uuids...)}, nil
	}, func([]libovsdb.OperationResult) func(*View) bool {
		return func(v *View) bool {
			for _, i := range gone {
				if v.Interfaces[i.Name].UUID == i.UUID {
					return false
				}
			}
			return true
		}
	})
	if err != nil {
		return nil, fmt.Errorf("unplugging from %s: %w", s.config.Bridge, err)
	}
	return gone, nil
}

// write makes a transaction of the present view, alone, and waits until the view shows it.
func (s *Switch) write(
	ctx context.Context, build func(*View) ([]libovsdb.Operation, error),
	shown func([]libovsdb.OperationResult) func(*View) bool,
) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	select {
	case s.writing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.writing }()
	session, view, err := s.connected(ctx)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ops, err := build(view)
	if err != nil || len(ops) == 0 {
		return err
	}
	// Others use the session, too: what was sent is waited for, whatever becomes of the one who asked for it.
	sent, ended := context.WithTimeout(context.WithoutCancel(ctx), s.config.Timeout)
	defer ended()
	results, err := s.transact(sent, session, ops)
	if err != nil {
		return err
	}
	return s.await(sent, session, shown(results))
}

// connected waits until the database can be asked.
func (s *Switch) connected(ctx context.Context) (*ovsdb.Session, *View, error) {
	for {
		s.mu.Lock()
		session, view, changed, why := s.session, s.view, s.changed, s.err
		s.mu.Unlock()
		if view != nil {
			return session, view, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, nil, &UnavailableError{fmt.Errorf("%w: %w", why, context.Cause(ctx))}
		}
	}
}

func (s *Switch) transact(
	ctx context.Context, session *ovsdb.Session, ops []libovsdb.Operation,
) ([]libovsdb.OperationResult, error) {
	results, err := session.Transact(ctx, database, ops...)
	if err != nil {
		// Nothing is known of it: all is read anew, so that what comes next sees what became of it.
		session.GiveUp(fmt.Errorf("a transaction was not answered: %w", err))
		return nil, &UnavailableError{fmt.Errorf("a transaction was not answered: %w", err)}
	}
	details, err := libovsdb.CheckOperationResults(results, ops)
	if err == nil {
		return results, nil
	}
	for _, detail := range details {
		err = errors.Join(err, detail)
	}
	return nil, fmt.Errorf("the database refused it: %w", err)
}

// await waits until the view of a session shows what was written.
func (s *Switch) await(ctx context.Context, session *ovsdb.Session, shown func(*View) bool) error {
	for {
		s.mu.Lock()
		view, changed, same := s.view, s.changed, s.session == session
		s.mu.Unlock()
		switch {
		case !same:
			return &UnavailableError{errors.New("the connection was lost")}
		case shown(view):
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
