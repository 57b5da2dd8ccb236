// SPDX-License-Identifier: Apache-2.0

// Package northbound runs OVN's real northbound database, ovsdb-server, for tests and for trying things: alone or as
// a cluster, on a Unix socket, TCP or ssl. It must never touch a database that it did not make.
package northbound

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ovn-kubernetes/libovsdb/server"
)

// SchemaEnv names a file with OVN's schema, where that of Debian's ovn-central is not to be used.
const SchemaEnv = "RAVEN_TEST_OVN_SCHEMA"

// Schema is the file with OVN's schema.
func Schema() string { return cmp.Or(os.Getenv(SchemaEnv), "/usr/share/ovn/ovn-nb.ovsschema") }

// What is said where a part of OVN is missing.
var (
	errNoPrograms = errors.New("install ovn-common and openvswitch-common (Debian) to run OVN's real northbound database")
	errNoSchema   = errors.New("install ovn-central (Debian), which starts OVN's servers, or unpack it and name the " +
		"file in " + SchemaEnv + ", to run OVN's real northbound database")
)

// Available says whether the real database can run here. The error says what to install.
func Available() error {
	for _, program := range []string{"ovsdb-server", "ovsdb-tool"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("there is no %s: %w", program, errNoPrograms)
		}
	}
	if _, err := os.Stat(Schema()); err != nil {
		return fmt.Errorf("there is no %s: %w", Schema(), errNoSchema)
	}
	return nil
}

// Config says how a server runs. The zero value is a server alone, on a Unix socket.
type Config struct {
	// Schema is the file with the database's schema; "": that of the installed OVN.
	Schema string
	// Dir is an existing folder for all its files.
	Dir string
	// TCP has it listen on 127.0.0.1 as well, TLS on ssl with the files of that folder: see Certificates.
	TCP bool
	TLS string
	// Cluster is the number of the server in a cluster, from 1; 0: it is alone. Join is the raft address of the first
	// one.
	Cluster int
	Raft    string // 127.0.0.1:port of its own
	Join    string // of the first; empty for the first
}

// Server is one ovsdb-server.
type Server struct {
	config   Config
	db       string
	port     int
	tlsPort  int
	command  *exec.Cmd
	finished chan struct{}
	output   bytes.Buffer
	memory   *server.OvsdbServer // instead of a process; see StartAny
}

func (s *Server) schema() string { return cmp.Or(s.config.Schema, Schema()) }

// Start makes a database and a server for it. Where the folder has a database already, that is served.
func Start(ctx context.Context, c Config) (*Server, error) {
	if err := Available(); err != nil {
		return nil, err
	}
	s := &Server{config: c, db: filepath.Join(c.Dir, "ovnnb.db")}
	if _, err := os.Stat(s.db); err != nil {
		args := []string{"create", s.db, s.schema()}
		if c.Cluster > 0 {
			args = []string{"create-cluster", s.db, s.schema(), "tcp:" + c.Raft}
		}
		if c.Join != "" {
			args = []string{"join-cluster", s.db, "OVN_Northbound", "tcp:" + c.Raft, "tcp:" + c.Join}
		}
		if out, err := exec.CommandContext(ctx, "ovsdb-tool", args...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("ovsdb-tool %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	var err error
	if c.TCP {
		s.port, err = FreePort(ctx)
	}
	if err == nil && c.TLS != "" {
		s.tlsPort, err = FreePort(ctx)
	}
	if err != nil {
		return nil, err
	}
	return s, s.Run(ctx)
}

// Run starts the server, as it was, if it does not run. It returns once it listens.
func (s *Server) Run(ctx context.Context) error {
	args := []string{
		"--unixctl=" + filepath.Join(s.config.Dir, "ctl"), "--remote=punix:" + s.socket(),
		"--log-file=" + filepath.Join(s.config.Dir, "log"),
	}
	if s.port > 0 {
		args = append(args, fmt.Sprintf("--remote=ptcp:%d:127.0.0.1", s.port))
	}
	if dir := s.config.TLS; dir != "" {
		args = append(args, fmt.Sprintf("--remote=pssl:%d:127.0.0.1", s.tlsPort),
			"--private-key="+filepath.Join(dir, "server-privkey.pem"),
			"--certificate="+filepath.Join(dir, "server-cert.pem"), "--ca-cert="+filepath.Join(dir, "cacert.pem"))
	}
	s.output.Reset()
	_ = os.Remove(s.socket())
	s.command = exec.Command("ovsdb-server", append(args, s.db)...) //nolint:noctx // it outlives the call
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
		if c, err := (&net.Dialer{}).DialContext(ctx, "unix", s.socket()); err == nil {
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

func (s *Server) socket() string { return filepath.Join(s.config.Dir, "nb.sock") }

// Unix is its address on a Unix socket, in OVSDB's notation.
func (s *Server) Unix() string { return "unix:" + s.socket() }

// TCP is its address on TCP.
func (s *Server) TCP() string { return "tcp:127.0.0.1:" + strconv.Itoa(s.port) }

// SSL is its address on ssl.
func (s *Server) SSL() string { return "ssl:127.0.0.1:" + strconv.Itoa(s.tlsPort) }

// Log is where its log is.
func (s *Server) Log() string { return filepath.Join(s.config.Dir, "log") }

// Kill ends the server at once, as kill -9 does, and returns when it has ended.
func (s *Server) Kill() {
	if s.memory != nil {
		s.memory.Close()
		<-s.finished
		return
	}
	_ = s.command.Process.Kill()
	<-s.finished
}

// Freeze stops the server's clock, so to speak: it keeps its connections and answers nothing, until Thaw.
func (s *Server) Freeze() error { return s.command.Process.Signal(syscall.SIGSTOP) }

// Thaw ends Freeze.
func (s *Server) Thaw() error { return s.command.Process.Signal(syscall.SIGCONT) }

// Wipe deletes the database. The server must not run.
func (s *Server) Wipe() error { return os.Remove(s.db) }

// Start makes a new database and runs, after Wipe.
func (s *Server) Start(ctx context.Context) error {
	if out, err := exec.CommandContext(ctx, "ovsdb-tool", "create", s.db, s.schema()).CombinedOutput(); err != nil {
		return fmt.Errorf("ovsdb-tool create: %w: %s", err, out)
	}
	return s.Run(ctx)
}

// FreePort returns a port of 127.0.0.1 on which no process listens.
func FreePort(ctx context.Context) (int, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("finding a free port: %w", err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return 0, fmt.Errorf("finding a free port: %w", err)
	}
	number, err := strconv.Atoi(port)
	return number, err
}

// Ctl runs ovn-nbctl on the server, and returns what it prints.
func (s *Server) Ctl(ctx context.Context, args ...string) (string, error) {
	args = append([]string{"--db=" + s.Unix(), "--no-leader-only", "--timeout=20"}, args...)
	command := exec.CommandContext(ctx, "ovn-nbctl", args...)
	command.Env = append(os.Environ(), "OVN_NB_DAEMON=")
	var failure bytes.Buffer
	command.Stderr = &failure
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("ovn-nbctl %s: %w: %s", strings.Join(args, " "), err, failure.String())
	}
	return strings.TrimSpace(string(out)), nil
}
