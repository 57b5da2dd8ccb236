// SPDX-License-Identifier: Apache-2.0

// Package sdktest tests drivers by goldens, by direct call and over real gRPC, without a cluster or a cloud. It must
// never show a driver more than the core would: objects are trimmed to the fields that their watch declares.
package sdktest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/plugins/wire"
)

// Configured configures a driver with the defaults of its options, and these by group and name in their place, and
// returns it. A driver that refuses them ends the test.
func Configured(tb testing.TB, driver drivers.Driver, overrides map[string]map[string]any) drivers.Driver {
	tb.Helper()
	values, err := drivers.DefaultValues(driver.Info().Options, overrides)
	if err != nil {
		tb.Fatal(err)
	}
	if err := driver.Configure(tb.Context(), values); err != nil {
		tb.Fatal(err)
	}
	return driver
}

// Connect serves a driver over gRPC inside the test and returns the core's end of the connection, as a plugin would
// look. All of it ends with the test.
func Connect(tb testing.TB, driver drivers.Driver) *wire.Client {
	tb.Helper()
	return ConnectWith(tb, driver, wire.ServerConfig{}, wire.ClientConfig{CoreVersion: "sdktest"})
}

// ConnectWith is Connect with settings for both ends.
func ConnectWith(tb testing.TB, driver drivers.Driver, serve wire.ServerConfig, call wire.ClientConfig) *wire.Client {
	tb.Helper()
	conn, stop, err := serveInside(driver, serve)
	if err != nil {
		tb.Fatal(err)
	}
	client := wire.NewClient(conn, call)
	tb.Cleanup(func() {
		client.Close()
		if err := stop(); err != nil {
			tb.Error(err)
		}
	})
	if err := client.Connect(tb.Context()); err != nil {
		tb.Fatalf("connecting to the driver: %v", err)
	}
	return client
}

// serveInside serves a driver inside of this process and connects to it. stop ends both.
func serveInside(driver drivers.Driver, serve wire.ServerConfig) (conn *grpc.ClientConn, stop func() error, err error) {
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(wire.ServerOptions()...)
	wire.Register(server, wire.NewServer(driver, serve))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	options := append(wire.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
	)
	conn, err = grpc.NewClient("passthrough:driver", options...)
	if err != nil {
		server.Stop()
		<-served //nolint:errcheck // that it was stopped
		return nil, nil, fmt.Errorf("dialling the driver: %w", err)
	}
	return conn, func() error {
		closed := conn.Close()
		server.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return fmt.Errorf("serving the driver: %w", err)
		}
		return closed
	}, nil
}

// ErrUnsettled says that a driver still had open needs after drivers.MaxRounds rounds.
var ErrUnsettled = errors.New("needs did not settle")

// Translate calls a driver as the core does, round after round until its needs settle, and returns the Set and what
// was asked. known answers a need; false leaves it open for ever, and the error is then ErrUnsettled.
func Translate(
	ctx context.Context, driver drivers.Driver, object drivers.Object, known func(drivers.Need) ([]drivers.Object, bool),
) (drivers.Set, []drivers.Need, error) {
	answers := map[drivers.Need][]drivers.Object{}
	var asked []drivers.Need
	for round := 1; round <= drivers.MaxRounds; round++ {
		needs := drivers.NewNeeds(answers).WithRound(round)
		set, err := driver.Translate(ctx, object, needs)
		asked = needs.Asked()
		if !needs.Open() {
			return set, asked, err
		}
		for _, need := range asked {
			objects, ok := known(need)
			if !ok {
				return drivers.Set{}, asked, fmt.Errorf("%w: %s is not known", ErrUnsettled, need)
			}
			answers[need] = objects
		}
	}
	return drivers.Set{}, asked, fmt.Errorf("%w in %d rounds", ErrUnsettled, drivers.MaxRounds)
}
