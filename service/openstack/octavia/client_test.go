// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/internal/stacktest"
	"github.com/kuryr/raven/service/openstack/neutron"
	"github.com/kuryr/raven/service/plan"
	sim "github.com/kuryr/raven/test/sim/openstack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connect(tb testing.TB, config openstack.Config) *Client {
	tb.Helper()
	connection := stacktest.Connect(tb, config)
	networking, err := neutron.New(tb.Context(), connection)
	if err != nil {
		tb.Fatal(err)
	}
	return New(connection, networking)
}

func startSim(tb testing.TB, o sim.Options) (*sim.Cloud, *Client) {
	tb.Helper()
	s := stacktest.StartSim(tb, o)
	return s, connect(tb, stacktest.SimConfig(s, sim.UserKuryr))
}

// place makes a network with a subnet.
func place(tb testing.TB, c *Client, cidr string) (network, subnet plan.Observed) {
	tb.Helper()
	networking := c.networking.(*neutron.Client)
	network, err := networking.Create(
		tb.Context(), drivers.KindNetwork, stacktest.Named("net"), map[string]any{"name": "net"},
	)
	if err != nil {
		tb.Fatal(err)
	}
	subnet, err = networking.Create(tb.Context(), drivers.KindSubnet, stacktest.Named("subnet"), map[string]any{
		"network_id": network.ID, "ip_version": int64(4), "cidr": cidr,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return network, subnet
}

// must makes one load balancer.
func must(tb testing.TB, c *Client, name string, attrs map[string]any) plan.Observed {
	tb.Helper()
	lb, err := c.Create(tb.Context(), stacktest.Named(name), attrs)
	if err != nil {
		tb.Fatal(err)
	}
	return lb
}

// TestWithoutOctavia: that there are none is not said, and nothing can be made.
func TestWithoutOctavia(t *testing.T) {
	_, c := startSim(t, sim.Options{NoOctavia: true})
	if list, err := c.List(t.Context(), "c1"); !errors.Is(err, ErrNoBalancing) || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	_, err := c.Create(t.Context(), stacktest.Named("lb"), map[string]any{})
	if openstack.Classify(err) != openstack.ClassTerminal || !strings.Contains(err.Error(), "load-balancer") {
		t.Errorf("got %v", err)
	}
	if err := c.Available(); !errors.Is(err, ErrNoBalancing) {
		t.Errorf("got %v", err)
	}
}

// movable is a transport that has Octavia at another place in the catalog, or at none.
type movable struct {
	http.RoundTripper
	place    atomic.Pointer[string]
	catalogs atomic.Int64 // how often it was asked for
}

func (m *movable) move(to string) { m.place.Store(&to) }

func (m *movable) RoundTrip(r *http.Request) (*http.Response, error) {
	place := *m.place.Load()
	if rest, ok := strings.CutPrefix(r.URL.Path, "/at-"); ok {
		if rest, ok = strings.CutPrefix(rest, place); !ok || place == "" {
			return stacktest.Reply(r, http.StatusNotFound, "nothing is here"), nil
		}
		r = r.Clone(r.Context())
		r.URL.Path = "/load-balancer" + rest
	}
	if strings.HasSuffix(r.URL.Path, "/auth/catalog") {
		m.catalogs.Add(1)
	}
	response, err := m.RoundTripper.RoundTrip(r)
	if err != nil || !strings.Contains(r.URL.Path, "/v3/auth/") {
		return response, err
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	_ = response.Body.Close()
	if place == "" {
		body = bytes.ReplaceAll(body, []byte(`"type":"load-balancer"`), []byte(`"type":"nothing"`))
	}
	body = bytes.ReplaceAll(body, []byte(`/load-balancer"`), []byte(`/at-`+place+`"`))
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	response.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return response, nil
}

// TestOctaviaComesAndMoves: its place is asked for again by a list that fails, and by nothing else.
func TestOctaviaComesAndMoves(t *testing.T) {
	s := stacktest.StartSim(t, sim.Options{})
	m := &movable{RoundTripper: http.DefaultTransport}
	m.move("")
	config := stacktest.SimConfig(s, sim.UserKuryr)
	config.Transport = m
	c := connect(t, config)
	_, subnet := place(t, c, "10.0.0.0/24")
	list := func(want int, catalogs int64) {
		t.Helper()
		m.catalogs.Store(0)
		found, err := c.List(t.Context(), "c1")
		if (err != nil) != (want < 0) || len(found) != max(want, 0) {
			t.Errorf("found %v, %v", found, err)
		}
		if n := m.catalogs.Load(); n != catalogs {
			t.Errorf("the catalog was asked for %d times, want %d", n, catalogs)
		}
	}
	list(-1, 1)
	m.move("first")
	list(0, 1)
	must(t, c, "lb", wholeBalancer(subnet.ID, "amphora"))
	list(1, 0)
	m.move("second")
	list(1, 1)
	list(1, 0)
	m.move("")
	list(-1, 1)
	list(-1, 1)
	m.move("second")
	list(1, 0)
}
