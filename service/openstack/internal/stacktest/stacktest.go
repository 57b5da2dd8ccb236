// SPDX-License-Identifier: Apache-2.0

// Package stacktest is what the tests of several packages on OpenStack need: clouds to connect to, answers and
// identities.
package stacktest

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
	sim "github.com/kuryr/raven/test/sim/openstack"
)

// StartSim starts a simulated cloud that ends with the test.
func StartSim(tb testing.TB, o sim.Options) *sim.Cloud {
	tb.Helper()
	s := sim.New(o)
	if _, err := s.Start(tb.Context(), ""); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

// SimConfig is how a user connects to a simulated cloud.
func SimConfig(s *sim.Cloud, user string) openstack.Config {
	return openstack.Config{
		AuthURL: s.AuthURL(), Username: user, Password: "secret", ProjectName: sim.ProjectKuryr, RegionName: sim.Region,
		Timeout: 60 * time.Second,
	}
}

// TransportConfig is how to connect to a cloud that is only a transport, with TokenBody and ExtensionsBody among its
// answers.
func TransportConfig(transport http.RoundTripper) openstack.Config {
	return openstack.Config{
		AuthURL: "http://keystone/v3", Username: "u", Password: "secret", ProjectName: "p", Transport: transport,
		Timeout: 60 * time.Second,
	}
}

// Connect returns a connection that ends with the test.
func Connect(tb testing.TB, config openstack.Config) *openstack.Connection {
	tb.Helper()
	c, err := openstack.Connect(tb.Context(), config, slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

// Named is the identity of something of one namespace.
func Named(name string) plan.Identity {
	return plan.Identity{
		Cluster: "c1", Owner: plan.Owner{Driver: "namespace", UID: "u1"}, Name: name, Policy: drivers.Delete,
	}
}

// IdentityOf is the identity of the port of the pod with a number.
func IdentityOf(i int) plan.Identity {
	return plan.Identity{
		Cluster: "c1", Owner: plan.Owner{Driver: "pod", UID: fmt.Sprintf("uid-%d", i)}, Name: "port", Policy: drivers.Delete,
	}
}

// NeutronBody is an error as Neutron words it.
func NeutronBody(kind, message string) string {
	return fmt.Sprintf(`{"NeutronError": {"type": %q, "message": %q, "detail": ""}}`, kind, message)
}

// What Keystone and Neutron answer.
const (
	//nolint:gosec // no credential
	TokenBody = `{"token":{"project":{"id":"p1"},"expires_at":"2099-01-01T00:00:00.000000Z","catalog":[
		{"type":"network","endpoints":[{"interface":"public","region":"R1","region_id":"R1","url":"http://net"}]}]}}`
	ExtensionsBody = `{"extensions":[{"alias":"standard-attr-description"},{"alias":"standard-attr-tag"},
		{"alias":"tag-ports-during-bulk-creation"},{"alias":"revision-if-match"}]}`
)

// Reply answers a request; header has names and values in turn.
func Reply(r *http.Request, status int, body string, header ...string) *http.Response {
	response := &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r, Header: http.Header{},
		Body: io.NopCloser(bytes.NewReader([]byte(body))), ContentLength: int64(len(body)),
	}
	for i := 0; i+1 < len(header); i += 2 {
		response.Header.Set(header[i], header[i+1])
	}
	return response
}
