// SPDX-License-Identifier: Apache-2.0

// Package vswitch runs real ovsdb-servers with the databases that a node's daemon reads, Open vSwitch's own and OVN's
// southbound one, and plays ovn-controller on the former. It must never touch a database that it did not make.
package vswitch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"time"
)

// The whole schemas, where Debian's openvswitch-switch and ovn-central have them. The parts of them that the project
// has itself serve where these packages, which start servers, are not installed.
const (
	LocalSchema      = "/usr/share/openvswitch/vswitch.ovsschema"
	SouthboundSchema = "/usr/share/ovn/ovn-sb.ovsschema"
)

// ErrMissing says what is not installed.
var ErrMissing = errors.New("install openvswitch-common (Debian) to run real OVSDB servers")

// Available says whether real databases can run here. The error is ErrMissing with the reason.
func Available() error {
	for _, program := range []string{"ovsdb-server", "ovsdb-tool", "ovsdb-client"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("there is no %s: %w", program, ErrMissing)
		}
	}
	return nil
}

// Either returns a whole schema where it is installed, else the part of it that is given.
func Either(whole, part string) string {
	if _, err := os.Stat(whole); err == nil {
		return whole
	}
	return part
}

// CheckPart says where the part of a schema is not word for word what the installed whole has. It returns
// os.ErrNotExist where that is not installed.
func CheckPart(part, whole string) error {
	type table struct{ Columns map[string]any }
	type document struct {
		Name   string
		Tables map[string]table
	}
	read := func(path string) (d document, err error) {
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &d)
		}
		return d, err
	}
	of, err := read(whole)
	if err != nil {
		return err
	}
	own, err := read(part)
	if err != nil {
		return err
	}
	var problems []error
	if own.Name != of.Name {
		problems = append(problems, fmt.Errorf("database %s, not %s", own.Name, of.Name))
	}
	for name, t := range own.Tables {
		for column, schema := range t.Columns {
			if !reflect.DeepEqual(schema, of.Tables[name].Columns[column]) {
				problems = append(problems, fmt.Errorf("%s.%s is %v, not %v", name, column, schema,
					of.Tables[name].Columns[column]))
			}
		}
	}
	return errors.Join(problems...)
}

// Server is one ovsdb-server.
type Server struct {
	dir, schema string
	command     *exec.Cmd
	finished    chan struct{}
	output      bytes.Buffer
}

// Start makes a database in an existing folder, and a server for it. Where the folder has one already, that is served.
func Start(ctx context.Context, dir, schema string) (*Server, error) {
	if err := Available(); err != nil {
		return nil, err
	}
	s := &Server{dir: dir, schema: schema}
	if _, err := os.Stat(s.path("conf.db")); err != nil {
		if err := s.make(ctx); err != nil {
			return nil, err
		}
	}
	return s, s.Run(ctx)
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

// Endpoint is its address in OVSDB's notation.
func (s *Server) Endpoint() string { return "unix:" + s.path("db.sock") }

// Run starts the server if it does not run. It returns once it listens.
func (s *Server) Run(ctx context.Context) error {
	s.output.Reset()
	_ = os.Remove(s.path("db.sock"))
	args := []string{
		"--unixctl=" + s.path("ctl"), "--remote=punix:" + s.path("db.sock"), "--log-file=" + s.path("log"), s.path("conf.db"),
	}
	s.command = exec.Command("ovsdb-server", args...) //nolint:noctx // it outlives the call
	s.command.Stdout, s.command.Stderr = &s.output, &s.output
	dieWithParent(s.command)
	if err := s.command.Start(); err != nil {
		return fmt.Errorf("starting ovsdb-server: %w", err)
	}
	finished := make(chan struct{})
	s.finished = finished
	go func() {
		defer close(finished)
		_ = s.command.Wait()
	}()
	for {
		if c, err := (&net.Dialer{}).DialContext(ctx, "unix", s.path("db.sock")); err == nil {
			return c.Close()
		}
		select {
		case <-finished:
			return fmt.Errorf("ovsdb-server has ended: %s", s.output.String())
		case <-ctx.Done():
			s.Kill()
			return fmt.Errorf("ovsdb-server does not listen: %w", ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Kill ends the server at once, as kill -9 does, and returns when it has ended.
func (s *Server) Kill() {
	_ = s.command.Process.Kill()
	<-s.finished
}

// Pause has the server answer nothing, though it listens, until Resume. One that was paused can be killed.
func (s *Server) Pause() error { return s.command.Process.Signal(syscall.SIGSTOP) }

// Resume ends Pause.
func (s *Server) Resume() error { return s.command.Process.Signal(syscall.SIGCONT) }

// Wipe deletes the database, and makes a new one. The server must not run.
func (s *Server) Wipe(ctx context.Context) error {
	if err := os.Remove(s.path("conf.db")); err != nil {
		return err
	}
	return s.make(ctx)
}

// make makes an empty database.
func (s *Server) make(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "ovsdb-tool", "create", s.path("conf.db"), s.schema).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ovsdb-tool create: %w: %s", err, out)
	}
	return nil
}

// Transact carries out operations (RFC 7047) on a database of the server, and returns the result of each.
func (s *Server) Transact(ctx context.Context, database string, operations ...any) ([]map[string]any, error) {
	text, err := json.Marshal(append([]any{database}, operations...))
	if err != nil {
		return nil, fmt.Errorf("encoding a transaction: %w", err)
	}
	command := exec.CommandContext(ctx, "ovsdb-client", "--timeout=20", "transact", s.Endpoint(), string(text))
	var failure bytes.Buffer
	command.Stderr = &failure
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("ovsdb-client transact: %w: %s", err, failure.String())
	}
	var results []map[string]any
	if err := json.Unmarshal(out, &results); err != nil {
		return nil, fmt.Errorf("ovsdb-client transact: %w: %s", err, out)
	}
	for _, result := range results {
		if result["error"] != nil {
			return nil, fmt.Errorf("ovsdb-client transact: %s", strings.TrimSpace(string(out)))
		}
	}
	return results, nil
}

// Chassis makes the rows of a machine that is a chassis, with its integration bridge.
func (s *Server) Chassis(ctx context.Context, bridge, datapath string, externalIDs map[string]string) error {
	_, err := s.Transact(ctx, "Open_vSwitch",
		map[string]any{
			"op": "insert", "table": "Bridge", "uuid-name": "b",
			"row": map[string]any{"name": bridge, "datapath_type": datapath},
		},
		map[string]any{
			"op": "insert", "table": "Open_vSwitch",
			"row": map[string]any{
				"bridges": []any{"named-uuid", "b"}, "external_ids": ovsMap(externalIDs), "ovs_version": "3.5.0",
			},
		})
	return err
}

func ovsMap(m map[string]string) []any {
	pairs := []any{}
	for key, value := range m {
		pairs = append(pairs, []any{key, value})
	}
	return []any{"map", pairs}
}

// Binding makes a port of OVN's southbound database.
func (s *Server) Binding(ctx context.Context, port, deviceID string, tunnelKey int) error {
	_, err := s.Transact(ctx, "OVN_Southbound",
		map[string]any{
			"op": "insert", "table": "Datapath_Binding", "uuid-name": "d", "row": map[string]any{"tunnel_key": tunnelKey},
		},
		map[string]any{
			"op": "insert", "table": "Port_Binding", "row": map[string]any{
				"logical_port": port, "datapath": []any{"named-uuid", "d"}, "tunnel_key": 1,
				"external_ids": ovsMap(map[string]string{"neutron:device_id": deviceID}),
			},
		})
	return err
}

// Own changes the device_id that the southbound database has of a port.
func (s *Server) Own(ctx context.Context, port, deviceID string) error {
	_, err := s.Transact(ctx, "OVN_Southbound", map[string]any{
		"op": "update", "table": "Port_Binding", "where": []any{[]any{"logical_port", "==", port}},
		"row": map[string]any{"external_ids": ovsMap(map[string]string{"neutron:device_id": deviceID})},
	})
	return err
}
