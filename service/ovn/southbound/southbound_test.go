// SPDX-License-Identifier: Apache-2.0

package southbound

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/kuryr/raven/test/sim/vswitch"
)

// started is a database with one port, and a client that has asked for it.
func started(t *testing.T) (*vswitch.Server, *Client) {
	t.Helper()
	if err := vswitch.Available(); err != nil {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("", "sb") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	schema := vswitch.Either(vswitch.SouthboundSchema, "testdata/southbound.ovsschema")
	server, err := vswitch.Start(t.Context(), dir, schema)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Kill)
	if err := server.Binding(t.Context(), "port", "owner", 1); err != nil {
		t.Fatal(err)
	}
	client := New(Config{Endpoints: []string{server.Endpoint()}, Timeout: time.Minute})
	t.Cleanup(client.Close)
	owned(t, client)
	return server, client
}

// owned asks whose the port is.
func owned(t *testing.T, client *Client) {
	t.Helper()
	if b, err := client.Binding(t.Context(), "port"); err != nil || b.DeviceID != "owner" {
		t.Errorf("the port is %q's (%v)", b.DeviceID, err)
	}
}

// TestBinding: what is known of a port, and of one that is not there.
func TestBinding(t *testing.T) {
	t.Parallel()
	server, client := started(t)
	if _, err := client.Binding(t.Context(), "none"); !errors.Is(err, ErrUnknownPort) {
		t.Errorf("a port that is not there: %v", err)
	}
	var unavailable *UnavailableError
	server.Kill()
	if _, err := client.Binding(t.Context(), "port"); !errors.As(err, &unavailable) {
		t.Errorf("without a server: %v", err)
	}
}

// TestServerStartedAnew: the connection that was kept has ended, and nobody need notice.
func TestServerStartedAnew(t *testing.T) {
	t.Parallel()
	server, client := started(t)
	for range 5 {
		server.Kill()
		if err := server.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		owned(t, client)
	}
}

// TestCallerGone: who gives up asking takes the answer from nobody else. A database that seems unreachable would have
// ports plugged in whose owner nobody has checked.
func TestCallerGone(t *testing.T) {
	t.Parallel()
	server, client := started(t)
	for range 10 {
		if err := server.Pause(); err != nil {
			t.Fatal(err)
		}
		impatient, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		ended := make(chan error, 1)
		go func() {
			_, err := client.Binding(impatient, "port")
			ended <- err
		}()
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			owned(t, client)
		}()
		<-impatient.Done()
		cancel()
		if err := server.Resume(); err != nil {
			t.Fatal(err)
		}
		<-answered
		var unavailable *UnavailableError
		if err := <-ended; errors.As(err, &unavailable) {
			t.Errorf("a caller that gave up is told: %v", err)
		}
	}
	if _, err := client.Binding(canceled(t), "port"); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has given up before: %v", err)
	}
}

func canceled(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
