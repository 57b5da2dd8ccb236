package openstack

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kuryr/raven/drivers"
	sim "github.com/kuryr/raven/test/sim/openstack"
)

// TestWithoutOctavia: that there are none is not said, and nothing can be made.
func TestWithoutOctavia(t *testing.T) {
	_, c := startSim(t, sim.Options{NoOctavia: true})
	if list, err := c.List(t.Context(), drivers.KindLoadBalancer, "c1"); !errors.Is(err, ErrNoBalancing) || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	_, err := c.Create(t.Context(), drivers.KindLoadBalancer, named("lb"), map[string]any{})
	if Classify(err) != ClassTerminal || !strings.Contains(err.Error(), "load-balancer") {
		t.Errorf("got %v", err)
	}
	if err := c.Balancing(); !errors.Is(err, ErrNoBalancing) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Clusters(t.Context()); err != nil {
		t.Error(err)
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
			return reply(r, http.StatusNotFound, "nothing is here"), nil
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
	s := sim.New(sim.Options{})
	if _, err := s.Start(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	m := &movable{RoundTripper: http.DefaultTransport}
	m.move("")
	config := simConfig(s, sim.UserKuryr)
	config.Transport = m
	c := connectSim(t, s, config)
	_, subnet := place(t, c, "10.0.0.0/24")
	list := func(want int, catalogs int64) {
		t.Helper()
		m.catalogs.Store(0)
		found, err := c.List(t.Context(), drivers.KindLoadBalancer, "c1")
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
	must(t, c, drivers.KindLoadBalancer, "lb", wholeBalancer(subnet.ID, "amphora"))
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
