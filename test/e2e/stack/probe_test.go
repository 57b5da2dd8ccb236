// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

func TestProbes(t *testing.T) {
	status := http.StatusServiceUnavailable
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer server.Close()
	s := standing(t)
	file := s.path("tmp", "socket")
	cases := map[string]struct {
		probe  Probe
		become func()
	}{
		"url":     {Probe{URL: server.URL}, func() { status = http.StatusOK }},
		"address": {Probe{Address: server.Listener.Addr().String()}, nil},
		"path":    {Probe{Path: file}, func() { _ = os.WriteFile(file, nil, 0o644) }},
		"program": {
			Probe{Argv: []string{"cat", file}, Text: "active"}, func() { _ = os.WriteFile(file, []byte("is active\n"), 0o644) },
		},
		"exit code": {Probe{Argv: []string{"test", "-s", file}}, func() { _ = os.WriteFile(file, []byte("x"), 0o644) }},
	}
	for _, name := range []string{"url", "address", "path", "program", "exit code"} {
		t.Run(name, func(t *testing.T) {
			defer func() { _ = os.Remove(file) }()
			c := cases[name]
			if c.become != nil {
				if s.look(t.Context(), Component{Ready: c.probe}) == nil {
					t.Error("it is ready before it is")
				}
				c.become()
			}
			if err := s.look(t.Context(), Component{Ready: c.probe}); err != nil {
				t.Error(err)
			}
		})
	}
}

// Where a port is another's server's, a server cannot begin, and that one answers.
func TestWhatAnswersForADeadServerIsAnothers(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	s := standing(t,
		Component{
			Name: "a", Argv: []string{"sh", "-c", "echo in use; exit 1"}, Ready: Probe{Address: server.Listener.Addr().String()},
		})
	c, err := s.Component("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.spawn(c); err != nil {
		t.Fatal(err)
	}
	await(t, "it has ended", func() bool { return !s.Running("a") })
	if err := s.awaitReady(t.Context(), c); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("the error is %v, without its log", err)
	}
}
