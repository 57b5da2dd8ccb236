// SPDX-License-Identifier: Apache-2.0

// Package openvswitch is the local Open vSwitch, by its database: which chassis it is, and which interfaces are plugged
// into the integration bridge. It must never change a row that has no mark of Raven.
package openvswitch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"
	"k8s.io/utils/clock"

	"github.com/kuryr/raven/service/openvswitch/vswitchdb"
	"github.com/kuryr/raven/service/ovsdb"
)

const (
	database = "Open_vSwitch"

	defaultTimeout      = 10 * time.Second
	defaultFirstBackoff = 50 * time.Millisecond
	defaultLastBackoff  = 2 * time.Second
	defaultProbe        = 5 * time.Second
)

// Config says where the database is, and which bridge is the integration bridge.
type Config struct {
	// Endpoint is the server in OVSDB's notation, usually unix:/var/run/openvswitch/db.sock.
	Endpoint string
	// Bridge is the integration bridge, usually br-int.
	Bridge string
	// Timeout bounds a transaction, and the silence of a server that is connected to; 0: 10 s.
	Timeout time.Duration
	// Probe is the time between two probes of a server that sends nothing; 0: 5 s.
	Probe time.Duration
	// BackoffMin and BackoffMax bound the time between two attempts to connect; 0: 50 ms, 2 s.
	BackoffMin, BackoffMax time.Duration
	Logger                 *slog.Logger // nil: slog.Default()
	Clock                  clock.Clock  // nil: the real one
}

// Validate fills in defaults and says what is missing.
func (c *Config) Validate() error {
	scheme, rest, _ := strings.Cut(c.Endpoint, ":")
	switch {
	case scheme == "unix" && !strings.HasPrefix(rest, "/"), scheme != "unix" && scheme != "tcp", rest == "":
		return fmt.Errorf("%q is no address of Open vSwitch's database: it is unix:/path or tcp:address:port", c.Endpoint)
	case c.Bridge == "":
		return errors.New("there is no name of the integration bridge")
	}
	for _, d := range []struct {
		at       *time.Duration
		standard time.Duration
	}{
		{&c.Timeout, defaultTimeout},
		{&c.Probe, defaultProbe},
		{&c.BackoffMin, defaultFirstBackoff},
		{&c.BackoffMax, defaultLastBackoff},
	} {
		if *d.at <= 0 {
			*d.at = d.standard
		}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	return nil
}

// UnavailableError says that the database cannot be asked now. What was being written may be written or not.
type UnavailableError struct{ Err error }

func (u *UnavailableError) Error() string {
	return fmt.Sprintf("Open vSwitch's database is unreachable: %v", u.Err)
}

// Unwrap returns why.
func (u *UnavailableError) Unwrap() error { return u.Err }

var errNotConnected = errors.New("not connected yet")

// Switch is the connection to the database. Run keeps it up.
type Switch struct {
	config  Config
	writing chan struct{} // holds one thing while a transaction is under way

	mu      sync.Mutex // guards what follows
	session *ovsdb.Session
	copy    *ovsdb.Copy
	view    *View
	err     error         // why there is no view
	changed chan struct{} // closed at the next change of the view
}

// New returns a Switch that is not connected.
func New(c Config) (*Switch, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Switch{
		config: c, writing: make(chan struct{}, 1), err: errNotConnected, changed: make(chan struct{}),
	}, nil
}

// Run connects, again and again, until the context ends.
func (s *Switch) Run(ctx context.Context) error {
	pause, said := s.config.BackoffMin, ""
	for ctx.Err() == nil {
		session, err := s.connect(ctx)
		if err == nil {
			s.config.Logger.Info("connected to Open vSwitch's database", "endpoint", s.config.Endpoint)
			pause, said = s.config.BackoffMin, ""
			err = s.follow(ctx, session)
		}
		if ctx.Err() != nil {
			break
		}
		s.unavailable(err)
		if text := err.Error(); text != said {
			said = text
			s.config.Logger.Warn("Open vSwitch's database is unreachable", "endpoint", s.config.Endpoint, "error", err)
		}
		timer := s.config.Clock.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C():
		}
		timer.Stop()
		pause = min(2*pause, s.config.BackoffMax)
	}
	s.unavailable(errors.New("the connection was closed"))
	return ctx.Err()
}

// connect returns a session whose copy is complete.
func (s *Switch) connect(ctx context.Context) (*ovsdb.Session, error) {
	dialing, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	session, err := ovsdb.Dial(dialing, s.config.Endpoint, nil)
	if err != nil {
		return nil, err
	}
	asking, stop := session.Attentive(ctx, s.config.Clock, s.config.Timeout, "the load of Open vSwitch's database")
	defer stop()
	models, err := vswitchdb.FullDatabaseModel()
	if err != nil {
		session.Close()
		return nil, fmt.Errorf("the model of Open vSwitch's database: %w", err)
	}
	rows, err := session.Follow(asking, models, map[string][]string{
		vswitchdb.OpenvSwitchTable: {"bridges", "external_ids", "ovs_version", "ssl"},
		vswitchdb.BridgeTable:      {"name", "datapath_type", "ports", "external_ids"},
		vswitchdb.PortTable:        {"name", "interfaces", "external_ids"},
		vswitchdb.InterfaceTable:   {"name", "type", "external_ids", "ofport", "error", "mac", "mtu_request"},
		vswitchdb.SSLTable:         {"private_key", "certificate", "ca_cert"},
	}, func(libovsdb.TableUpdates2) { s.refresh(session) })
	if err != nil {
		session.Close()
		return nil, err
	}
	s.mu.Lock()
	s.session, s.copy = session, rows
	s.mu.Unlock()
	s.refresh(session)
	return session, nil
}

// follow lasts as long as the session; its error says why that has ended.
func (s *Switch) follow(ctx context.Context, session *ovsdb.Session) error {
	defer session.Close()
	for {
		timer := s.config.Clock.NewTimer(s.config.Probe)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-session.Lost():
			timer.Stop()
			return session.Err()
		case <-timer.C():
		}
		asking, cancel := context.WithTimeout(ctx, s.config.Timeout)
		err := session.Call(asking, "echo", libovsdb.NewEchoArgs(), nil)
		cancel()
		if err != nil && ctx.Err() == nil {
			session.GiveUp(fmt.Errorf("the server does not answer: %w", err))
		}
	}
}

// refresh makes the view anew from the session's copy.
func (s *Switch) refresh(session *ovsdb.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session != session {
		return // its copy is not complete, or it is not used any more
	}
	s.view, s.err = newView(s.copy.Rows, s.config.Bridge), nil
	s.tell()
}

func (s *Switch) unavailable(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session, s.copy, s.view, s.err = nil, nil, nil, why
	s.tell()
}

// tell wakes all who wait for a change. The lock is held.
func (s *Switch) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// View returns the present state, which must not be changed, and a channel that is closed when there is another one.
// The error is an *UnavailableError; the channel is there in that case, too.
func (s *Switch) View() (*View, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.view == nil {
		return nil, s.changed, &UnavailableError{s.err}
	}
	return s.view, s.changed, nil
}

// Until waits for a state: until done says so, with no error, or the context ends. While the database is unreachable it
// goes on waiting. The error at the end of the context is the context's, with what done last said it waits for.
func (s *Switch) Until(ctx context.Context, done func(*View) error) (*View, error) {
	for {
		view, changed, err := s.View()
		if err == nil {
			if err = done(view); err == nil {
				return view, nil
			}
		}
		var fatal *FatalError
		if errors.As(err, &fatal) {
			return nil, fatal.Err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}

// FatalError ends Until: waiting is no use.
type FatalError struct{ Err error }

func (f *FatalError) Error() string { return f.Err.Error() }

// Unwrap returns what is wrong.
func (f *FatalError) Unwrap() error { return f.Err }
