package ovn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/ovn-kubernetes/libovsdb/ovsdb/serverdb"

	"github.com/kuryr/raven/service/ovn/nbdb"
)

// Every connection is a session of its own, with a copy of the database of its own: when it is lost, the copy is thrown away and the next one is
// read as a whole. So no row can be known from a database that is not there any more.

// session is one connection to one server.
type session struct {
	client   client.Client
	server   client.Client // the same server's database on itself; nil where it has none
	rows     *cache.TableCache
	endpoint string

	once  sync.Once
	lost  chan struct{} // closed when it is of no use any more
	err   error         // why; set before lost is closed
	ended chan struct{}
	wait  sync.WaitGroup
}

// closeWithin bounds how long a connection may take to close.
const closeWithin = 2 * time.Second

// giveUp ends the use of a session; close follows by whoever runs it.
func (s *session) giveUp(why error) {
	s.once.Do(func() {
		s.err = why
		close(s.lost)
	})
}

// connect tries the servers one after another, the last one that was good first. It returns the reasons of all where none is good.
func (n *Northbound) connect(ctx context.Context) (*session, error) {
	var reasons []string
	for i, endpoint := range n.endpoints {
		trying, cancel := context.WithTimeout(ctx, n.config.Timeout)
		s, err := n.connectTo(trying, endpoint)
		cancel()
		if err == nil {
			n.endpoints = append([]string{endpoint}, without(n.endpoints, i)...)
			return s, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		reasons = append(reasons, fmt.Sprintf("%s: %v", endpoint, err))
	}
	return nil, errors.New(strings.Join(reasons, "; "))
}

func without(list []string, i int) []string {
	return append(append([]string{}, list[:i]...), list[i+1:]...)
}

func (n *Northbound) connectTo(ctx context.Context, endpoint string) (*session, error) {
	s := &session{endpoint: endpoint, lost: make(chan struct{}), ended: make(chan struct{})}
	options := []client.Option{client.WithEndpoint(endpoint)}
	if strings.HasPrefix(endpoint, "ssl:") {
		settings, err := n.config.tls()
		if err != nil {
			return nil, err
		}
		options = append(options, client.WithTLSConfig(settings))
	}
	err := n.checkLeader(ctx, s, options)
	if err == nil {
		err = n.copy(ctx, s, options)
	}
	if err != nil {
		s.close()
		if strings.HasPrefix(endpoint, "ssl:") && strings.Contains(err.Error(), "listdbs") {
			err = fmt.Errorf("%w (the server has ended the connection: does it accept [ovn] nb_certificate?)", err)
		}
		return nil, err
	}
	return s, nil
}

// checkLeader looks whether the server may be written to, and keeps looking.
func (n *Northbound) checkLeader(ctx context.Context, s *session, options []client.Option) error {
	models, err := serverdb.FullDatabaseModel()
	if err != nil {
		return fmt.Errorf("the model of a server's own database: %w", err)
	}
	c, err := client.NewOVSDBClient(models, options...)
	if err != nil {
		return fmt.Errorf("preparing a connection: %w", err)
	}
	if err := c.Connect(ctx); err != nil {
		if strings.Contains(err.Error(), "_Server not found") {
			return nil // what has no such database is no cluster
		}
		return err
	}
	s.server = c
	s.listen(c)
	look := func(m model.Model) {
		if d, ok := m.(*serverdb.Database); ok {
			if err := unfit(d); err != nil {
				s.giveUp(err)
			}
		}
	}
	c.Cache().AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc: func(_ string, m model.Model) { look(m) }, UpdateFunc: func(_ string, _, m model.Model) { look(m) },
	})
	monitor := c.NewMonitor(client.WithTable(&serverdb.Database{}))
	monitor.Method = ovsdb.ConditionalMonitorRPC // this database has no other
	if _, err := c.Monitor(ctx, monitor); err != nil {
		return fmt.Errorf("watching who leads: %w", err)
	}
	for _, m := range c.Cache().Table(serverdb.DatabaseTable).RowsShallow() {
		if d, ok := m.(*serverdb.Database); ok {
			if err := unfit(d); err != nil {
				return err
			}
		}
	}
	return nil
}

// unfit says why a server cannot be used: as one of a cluster only its leader takes changes at once and shows the newest.
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

// copy connects to the northbound database and has its rows copied.
func (n *Northbound) copy(ctx context.Context, s *session, options []client.Option) error {
	models, err := nbdb.FullDatabaseModel()
	if err != nil {
		return fmt.Errorf("the model of the northbound database: %w", err)
	}
	c, err := client.NewOVSDBClient(models, options...)
	if err != nil {
		return fmt.Errorf("preparing a connection: %w", err)
	}
	if err := c.Connect(ctx); err != nil {
		return err
	}
	s.client = c
	s.listen(c)
	s.rows = c.Cache()
	s.rows.AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc:    func(table string, m model.Model) { n.event(s, table, m) },
		UpdateFunc: func(table string, _, m model.Model) { n.event(s, table, m) },
		DeleteFunc: func(table string, m model.Model) { n.event(s, table, m) },
	})
	lb, group, ls, lr, global := &nbdb.LoadBalancer{}, &nbdb.LoadBalancerGroup{}, &nbdb.LogicalSwitch{}, &nbdb.LogicalRouter{}, &nbdb.NBGlobal{}
	_, err = c.Monitor(ctx, c.NewMonitor(
		client.WithTable(lb, &lb.Name, &lb.Vips, &lb.Protocol, &lb.Options, &lb.ExternalIDs),
		client.WithTable(group, &group.Name, &group.LoadBalancer),
		client.WithTable(ls, &ls.Name, &ls.LoadBalancerGroup),
		client.WithTable(lr, &lr.Name, &lr.LoadBalancerGroup),
		client.WithTable(global, &global.Options),
	))
	if err != nil {
		return fmt.Errorf("copying the database: %w", err)
	}
	return nil
}

// listen gives the session up when a connection of it is lost.
func (s *session) listen(c client.Client) {
	notify := c.DisconnectNotify()
	s.wait.Go(func() {
		select {
		case <-notify:
			s.giveUp(errors.New("the connection was lost"))
		case <-s.ended:
		}
	})
}

// close ends both connections.
func (s *session) close() {
	s.giveUp(errors.New("the connection was closed"))
	for _, c := range []client.Client{s.client, s.server} {
		if c != nil {
			c.Close()
		}
	}
	closed := make(chan struct{})
	go func() {
		s.wait.Wait()
		close(closed)
	}()
	bound := time.AfterFunc(closeWithin, func() { close(s.ended) })
	<-closed
	bound.Stop()
}

// probe asks the server now and then whether it is there, until the session is lost or ctx ends.
func (n *Northbound) probe(ctx context.Context, s *session) {
	for {
		timer := n.config.Clock.NewTimer(n.config.Probe)
		select {
		case <-ctx.Done():
		case <-s.lost:
		case <-timer.C():
			asking, cancel := context.WithTimeout(ctx, n.config.Probe)
			err := s.client.Echo(asking)
			if err == nil && s.server != nil {
				err = s.server.Echo(asking)
			}
			if asking.Err() != nil {
				err = fmt.Errorf("not within %s", n.config.Probe)
			}
			cancel()
			if err != nil && ctx.Err() == nil {
				s.giveUp(fmt.Errorf("the server does not answer: %w", err))
			}
			continue
		}
		timer.Stop()
		return
	}
}

// take brings one row of the book up to date with the connection's copy.
func (s *session) take(b *book, table, uuid string, t *touched) {
	rows := s.rows.Table(table)
	if rows == nil {
		return
	}
	takeRow(b, table, uuid, rows.Row(uuid), t)
}

// takeRow brings one row of the book up to date; nil: it is gone.
func takeRow(b *book, table, uuid string, m model.Model, t *touched) {
	switch table {
	case nbdb.LoadBalancerTable:
		have, _ := m.(*nbdb.LoadBalancer)
		b.balancer(uuid, have, t)
	case nbdb.LoadBalancerGroupTable:
		have, _ := m.(*nbdb.LoadBalancerGroup)
		b.group(uuid, have, t)
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

// tls returns the settings of ssl connections, read anew each time: certificates are renewed. As everywhere in Open vSwitch it is the
// authority that counts, not the name in the server's certificate, which has none of a host.
func (c Config) tls() (*tls.Config, error) {
	pool, err := c.authority()
	if err != nil {
		return nil, err
	}
	own, err := tls.LoadX509KeyPair(c.Certificate, c.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("reading [ovn] nb_certificate %s and nb_private_key %s: %w", c.Certificate, c.PrivateKey, err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // of the usual check only the host's name is left out: see VerifyConnection
		VerifyConnection:   func(state tls.ConnectionState) error { return verify(pool, state) },
	}, nil
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
