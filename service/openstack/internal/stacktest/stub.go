// SPDX-License-Identifier: Apache-2.0

package stacktest

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kuryr/raven/service/openstack"
)

// Stub is a Keystone that knows one user and one application credential, and a Neutron that a test gives.
type Stub struct {
	*httptest.Server
	neutron func(w http.ResponseWriter, r *http.Request)
	Catalog string // with %s for the server's URL

	mu     sync.Mutex
	valid  map[string]bool
	issued int
	agents map[string]bool
}

// Secret is the password of the user, and the secret of the application credential.
const (
	Secret      = "s3cr3t-word"
	stubCatalog = `[{"type":"identity","endpoints":[]},{"type":"network","endpoints":[
		{"interface":"public","region":"R1","region_id":"R1","url":"%[1]s/net"},
		{"interface":"internal","region":"R2","region_id":"R2","url":"%[1]s/net"}]}]`
)

// NewStub starts one that ends with the test.
func NewStub(t *testing.T, secure bool, neutron func(w http.ResponseWriter, r *http.Request)) *Stub {
	t.Helper()
	s := &Stub{neutron: neutron, Catalog: stubCatalog, valid: map[string]bool{}, agents: map[string]bool{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func (s *Stub) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.agents[r.UserAgent()] = true
	known := s.valid[r.Header.Get("X-Auth-Token")]
	s.mu.Unlock()
	switch {
	case r.URL.Path == "/v3/auth/tokens":
		s.login(w, r)
	case !strings.HasPrefix(r.URL.Path, "/net/v2.0/"):
		w.WriteHeader(http.StatusNotFound)
	case !known:
		w.WriteHeader(http.StatusUnauthorized)
	case r.URL.Path == "/net/v2.0/extensions":
		_, _ = io.WriteString(w, ExtensionsBody)
	default:
		s.neutron(w, r)
	}
}

func (s *Stub) login(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if !strings.Contains(string(body), `"`+Secret+`"`) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w,
			`{"error":{"code":401,"message":"The request you have made requires authentication.","title":"Unauthorized"}}`)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.issued++
	token := fmt.Sprintf("token-%d", s.issued)
	s.valid[token] = true
	w.Header().Set("X-Subject-Token", token)
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w,
		`{"token":{"project":{"id":"p1"},"expires_at":"2099-01-01T00:00:00.000000Z","catalog":`+s.Catalog+`}}`, s.URL)
}

// Expire makes all tokens invalid.
func (s *Stub) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.valid)
}

// Options is how to connect to it.
func (s *Stub) Options() openstack.Config {
	return openstack.Config{
		AuthURL: s.URL + "/v3", Username: "raven", Password: Secret, ProjectName: "p", Timeout: 10 * time.Second,
	}
}

// Logins is how many tokens were issued.
func (s *Stub) Logins() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.issued
}

// Agents are the user agents that asked.
func (s *Stub) Agents() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.agents))
}

// Nothing is a Neutron that has nothing.
func Nothing(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }
