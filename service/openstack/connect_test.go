// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
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
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/cloud"
	"github.com/kuryr/raven/service/openstack/internal/stacktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connect(tb testing.TB, config openstack.Config) *cloud.Cloud {
	tb.Helper()
	c, err := cloud.Connect(tb.Context(), config, slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

// TestConnectErrors checks that what an operator gets wrong is said on one line, with what and where.
func TestConnectErrors(t *testing.T) {
	s := stacktest.NewStub(t, false, stacktest.Nothing)
	none := stacktest.NewStub(t, false, stacktest.Nothing)
	none.Catalog = `[{"type":"compute","endpoints":[]}]`
	secure := stacktest.NewStub(t, true, stacktest.Nothing)
	dir := t.TempDir()
	notPEM := filepath.Join(dir, "not.pem")
	cloudsFile := filepath.Join(dir, "clouds.yaml")
	for path, text := range map[string]string{
		notPEM: "hello", cloudsFile: "clouds: {a: {auth: {auth_url: http://x/v3}}}",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name   string
		change func(*openstack.Config)
		class  openstack.Class
		says   []string
	}{
		{
			"wrong password", func(c *openstack.Config) { c.Password = "wrong-one" }, openstack.ClassUnauthorized,
			[]string{"401", "user raven", s.URL},
		},
		{
			"wrong secret of an application credential",
			func(c *openstack.Config) {
				c.ApplicationCredentialID, c.ApplicationCredentialSecret = "ac1", "wrong-one"
			},
			openstack.ClassUnauthorized,
			[]string{"401", "application credential ac1", s.URL},
		},
		{
			"nobody listens", func(c *openstack.Config) { c.AuthURL = "http://127.0.0.1:1/v3" }, openstack.ClassRetry,
			[]string{"http://127.0.0.1:1/v3", "refused"},
		},
		{
			"no keystone there", func(c *openstack.Config) { c.AuthURL = s.URL + "/elsewhere/v3" }, openstack.ClassTerminal,
			[]string{"404", "/elsewhere/v3", "no Keystone"},
		},
		{
			"no networking there", func(c *openstack.Config) { c.EndpointOverride = s.URL + "/other" }, openstack.ClassNotFound,
			[]string{"404", "/other", "networking"},
		},
		{
			"unknown region", func(c *openstack.Config) { c.RegionName = "R3" }, openstack.ClassTerminal,
			[]string{`"R3"`, "R1, R2", s.URL},
		},
		{
			"unknown interface", func(c *openstack.Config) { c.Interfaces = []string{"admin"} }, openstack.ClassTerminal,
			[]string{"admin", "internal, public"},
		},
		{
			"misspelt interface", func(c *openstack.Config) { c.Interfaces = []string{"pubic"} }, openstack.ClassTerminal,
			[]string{"valid_interfaces", `"pubic"`},
		},
		{
			"no networking in the catalog", func(c *openstack.Config) { c.AuthURL = none.URL + "/v3" }, openstack.ClassTerminal,
			[]string{"no networking service", none.URL},
		},
		{
			"unknown authority", func(c *openstack.Config) { c.AuthURL = secure.URL + "/v3" }, openstack.ClassTerminal,
			[]string{"cafile", secure.URL},
		},
		{
			"no such cafile", func(c *openstack.Config) { c.CAFile = filepath.Join(dir, "none.pem") }, openstack.ClassTerminal,
			[]string{"cafile", "none.pem"},
		},
		{
			"cafile without a certificate", func(c *openstack.Config) { c.CAFile = notPEM }, openstack.ClassTerminal,
			[]string{"cafile", notPEM},
		},
		{
			"no such certfile", func(c *openstack.Config) { c.CertFile = filepath.Join(dir, "none.pem") },
			openstack.ClassTerminal,
			[]string{"certfile", "none.pem"},
		},
		{
			"unknown cloud", func(c *openstack.Config) { c.Cloud, c.CloudsFile = "b", cloudsFile }, openstack.ClassTerminal,
			[]string{`"b"`, "clouds.yaml"},
		},
		{
			"no clouds.yaml", func(c *openstack.Config) { c.Cloud, c.CloudsFile = "b", filepath.Join(dir, "none.yaml") },
			openstack.ClassTerminal,
			[]string{"none.yaml"},
		},
		{"no URL", func(c *openstack.Config) { c.AuthURL = "" }, openstack.ClassTerminal, []string{"auth_url"}},
		{"no password", func(c *openstack.Config) { c.Password = "" }, openstack.ClassTerminal, []string{"password"}},
		{
			"unknown way", func(c *openstack.Config) { c.AuthType = "v3kerberos" }, openstack.ClassTerminal,
			[]string{"auth_type", "v3kerberos"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := s.Options()
			test.change(&c)
			var log bytes.Buffer
			connected, err := cloud.Connect(
				t.Context(), c, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			)
			if err == nil {
				connected.Close()
				t.Fatal("connected")
			}
			t.Log(err)
			if got := openstack.Classify(err); got != test.class {
				t.Errorf("%v is %v, want %v", err, got, test.class)
			}
			for _, word := range test.says {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not say %q", err, word)
				}
			}
			for _, text := range []string{err.Error(), log.String(), fmt.Sprintf("%v %+v %#v %s", c, c, c, c)} {
				if strings.Contains(text, stacktest.Secret) || strings.Contains(text, "wrong-one") {
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
	s := stacktest.NewStub(t, false, stacktest.Nothing)
	secure := stacktest.NewStub(t, true, stacktest.Nothing)
	dir := t.TempDir()
	ca, cloudsFile := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "clouds.yaml")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	clouds := fmt.Sprintf(
		"clouds:\n  a:\n    region_name: R2\n    interface: internal\n"+
			"    auth: {auth_url: %s/v3, username: raven, "+
			"password: %s, project_name: p, user_domain_name: Default, project_domain_name: Default}\n",
		s.URL, stacktest.Secret,
	)
	for path, text := range map[string]string{ca: string(block), cloudsFile: clouds} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name   string
		config openstack.Config
	}{
		{"password", s.Options()},
		{
			"application credential",
			openstack.Config{
				AuthType: "v3applicationcredential", AuthURL: s.URL + "/v3", ApplicationCredentialID: "x",
				ApplicationCredentialSecret: stacktest.Secret,
			},
		},
		{
			"application credential by name",
			openstack.Config{
				AuthURL: s.URL + "/v3", Username: "raven", ApplicationCredentialName: "x",
				ApplicationCredentialSecret: stacktest.Secret,
			},
		},
		{"clouds.yaml", openstack.Config{Cloud: "a", CloudsFile: cloudsFile}},
		{
			"own authority",
			openstack.Config{
				AuthURL: secure.URL + "/v3", Username: "raven", Password: stacktest.Secret, ProjectID: "p1", CAFile: ca,
			},
		},
		{
			"insecure",
			openstack.Config{
				AuthURL: secure.URL + "/v3", Username: "raven", Password: stacktest.Secret, ProjectID: "p1", Insecure: true,
			},
		},
		{
			"second interface",
			openstack.Config{
				AuthURL: s.URL + "/v3", Username: "raven", Password: stacktest.Secret, ProjectID: "p1", RegionName: "R2",
				Interfaces: []string{"admin", "internalURL"},
			},
		},
		{
			"override",
			openstack.Config{
				AuthURL: s.URL + "/v3", Username: "raven", Password: stacktest.Secret, ProjectID: "p1", RegionName: "R9",
				EndpointOverride: s.URL + "/net/v2.0/",
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c, err := cloud.Connect(t.Context(), test.config, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if c.ProjectID() != "p1" || !c.Neutron.Has("revision-if-match") {
				t.Errorf("project %q, extensions %v", c.ProjectID(), c.Neutron.Extensions())
			}
		})
	}
	for _, agent := range s.Agents() {
		if !strings.HasPrefix(agent, "raven/") {
			t.Errorf("user agent %q", agent)
		}
	}
}

// TestTokenExpires lets the token expire under many requests, over and over: none fails, and there are far fewer logins
// than requests.
func TestTokenExpires(t *testing.T) {
	var mu sync.Mutex
	served := 0
	var s *stacktest.Stub
	s = stacktest.NewStub(t, false, func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		served++
		expire := served%100 == 0
		mu.Unlock()
		if expire {
			s.Expire()
		}
		_, _ = io.WriteString(w, `{"network":{"id":"n1"}}`)
	})
	c := connect(t, s.Options())
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() {
			for range 25 {
				if _, err := c.Neutron.Get(t.Context(), drivers.KindNetwork, "n1"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	if n := s.Logins(); n < 4 || n > 12 {
		t.Errorf("%d logins for 5 expiries", n)
	}
}

func TestPasswordChanges(t *testing.T) {
	s := stacktest.NewStub(t, false, stacktest.Nothing)
	c := connect(t, s.Options())
	s.Expire()
	s.Catalog = "%!" // no more logins: the answer is no JSON
	_, err := c.Neutron.Get(t.Context(), drivers.KindNetwork, "n1")
	if openstack.Classify(err) != openstack.ClassRetry {
		t.Errorf("got %v (%v)", err, openstack.Classify(err))
	}
	if err == nil || strings.Contains(err.Error(), stacktest.Secret) {
		t.Errorf("got %v", err)
	}
}

func TestFromConfig(t *testing.T) {
	tests := []struct {
		name string
		env  []string
		text string
		want openstack.Config
		err  bool
	}{
		{
			"keystoneauth's names", nil,
			"[neutron]\nauth_type = password\nauth_url = http://k/v3\nusername = u\npassword = p#;$$x\nproject_name = pr\n" +
				"valid_interfaces = internal,public\nregion_name = R\ntimeout = 30\ninsecure = yes\nambiguous_create_wait = 5m\n",
			openstack.Config{
				AuthType: "password", AuthURL: "http://k/v3", Username: "u", Password: "p#;$x", ProjectName: "pr",
				Interfaces: []string{"internal", "public"}, RegionName: "R", Timeout: 30 * time.Second, Insecure: true,
				AmbiguousWait: 5 * time.Minute, MaxBatch: openstack.DefaultMaxBatch,
				MaxConcurrency: openstack.DefaultMaxConcurrency,
			},
			false,
		},
		{
			"the names of 2016",
			[]string{"OS_URL=http://n:9696"},
			"[keystone_client]\nauth_uri = http://k:35357/v2.0\nadmin_user = u\nadmin_password = p\n" +
				"admin_tenant_name = service\n" +
				"auth_ca_cert = /ca\nauth_insecure = true\n",
			openstack.Config{
				AuthURL: "http://k:35357/v2.0", Username: "u", Password: "p", ProjectName: "service", CAFile: "/ca", Insecure: true,
				EndpointOverride: "http://n:9696", Interfaces: []string{"public"}, Timeout: openstack.DefaultTimeout,
				AmbiguousWait: openstack.DefaultAmbiguousWait, MaxBatch: openstack.DefaultMaxBatch,
				MaxConcurrency: openstack.DefaultMaxConcurrency,
			},
			false,
		},
		{
			"a cloud has its own interface", nil, "[neutron]\ncloud = mine\n",
			openstack.Config{
				Cloud: "mine", Timeout: openstack.DefaultTimeout, AmbiguousWait: openstack.DefaultAmbiguousWait,
				MaxBatch:       openstack.DefaultMaxBatch,
				MaxConcurrency: openstack.DefaultMaxConcurrency,
			},
			false,
		},
		{"nothing", nil, "", openstack.Config{}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "kuryr.conf")
			if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			values, _, err := config.Load(config.Sources{Files: []string{file}, Environ: test.env}, openstack.Options())
			if err != nil {
				t.Fatal(err)
			}
			got, err := openstack.FromConfig(values)
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
func asMap(t *testing.T, c openstack.Config) map[string]any {
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
