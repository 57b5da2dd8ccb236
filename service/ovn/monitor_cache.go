// SPDX-License-Identifier: Apache-2.0

package ovn

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// monitorCache is the copy of some columns of a database, which the server keeps up to date.
type monitorCache struct {
	rows   *cache.TableCache
	schema ovsdb.DatabaseSchema
	// changed is told of the rows that the server has changed, once the copy has them; not of the first ones.
	changed func(ovsdb.TableUpdates2)
}

// follow makes a copy of columns, by table, of a database. It is kept up to date as long as the session lasts.
func (s *session) follow(
	ctx context.Context, models model.ClientDBModel, columns map[string][]string, changed func(ovsdb.TableUpdates2),
) (*monitorCache, error) {
	name := models.Name()
	r := &monitorCache{changed: changed}
	err := s.conn.call(ctx, "get_schema", ovsdb.NewGetSchemaArgs(name), func(result json.RawMessage) error {
		return json.Unmarshal(result, &r.schema)
	})
	if err != nil {
		return nil, fmt.Errorf("reading the schema of %s: %w", name, err)
	}
	whole, errs := model.NewDatabaseModel(r.schema, models)
	if len(errs) > 0 {
		return nil, fmt.Errorf("the schema of %s is none that is known: %w", name, errs[0])
	}
	if r.rows, err = cache.NewTableCache(whole, nil, nil); err != nil {
		return nil, fmt.Errorf("preparing a copy of %s: %w", name, err)
	}
	s.wait.Go(func() { r.rows.Run(s.lost) }) // it keeps account of what changes, which nobody asks for
	requests := map[string]ovsdb.MonitorRequest{}
	for table, list := range columns {
		requests[table] = ovsdb.MonitorRequest{Columns: list, Select: ovsdb.NewDefaultMonitorSelect()}
	}
	// The connection is read by one goroutine: what changes after the answer comes after it.
	err = s.conn.call(ctx, ovsdb.ConditionalMonitorRPC, ovsdb.NewMonitorArgs(name, name, requests),
		func(result json.RawMessage) error {
			var rows ovsdb.TableUpdates2
			if err := json.Unmarshal(result, &rows); err != nil {
				return err //nolint:wrapcheck // it is below
			}
			if err := r.rows.Populate2(rows); err != nil {
				return err //nolint:wrapcheck // it is below
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.caches[name] = r
			return nil
		})
	if err != nil {
		return nil, fmt.Errorf("copying %s: %w", name, err)
	}
	return r, nil
}

// notice takes over what the server says has changed. Its error ends the session: the copy would not be one any more.
func (s *session) notice(method string, params json.RawMessage) error {
	if method != "update2" {
		return nil // nothing else was asked for
	}
	var list []json.RawMessage
	if err := json.Unmarshal(params, &list); err != nil || len(list) != 2 {
		return fmt.Errorf("the server has sent an update of %d parts, not 2", len(list))
	}
	var name string
	var rows ovsdb.TableUpdates2
	if err := json.Unmarshal(list[0], &name); err != nil {
		return fmt.Errorf("reading which database an update is of: %w", err)
	}
	if err := json.Unmarshal(list[1], &rows); err != nil {
		return fmt.Errorf("reading an update of %s: %w", name, err)
	}
	s.mu.Lock()
	r := s.caches[name]
	s.mu.Unlock()
	if r == nil {
		return fmt.Errorf("the server has sent an update of %q, which was not asked for", name)
	}
	if err := r.rows.Populate2(rows); err != nil {
		return fmt.Errorf("taking over an update of %s: %w", name, err)
	}
	r.changed(rows)
	return nil
}

// transact sends a transaction and returns the result of each operation.
func (s *session) transact(ctx context.Context, ops []ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	if !s.northbound.schema.ValidateOperations(ops...) {
		return nil, fmt.Errorf("the schema of %s has not all columns that are written", database)
	}
	s.busy.Add(1)
	defer s.busy.Add(-1)
	var results []ovsdb.OperationResult
	err := s.conn.call(ctx, "transact", ovsdb.NewTransactArgs(database, ops...), func(result json.RawMessage) error {
		return json.Unmarshal(result, &results)
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}
