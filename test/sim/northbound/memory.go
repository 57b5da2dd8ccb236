// SPDX-License-Identifier: Apache-2.0

package northbound

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"github.com/ovn-kubernetes/libovsdb/database/inmemory"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/server"

	"github.com/kuryr/raven/service/ovn/nbdb"
)

// StartAny starts the real database, or, where that is not installed, one in this process that holds the tables that
// Raven uses. Real says which. The latter is for trying things: it checks less, keeps nothing over its end, and
// cannot be killed and run again, frozen or wiped.
func StartAny(ctx context.Context, c Config) (*Server, error) {
	if Available() == nil {
		return Start(ctx, c)
	}
	return startMemory(ctx, c)
}

// Real says whether it is OVN's real database.
func (s *Server) Real() bool { return s.memory == nil }

func startMemory(ctx context.Context, c Config) (*Server, error) {
	models, err := nbdb.FullDatabaseModel()
	if err != nil {
		return nil, fmt.Errorf("the model of the northbound database: %w", err)
	}
	schema := nbdb.Schema()
	whole, errs := model.NewDatabaseModel(schema, models)
	if len(errs) > 0 {
		return nil, fmt.Errorf("the model of the northbound database: %w", errs[0])
	}
	quiet := logr.Discard()
	db := inmemory.NewDatabase(map[string]model.ClientDBModel{schema.Name: models}, &quiet)
	memory, err := server.NewOvsdbServer(db, &quiet, whole)
	if err != nil {
		return nil, fmt.Errorf("making a northbound database: %w", err)
	}
	s := &Server{config: c, db: filepath.Join(c.Dir, "none"), memory: memory, finished: make(chan struct{})}
	_ = os.Remove(s.socket())
	go func() {
		defer close(s.finished)
		_ = memory.Serve("unix", s.socket())
	}()
	for {
		if conn, err := (&net.Dialer{}).DialContext(ctx, "unix", s.socket()); err == nil {
			return s, conn.Close()
		}
		select {
		case <-s.finished:
			return nil, fmt.Errorf("the northbound database does not listen on %s: is its path too long?", s.socket())
		case <-ctx.Done():
			return nil, fmt.Errorf("the northbound database does not listen: %w", ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}
