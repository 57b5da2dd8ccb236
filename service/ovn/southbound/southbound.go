// SPDX-License-Identifier: Apache-2.0

// Package southbound asks OVN's southbound database whose a port is and where it is bound. It must never write.
package southbound

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/kuryr/raven/service/ovsdb"
)

const (
	database = "OVN_Southbound"
	deviceID = "neutron:device_id"
)

// Config says where the database is.
type Config struct {
	// Endpoints are the servers in OVSDB's notation, as ovn-remote has them; any of a cluster may be asked.
	Endpoints []string
	// TLS is for ssl.
	TLS ovsdb.TLS
	// Timeout bounds a question, the connection included; 0: 2 s.
	Timeout time.Duration
}

// Binding is what is known of a port.
type Binding struct {
	// DeviceID is Neutron's device_id of the port, which Raven sets to the UID of its pod.
	DeviceID string
	// Chassis is the UUID of the chassis that the port is bound to; empty: none.
	Chassis string
}

// ErrUnknownPort says that the database has no such port (yet).
var ErrUnknownPort = errors.New("OVN's southbound database has no such port")

// UnavailableError says that the database cannot be asked.
type UnavailableError struct{ Err error }

func (u *UnavailableError) Error() string {
	return fmt.Sprintf("OVN's southbound database cannot be asked: %v", u.Err)
}

// Unwrap returns why.
func (u *UnavailableError) Unwrap() error { return u.Err }

// Client asks the database, over a connection that is kept while it works. Close ends it.
type Client struct {
	config Config

	mu      sync.Mutex // guards session; not held while anything is asked
	session *ovsdb.Session
	closed  bool
}

// New returns a client that is not connected.
func New(c Config) *Client {
	if c.Timeout <= 0 {
		c.Timeout = 2 * time.Second
	}
	return &Client{config: c}
}

// Binding returns what the database has of a port. The errors are ErrUnknownPort, *UnavailableError, and the context's
// where that has ended before anything was asked. A question that was asked is waited for, whatever becomes of the
// context: others ask by the same connection.
func (c *Client) Binding(ctx context.Context, port string) (Binding, error) {
	if ctx.Err() != nil {
		return Binding{}, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.config.Timeout)
	defer cancel()
	results, err := c.ask(ctx, libovsdb.Operation{
		Op: libovsdb.OperationSelect, Table: "Port_Binding", Columns: []string{"external_ids", "chassis"},
		Where: []libovsdb.Condition{libovsdb.NewCondition("logical_port", libovsdb.ConditionEqual, port)},
	})
	if err != nil {
		return Binding{}, &UnavailableError{err}
	}
	if len(results) != 1 || results[0].Error != "" {
		return Binding{}, &UnavailableError{fmt.Errorf("the server has answered %v", results)}
	}
	if len(results[0].Rows) == 0 {
		return Binding{}, ErrUnknownPort
	}
	return binding(results[0].Rows[0]), nil
}

// ask asks once, and once more where the connection ended meanwhile: it may have been kept for long.
func (c *Client) ask(ctx context.Context, question libovsdb.Operation) ([]libovsdb.OperationResult, error) {
	for first := true; ; first = false {
		session, err := c.connect(ctx)
		if err != nil {
			return nil, err
		}
		results, err := session.Transact(ctx, database, question)
		if err == nil {
			return results, nil
		}
		session.GiveUp(err)
		if !first || ctx.Err() != nil {
			return nil, err
		}
	}
}

func binding(row libovsdb.Row) Binding {
	var b Binding
	if ids, ok := row["external_ids"].(libovsdb.OvsMap); ok {
		b.DeviceID, _ = ids.GoMap[deviceID].(string)
	}
	if chassis, ok := row["chassis"].(libovsdb.UUID); ok {
		b.Chassis = chassis.GoUUID
	}
	return b
}

// connect returns the session, or a new one where there is none that works.
func (c *Client) connect(ctx context.Context) (*ovsdb.Session, error) {
	c.mu.Lock()
	session, closed := c.session, c.closed
	c.mu.Unlock()
	if closed {
		return nil, errors.New("the connection is closed")
	}
	if session != nil && !lost(session) {
		return session, nil
	}
	made, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	if c.closed || c.session != nil && !lost(c.session) {
		session = c.session // another question was faster
		c.mu.Unlock()
		made.Close()
		if session == nil {
			return nil, errors.New("the connection is closed")
		}
		return session, nil
	}
	old := c.session
	c.session = made
	c.mu.Unlock()
	if old != nil {
		old.Close()
	}
	return made, nil
}

func (c *Client) dial(ctx context.Context) (*ovsdb.Session, error) {
	var problems []error
	for _, endpoint := range c.config.Endpoints {
		endpoint = strings.TrimSpace(endpoint)
		var settings *tls.Config
		if strings.HasPrefix(endpoint, "ssl:") {
			var err error
			if settings, err = c.config.TLS.Config(); err != nil {
				problems = append(problems, err)
				continue
			}
		}
		session, err := ovsdb.Dial(ctx, endpoint, settings)
		if err == nil {
			return session, nil
		}
		problems = append(problems, fmt.Errorf("%s: %w", endpoint, err))
	}
	if len(problems) == 0 {
		return nil, errors.New("external_ids of Open vSwitch have no ovn-remote")
	}
	return nil, errors.Join(problems...)
}

func lost(session *ovsdb.Session) bool {
	select {
	case <-session.Lost():
		return true
	default:
		return false
	}
}

// Close ends the connection.
func (c *Client) Close() {
	c.mu.Lock()
	session := c.session
	c.session, c.closed = nil, true
	c.mu.Unlock()
	if session != nil {
		session.Close()
	}
}
