// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// Copy is a copy of some columns of a database, which the server keeps up to date.
type Copy struct {
	Rows   *cache.TableCache
	Schema ovsdb.DatabaseSchema
	// Missing are the optional tables that the database has not.
	Missing map[string]bool
	// changed is told of the rows that the server has changed, once the copy has them; not of the first ones.
	changed func(ovsdb.TableUpdates2)
}

// Optional is a table that a server may lack, as older ones do: the copy has no row of it then.
type Optional struct {
	Name   string
	Schema ovsdb.TableSchema
}

// Follow makes a copy of columns, by table, of a database. It is kept up to date as long as the session lasts. changed
// is told of the rows that the server has changed, once the copy has them, by the goroutine that reads.
func (s *Session) Follow(
	ctx context.Context, models model.ClientDBModel, columns map[string][]string, changed func(ovsdb.TableUpdates2),
	optional ...Optional,
) (*Copy, error) {
	name := models.Name()
	r := &Copy{changed: changed, Missing: map[string]bool{}}
	err := s.conn.call(ctx, "get_schema", ovsdb.NewGetSchemaArgs(name), func(result json.RawMessage) error {
		return safely(func() error { return json.Unmarshal(result, &r.Schema) })
	})
	if err != nil {
		return nil, fmt.Errorf("reading the schema of %s: %w", name, err)
	}
	for _, table := range optional {
		if r.Schema.Table(table.Name) == nil { // the models need one
			r.Schema.Tables[table.Name], r.Missing[table.Name] = table.Schema, true
		}
	}
	whole, errs := model.NewDatabaseModel(r.Schema, models)
	if len(errs) > 0 {
		return nil, fmt.Errorf("the schema of %s is none that is known: %w", name, errs[0])
	}
	if r.Rows, err = cache.NewTableCache(whole, nil, nil); err != nil {
		return nil, fmt.Errorf("preparing a copy of %s: %w", name, err)
	}
	s.wait.Go(func() { r.Rows.Run(s.lost) }) // it keeps account of what changes, which no caller asks for
	requests := map[string]ovsdb.MonitorRequest{}
	for table, list := range columns {
		if r.Missing[table] {
			continue
		}
		requests[table] = ovsdb.MonitorRequest{Columns: list, Select: ovsdb.NewDefaultMonitorSelect()}
	}
	// The connection is read by one goroutine: what changes after the answer comes after it.
	err = s.conn.call(ctx, ovsdb.ConditionalMonitorRPC, ovsdb.NewMonitorArgs(name, name, requests),
		func(result json.RawMessage) error {
			if _, err := r.populate(result); err != nil {
				return err
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.copies[name] = r
			return nil
		})
	if err != nil {
		return nil, fmt.Errorf("copying %s: %w", name, err)
	}
	return r, nil
}

// notice takes over what the server says has changed. Its error ends the session: the copy would not be one any more.
func (s *Session) notice(method string, params json.RawMessage) error {
	if method != "update2" {
		return nil // nothing else was asked for
	}
	var list []json.RawMessage
	if err := json.Unmarshal(params, &list); err != nil || len(list) != 2 {
		return fmt.Errorf("the server has sent an update of %d parts, not 2", len(list))
	}
	var name string
	if err := json.Unmarshal(list[0], &name); err != nil {
		return fmt.Errorf("reading which database an update is of: %w", err)
	}
	s.mu.Lock()
	r := s.copies[name]
	s.mu.Unlock()
	if r == nil {
		return fmt.Errorf("the server has sent an update of %q, which was not asked for", name)
	}
	rows, err := r.populate(list[1])
	if err != nil {
		return fmt.Errorf("taking over an update of %s: %w", name, err)
	}
	r.changed(rows)
	return nil
}

// populate takes rows over that the server has sent.
func (r *Copy) populate(text json.RawMessage) (rows ovsdb.TableUpdates2, err error) {
	err = safely(func() error {
		if err := json.Unmarshal(text, &rows); err != nil {
			return err //nolint:wrapcheck // the callers do
		}
		return r.Rows.Populate2(rows)
	})
	return rows, err
}

// safely decodes with libovsdb, which panics on some of what is not in OVSDB's notation.
func safely(decode func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the server has sent what is not in OVSDB's notation: %v", v)
		}
	}()
	return decode()
}
