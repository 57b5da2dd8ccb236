package openstack

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stub is a Keystone that knows one user and one application credential, and a Neutron that a test gives.
type stub struct {
	*httptest.Server
	neutron func(w http.ResponseWriter, r *http.Request)
	catalog string // with %s for the server's URL

	mu     sync.Mutex
	valid  map[string]bool
	issued int
	agents map[string]bool
}

const (
	stubSecret  = "s3cr3t-word"
	stubCatalog = `[{"type":"identity","endpoints":[]},{"type":"network","endpoints":[
		{"interface":"public","region":"R1","region_id":"R1","url":"%[1]s/net"},
		{"interface":"internal","region":"R2","region_id":"R2","url":"%[1]s/net"}]}]`
)

func newStub(t *testing.T, secure bool, neutron func(w http.ResponseWriter, r *http.Request)) *stub {
	t.Helper()
	s := &stub{neutron: neutron, catalog: stubCatalog, valid: map[string]bool{}, agents: map[string]bool{}}
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

func (s *stub) serve(w http.ResponseWriter, r *http.Request) {
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
		_, _ = io.WriteString(w, extensionsBody)
	default:
		s.neutron(w, r)
	}
}

func (s *stub) login(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if !strings.Contains(string(body), `"`+stubSecret+`"`) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error":{"code":401,"message":"The request you have made requires authentication.","title":"Unauthorized"}}`)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.issued++
	token := fmt.Sprintf("token-%d", s.issued)
	s.valid[token] = true
	w.Header().Set("X-Subject-Token", token)
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w, `{"token":{"project":{"id":"p1"},"expires_at":"2099-01-01T00:00:00.000000Z","catalog":`+s.catalog+`}}`, s.URL)
}

func (s *stub) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.valid)
}

func (s *stub) config() Config {
	return Config{AuthURL: s.URL + "/v3", Username: "raven", Password: stubSecret, ProjectName: "p", Timeout: 10 * time.Second}
}

func (s *stub) connect(t *testing.T) *Cloud {
	t.Helper()
	c, err := Connect(t.Context(), s.config(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func nothing(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }

// TestConnectErrors checks that what an operator gets wrong is said on one line, with what and where.
func TestConnectErrors(t *testing.T) {
	s := newStub(t, false, nothing)
	none := newStub(t, false, nothing)
	none.catalog = `[{"type":"compute","endpoints":[]}]`
	secure := newStub(t, true, nothing)
	dir := t.TempDir()
	notPEM := filepath.Join(dir, "not.pem")
	cloudsFile := filepath.Join(dir, "clouds.yaml")
	for path, text := range map[string]string{notPEM: "hello", cloudsFile: "clouds: {a: {auth: {auth_url: http://x/v3}}}"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name   string
		change func(*Config)
		class  Class
		says   []string
	}{
		{"wrong password", func(c *Config) { c.Password = "wrong-one" }, ClassUnauthorized, []string{"401", "user raven", s.URL}},
		{
			"wrong secret of an application credential",
			func(c *Config) { c.ApplicationCredentialID, c.ApplicationCredentialSecret = "ac1", "wrong-one" },
			ClassUnauthorized,
			[]string{"401", "application credential ac1", s.URL},
		},
		{"nobody listens", func(c *Config) { c.AuthURL = "http://127.0.0.1:1/v3" }, ClassRetry, []string{"http://127.0.0.1:1/v3", "refused"}},
		{"no keystone there", func(c *Config) { c.AuthURL = s.URL + "/elsewhere/v3" }, ClassTerminal, []string{"404", "/elsewhere/v3", "no Keystone"}},
		{"no networking there", func(c *Config) { c.EndpointOverride = s.URL + "/other" }, ClassNotFound, []string{"404", "/other", "networking"}},
		{"unknown region", func(c *Config) { c.RegionName = "R3" }, ClassTerminal, []string{`"R3"`, "R1, R2", s.URL}},
		{"unknown interface", func(c *Config) { c.Interfaces = []string{"admin"} }, ClassTerminal, []string{"admin", "internal, public"}},
		{"misspelt interface", func(c *Config) { c.Interfaces = []string{"pubic"} }, ClassTerminal, []string{"valid_interfaces", `"pubic"`}},
		{"no networking in the catalog", func(c *Config) { c.AuthURL = none.URL + "/v3" }, ClassTerminal, []string{"no networking service", none.URL}},
		{"unknown authority", func(c *Config) { c.AuthURL = secure.URL + "/v3" }, ClassTerminal, []string{"cafile", secure.URL}},
		{"no such cafile", func(c *Config) { c.CAFile = filepath.Join(dir, "none.pem") }, ClassTerminal, []string{"cafile", "none.pem"}},
		{"cafile without a certificate", func(c *Config) { c.CAFile = notPEM }, ClassTerminal, []string{"cafile", notPEM}},
		{"no such certfile", func(c *Config) { c.CertFile = filepath.Join(dir, "none.pem") }, ClassTerminal, []string{"certfile", "none.pem"}},
		{"unknown cloud", func(c *Config) { c.Cloud, c.CloudsFile = "b", cloudsFile }, ClassTerminal, []string{`"b"`, "clouds.yaml"}},
		{"no clouds.yaml", func(c *Config) { c.Cloud, c.CloudsFile = "b", filepath.Join(dir, "none.yaml") }, ClassTerminal, []string{"none.yaml"}},
		{"no URL", func(c *Config) { c.AuthURL = "" }, ClassTerminal, []string{"auth_url"}},
		{"no password", func(c *Config) { c.Password = "" }, ClassTerminal, []string{"password"}},
		{"unknown way", func(c *Config) { c.AuthType = "v3kerberos" }, ClassTerminal, []string{"auth_type", "v3kerberos"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := s.config()
			test.change(&c)
			var log bytes.Buffer
			cloud, err := Connect(t.Context(), c, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
			if err == nil {
				cloud.Close()
				t.Fatal("connected")
			}
			t.Log(err)
			if got := Classify(err); got != test.class {
				t.Errorf("%v is %v, want %v", err, got, test.class)
			}
			for _, word := range test.says {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not say %q", err, word)
				}
			}
			for _, text := range []string{err.Error(), log.String(), fmt.Sprintf("%v %+v %#v %s", c, c, c, c)} {
				if strings.Contains(text, stubSecret) || strings.Contains(text, "wrong-one") {
					t.Errorf("a secret in %q", text)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
		})
	}
}

func TestConnectWays(t *testing.T) {
	s := newStub(t, false, nothing)
	secure := newStub(t, true, nothing)
	dir := t.TempDir()
	ca, cloudsFile := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "clouds.yaml")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	clouds := fmt.Sprintf("clouds:\n  a:\n    region_name: R2\n    interface: internal\n    auth: {auth_url: %s/v3, username: raven, password: %s, project_name: p, user_domain_name: Default, project_domain_name: Default}\n", s.URL, stubSecret)
	for path, text := range map[string]string{ca: string(block), cloudsFile: clouds} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name   string
		config Config
	}{
		{"password", s.config()},
		{"application credential", Config{AuthType: "v3applicationcredential", AuthURL: s.URL + "/v3", ApplicationCredentialID: "x", ApplicationCredentialSecret: stubSecret}},
		{"application credential by name", Config{AuthURL: s.URL + "/v3", Username: "raven", ApplicationCredentialName: "x", ApplicationCredentialSecret: stubSecret}},
		{"clouds.yaml", Config{Cloud: "a", CloudsFile: cloudsFile}},
		{"own authority", Config{AuthURL: secure.URL + "/v3", Username: "raven", Password: stubSecret, ProjectID: "p1", CAFile: ca}},
		{"insecure", Config{AuthURL: secure.URL + "/v3", Username: "raven", Password: stubSecret, ProjectID: "p1", Insecure: true}},
		{"second interface", Config{AuthURL: s.URL + "/v3", Username: "raven", Password: stubSecret, ProjectID: "p1", RegionName: "R2", Interfaces: []string{"admin", "internalURL"}}},
		{"override", Config{AuthURL: s.URL + "/v3", Username: "raven", Password: stubSecret, ProjectID: "p1", RegionName: "R9", EndpointOverride: s.URL + "/net/v2.0/"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c, err := Connect(t.Context(), test.config, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if c.ProjectID() != "p1" || !c.Has("revision-if-match") {
				t.Errorf("project %q, extensions %v", c.ProjectID(), c.Extensions())
			}
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for agent := range s.agents {
		if !strings.HasPrefix(agent, "raven/") {
			t.Errorf("user agent %q", agent)
		}
	}
}

// TestTokenExpires lets the token expire under many requests, over and over: none fails, and there are far fewer logins than
// requests.
func TestTokenExpires(t *testing.T) {
	var mu sync.Mutex
	served := 0
	var s *stub
	s = newStub(t, false, func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		served++
		expire := served%100 == 0
		mu.Unlock()
		if expire {
			s.expire()
		}
		_, _ = io.WriteString(w, `{"network":{"id":"n1"}}`)
	})
	c := s.connect(t)
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() {
			for range 25 {
				if _, err := c.Get(t.Context(), drivers.KindNetwork, "n1"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.issued < 4 || s.issued > 12 {
		t.Errorf("%d logins for 5 expiries", s.issued)
	}
}

func TestPasswordChanges(t *testing.T) {
	s := newStub(t, false, nothing)
	c := s.connect(t)
	s.expire()
	s.catalog = "%!" // no more logins: the answer is no JSON
	_, err := c.Get(t.Context(), drivers.KindNetwork, "n1")
	if Classify(err) != ClassRetry {
		t.Errorf("got %v (%v)", err, Classify(err))
	}
	if err == nil || strings.Contains(err.Error(), stubSecret) {
		t.Errorf("got %v", err)
	}
}

func TestFromConfig(t *testing.T) {
	tests := []struct {
		name string
		env  []string
		text string
		want Config
		err  bool
	}{
		{
			"keystoneauth's names", nil,
			"[neutron]\nauth_type = password\nauth_url = http://k/v3\nusername = u\npassword = p#;$$x\nproject_name = pr\n" +
				"valid_interfaces = internal,public\nregion_name = R\ntimeout = 30\ninsecure = yes\nambiguous_create_wait = 5m\n",
			Config{
				AuthType: "password", AuthURL: "http://k/v3", Username: "u", Password: "p#;$x", ProjectName: "pr",
				Interfaces: []string{"internal", "public"}, RegionName: "R", Timeout: 30 * time.Second, Insecure: true,
				AmbiguousWait: 5 * time.Minute, MaxBatch: DefaultMaxBatch, MaxConcurrency: DefaultMaxConcurrency,
			},
			false,
		},
		{
			"the names of 2016",
			[]string{"OS_URL=http://n:9696"},
			"[keystone_client]\nauth_uri = http://k:35357/v2.0\nadmin_user = u\nadmin_password = p\nadmin_tenant_name = service\n" +
				"auth_ca_cert = /ca\nauth_insecure = true\n",
			Config{
				AuthURL: "http://k:35357/v2.0", Username: "u", Password: "p", ProjectName: "service", CAFile: "/ca", Insecure: true,
				EndpointOverride: "http://n:9696", Interfaces: []string{"public"}, Timeout: DefaultTimeout,
				AmbiguousWait: DefaultAmbiguousWait, MaxBatch: DefaultMaxBatch, MaxConcurrency: DefaultMaxConcurrency,
			},
			false,
		},
		{
			"a cloud has its own interface", nil, "[neutron]\ncloud = mine\n",
			Config{
				Cloud: "mine", Timeout: DefaultTimeout, AmbiguousWait: DefaultAmbiguousWait, MaxBatch: DefaultMaxBatch,
				MaxConcurrency: DefaultMaxConcurrency,
			},
			false,
		},
		{"nothing", nil, "", Config{}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "kuryr.conf")
			if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			values, _, err := config.Load(config.Sources{Files: []string{file}, Environ: test.env}, Options())
			if err != nil {
				t.Fatal(err)
			}
			got, err := FromConfig(values)
			if (err != nil) != test.err {
				t.Fatalf("got %v", err)
			}
			if err != nil {
				return
			}
			got.Clock, got.Version = nil, ""
			if diff := cmp.Diff(asMap(t, test.want), asMap(t, got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// asMap lets cmp see a Config, which hides its secrets from printing.
func asMap(t *testing.T, c Config) map[string]any {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	return m
}
