// SPDX-License-Identifier: Apache-2.0

// Package ovsdb is one connection to an OVSDB server (RFC 7047), with copies of the tables that are asked for. It must
// never repair a connection: when one is lost its copies are discarded with it, so that no row is known from a
// database that is not there any more.
package ovsdb

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
	"k8s.io/utils/clock"
)

// Session is one connection to one server. The caller ends it with Close.
type Session struct {
	conn *connection

	once sync.Once
	lost chan struct{} // closed when it is of no use any more
	err  error         // why; set before lost is closed
	wait sync.WaitGroup

	mu     sync.Mutex // guards what follows
	copies map[string]*Copy
}

// Dial connects to a server, an address in OVSDB's notation: unix:/path, tcp:host:port or ssl:host:port, the latter
// with settings.
func Dial(ctx context.Context, endpoint string, settings *tls.Config) (*Session, error) {
	s := &Session{lost: make(chan struct{}), copies: map[string]*Copy{}}
	conn, err := dial(ctx, endpoint, settings, s.notice)
	if err != nil {
		return nil, err
	}
	s.conn = conn
	s.wait.Go(func() {
		<-conn.ended
		s.GiveUp(conn.why())
	})
	return s, nil
}

// Call asks the server for something. take gets the result before anything that the server sends afterwards is looked
// at; it may be nil.
func (s *Session) Call(ctx context.Context, method string, params any, take func(json.RawMessage) error) error {
	return s.conn.call(ctx, method, params, take)
}

// Transact sends a transaction and returns the result of each operation.
func (s *Session) Transact(ctx context.Context, database string, ops ...ovsdb.Operation) (
	[]ovsdb.OperationResult, error,
) {
	var results []ovsdb.OperationResult
	err := s.conn.call(ctx, "transact", ovsdb.NewTransactArgs(database, ops...), func(result json.RawMessage) error {
		return safely(func() error { return json.Unmarshal(result, &results) })
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// Attentive returns a context that ends once the server has said nothing for that long, or at most twice as long:
// what it sends may take longer, for a large database does. The option that bounds it is for the error. The caller
// ends the context.
func (s *Session) Attentive(
	ctx context.Context, clk clock.Clock, silence time.Duration, option string,
) (context.Context, context.CancelFunc) {
	return s.conn.attentive(ctx, clk, silence, option)
}

// GiveUp ends the use of a session, and all that is under way on its connection; Close follows by whoever runs it.
func (s *Session) GiveUp(why error) {
	s.once.Do(func() {
		s.err = why
		close(s.lost)
		s.conn.close()
	})
}

// Lost is closed when the session is of no use any more.
func (s *Session) Lost() <-chan struct{} { return s.lost }

// Err says why the session was lost; it may be asked once Lost is closed.
func (s *Session) Err() error { return s.err }

// Close ends the connection and waits for what runs on it.
func (s *Session) Close() {
	s.GiveUp(errors.New("the connection was closed"))
	s.conn.wait()
	s.wait.Wait()
}
