// SPDX-License-Identifier: Apache-2.0

package ovn

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/ovn-kubernetes/libovsdb/ovsdb/serverdb"

	"github.com/kuryr/raven/service/ovn/nbdb"
	"github.com/kuryr/raven/service/ovsdb"
)

// Every connection is a session of its own, with a copy of the database of its own: when it is lost, the copy is
// discarded and the next one is read as a whole. So no row can be known from a database that is not there any more.

// session is one connection to one server.
type session struct {
	*ovsdb.Session
	northbound *ovsdb.Copy
	rows       *cache.TableCache // of northbound
	endpoint   string
	busy       atomic.Int32 // transactions under way, each with a bound of its own
}

// headStart is how long a server is tried before the next one is tried beside it: one that does not answer costs no
// more.
const headStart = 300 * time.Millisecond

// attempt is what came of trying the server with an index.
type attempt struct {
	i   int
	s   *session
	err error
}

// connect tries the servers, the last one that was good first, each a while before the next. The first one that is
// good is taken. It returns the reasons of all where none is good.
func (n *Northbound) connect(ctx context.Context) (*session, error) {
	trying, cancel := context.WithCancel(ctx)
	defer cancel()
	results, reasons := make(chan attempt), make([]string, len(n.endpoints))
	started, open, good := 0, 0, attempt{}
	next := func() {
		i := started
		if i == len(n.endpoints) || good.s != nil || ctx.Err() != nil {
			return
		}
		started, open = started+1, open+1
		go func() { // it is waited for by its result
			s, err := n.connectTo(trying, n.endpoints[i])
			results <- attempt{i, s, err}
		}()
	}
	for next(); open > 0; {
		timer := n.config.Clock.NewTimer(headStart)
		select {
		case <-timer.C():
			next()
		case a := <-results:
			open--
			switch {
			case a.err != nil:
				reasons[a.i] = fmt.Sprintf("%s: %v", n.endpoints[a.i], a.err)
				next()
			case good.s == nil:
				good = a
				cancel()
			default:
				a.s.Close()
			}
		}
		timer.Stop()
	}
	switch {
	case good.s != nil:
		n.endpoints = append([]string{n.endpoints[good.i]}, without(n.endpoints, good.i)...)
		return good.s, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, errors.New(strings.Join(reasons, "; "))
}

func without(list []string, i int) []string {
	return append(append([]string{}, list[:i]...), list[i+1:]...)
}

func (n *Northbound) connectTo(ctx context.Context, endpoint string) (*session, error) {
	var settings *tls.Config
	if strings.HasPrefix(endpoint, "ssl:") {
		var err error
		if settings, err = n.config.tls(); err != nil {
			return nil, err
		}
	}
	dialing, cancel := context.WithTimeout(ctx, n.config.Timeout)
	defer cancel()
	opened, err := ovsdb.Dial(dialing, endpoint, settings)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	s := &session{Session: opened, endpoint: endpoint}
	asking, stop := s.Attentive(ctx, n.config.Clock, n.config.Timeout, "[ovn] connection_timeout")
	defer stop()
	if err := n.begin(asking, s); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// begin checks whether a server is the right one and has what is needed of its database copied.
func (n *Northbound) begin(ctx context.Context, s *session) error {
	var names []string
	if err := s.Call(ctx, "list_dbs", []any{}, func(result json.RawMessage) error {
		return json.Unmarshal(result, &names)
	}); err != nil {
		if strings.HasPrefix(s.endpoint, "ssl:") {
			return fmt.Errorf("asking for its databases: %w (the server has ended the connection: does it accept [ovn] "+
				"nb_certificate?)", err)
		}
		return fmt.Errorf("asking for its databases: %w", err)
	}
	if !slices.Contains(names, database) {
		return fmt.Errorf("it has no database %s", database)
	}
	if slices.Contains(names, "_Server") { // what has no such database is no cluster
		if err := s.checkLeader(ctx); err != nil {
			return err
		}
	}
	return n.copy(ctx, s)
}

// checkLeader checks whether the server may be written to, and keeps checking.
func (s *session) checkLeader(ctx context.Context) error {
	models, err := serverdb.FullDatabaseModel()
	if err != nil {
		return fmt.Errorf("the model of a server's own database: %w", err)
	}
	var own *ovsdb.Copy
	check := func() error {
		for _, m := range own.Rows.Table(serverdb.DatabaseTable).RowsShallow() {
			if d, ok := m.(*serverdb.Database); ok {
				if err := unfit(d); err != nil {
					return err
				}
			}
		}
		return nil
	}
	ready := make(chan struct{})
	own, err = s.Follow(ctx, models,
		map[string][]string{serverdb.DatabaseTable: {"name", "model", "leader", "connected"}}, func(libovsdb.TableUpdates2) {
			select {
			case <-ready:
			case <-s.Lost():
				return
			}
			if err := check(); err != nil {
				s.GiveUp(err)
			}
		})
	if err != nil {
		return err
	}
	close(ready)
	return check()
}

// unfit says why a server cannot be used: as one of a cluster only its leader takes changes at once and shows the
// newest.
func unfit(d *serverdb.Database) error {
	switch {
	case d.Name != database:
	case d.Model == serverdb.DatabaseModelClustered && !d.Leader:
		return errors.New("it is not the leader of the database's cluster")
	case d.Model != serverdb.DatabaseModelStandalone && !d.Connected:
		return errors.New("it has lost its connection to the other servers of the database")
	}
	return nil
}

// copy has the rows of the northbound database copied.
func (n *Northbound) copy(ctx context.Context, s *session) error {
	models, err := nbdb.FullDatabaseModel()
	if err != nil {
		return fmt.Errorf("the model of the northbound database: %w", err)
	}
	variables := nbdb.ChassisTemplateVarTable
	columns := map[string][]string{
		variables: {"chassis", "variables"},
		nbdb.LoadBalancerTable: {
			"name", "vips", "protocol", "options", "external_ids", "health_check", "ip_port_mappings", "selection_fields",
		},
		nbdb.LoadBalancerGroupTable: {"name", "load_balancer"},
		nbdb.LogicalSwitchTable:     {"name", "load_balancer_group"},
		nbdb.LogicalRouterTable:     {"name", "load_balancer_group"},
		nbdb.NBGlobalTable:          {"options"},
	}
	s.northbound, err = s.Follow(ctx, models, columns, func(rows libovsdb.TableUpdates2) { n.updated(s, rows) },
		ovsdb.Optional{Name: variables, Schema: nbdb.Schema().Tables[variables]})
	if err != nil {
		return err
	}
	s.rows = s.northbound.Rows
	return nil
}

// probe asks the server now and then whether it is there, until the session is lost or ctx ends. While a transaction
// is under way it does not count: the answer may have to wait for that, which is bounded by itself.
func (n *Northbound) probe(ctx context.Context, s *session) {
	for {
		timer := n.config.Clock.NewTimer(n.config.Probe)
		select {
		case <-ctx.Done():
		case <-s.Lost():
		case <-timer.C():
			asking, cancel := context.WithTimeout(ctx, n.config.Probe)
			err := s.Call(asking, "echo", libovsdb.NewEchoArgs(), nil)
			if asking.Err() != nil {
				err = fmt.Errorf("not within %s", n.config.Probe)
			}
			cancel()
			if err != nil && ctx.Err() == nil && s.busy.Load() == 0 {
				s.GiveUp(fmt.Errorf("the server does not answer: %w", err))
			}
			continue
		}
		timer.Stop()
		return
	}
}

// take brings one row of the row index up to date with the connection's copy.
func (s *session) take(b *rowIndex, table, uuid string, t *dirtySet) {
	rows := s.rows.Table(table)
	if rows == nil {
		return
	}
	takeRow(b, table, uuid, rows.Row(uuid), t)
}

// takeRow brings one row of the row index up to date; nil: it is gone.
func takeRow(b *rowIndex, table, uuid string, m model.Model, t *dirtySet) {
	switch table {
	case nbdb.LoadBalancerTable:
		have, _ := m.(*nbdb.LoadBalancer)
		b.balancer(uuid, have, t)
	case nbdb.LoadBalancerGroupTable:
		have, _ := m.(*nbdb.LoadBalancerGroup)
		b.group(uuid, have, t)
	case nbdb.ChassisTemplateVarTable:
		have, _ := m.(*nbdb.ChassisTemplateVar)
		b.takeVariables(uuid, have, t)
	case nbdb.LogicalSwitchTable:
		if have, _ := m.(*nbdb.LogicalSwitch); have != nil {
			b.place(switches(), uuid, have.Name, have.LoadBalancerGroup, t)
		} else {
			b.place(switches(), uuid, "", nil, t)
		}
	case nbdb.LogicalRouterTable:
		if have, _ := m.(*nbdb.LogicalRouter); have != nil {
			b.place(routers(), uuid, have.Name, have.LoadBalancerGroup, t)
		} else {
			b.place(routers(), uuid, "", nil, t)
		}
	}
}

// tls returns the settings of ssl connections, read anew each time: certificates are renewed.
func (c Config) tls() (*tls.Config, error) {
	return ovsdb.TLS{
		PrivateKey: c.PrivateKey, Certificate: c.Certificate, CACert: c.CACert,
		KeyOption: "[ovn] nb_private_key", CertificateOption: "[ovn] nb_certificate", CACertOption: "[ovn] nb_ca_cert",
	}.Config()
}

// version is northd's, as it writes it into the database.
func (s *session) version() string {
	for _, m := range s.rows.Table(nbdb.NBGlobalTable).RowsShallow() {
		if global, ok := m.(*nbdb.NBGlobal); ok {
			return global.Options["northd_internal_version"]
		}
	}
	return ""
}

// transact sends a transaction and returns the result of each operation.
func (s *session) transact(ctx context.Context, ops []libovsdb.Operation) ([]libovsdb.OperationResult, error) {
	if !s.northbound.Schema.ValidateOperations(ops...) {
		return nil, fmt.Errorf("the schema of %s has not all columns that are written", database)
	}
	s.busy.Add(1)
	defer s.busy.Add(-1)
	return s.Transact(ctx, database, ops...)
}
