// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

// Config says which cloud, as whom, and how hard it may be worked. Cloud, or AuthURL with credentials, is required.
type Config struct {
	Cloud      string // a name in clouds.yaml
	CloudsFile string // instead of the places where clients search for clouds.yaml

	AuthType          string // password, v3password, v3applicationcredential, token, v3token; empty: by what is given
	AuthURL           string
	Username          string
	UserID            string
	Password          string
	UserDomainID      string
	UserDomainName    string
	ProjectID         string
	ProjectName       string
	ProjectDomainID   string
	ProjectDomainName string
	Token             string

	ApplicationCredentialID     string
	ApplicationCredentialName   string
	ApplicationCredentialSecret string

	RegionName       string
	Interfaces       []string // in order of preference: public, internal, admin; empty: public
	EndpointOverride string   // the networking service's address, instead of the catalog's

	CAFile, CertFile, KeyFile string
	Insecure                  bool

	Timeout        time.Duration // of one request; 0: DefaultTimeout
	MaxConcurrency int           // requests in flight; 0: DefaultMaxConcurrency
	MaxBatch       int           // resources in one create; 0: DefaultMaxBatch
	AmbiguousWait  time.Duration // after which a cut create cannot take effect any more; 0: DefaultAmbiguousWait

	Version   string            // of Raven, for the user agent
	Clock     clock.Clock       // nil: the real one
	Transport http.RoundTripper // nil: one of its own, by the TLS settings
}

// The defaults of Config.
const (
	DefaultTimeout        = 60 * time.Second
	DefaultMaxConcurrency = 16
	DefaultMaxBatch       = 512
	DefaultAmbiguousWait  = 120 * time.Second
)

// The ways to authenticate.
const (
	authPassword = "password"
	authAppCred  = "application credential"
	authToken    = "token"
)

// withDefaults fills in what was left open.
func (c Config) withDefaults() Config {
	c.Interfaces = slices.Clone(c.Interfaces)
	if c.Timeout <= 0 {
		c.Timeout = DefaultTimeout
	}
	if c.MaxConcurrency <= 0 {
		c.MaxConcurrency = DefaultMaxConcurrency
	}
	if c.MaxBatch <= 0 {
		c.MaxBatch = DefaultMaxBatch
	}
	if c.AmbiguousWait <= 0 {
		c.AmbiguousWait = DefaultAmbiguousWait
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Version == "" {
		c.Version = "devel"
	}
	return c
}

// Validate says what is missing, by the options' names.
func (c Config) Validate() error {
	for _, i := range c.Interfaces {
		if availability(i) == "" {
			return fmt.Errorf("[neutron] valid_interfaces: %q is none of public, internal, admin", i)
		}
	}
	if c.Cloud != "" {
		return nil
	}
	if c.AuthURL == "" {
		return fmt.Errorf("[neutron] auth_url is not set (nor cloud)")
	}
	way, err := c.authentication()
	if err != nil {
		return err
	}
	var missing []string
	need := func(set bool, name string) {
		if !set {
			missing = append(missing, name)
		}
	}
	switch way {
	case authPassword:
		need(c.Username != "" || c.UserID != "", "username")
		need(c.Password != "", "password")
		need(c.ProjectName != "" || c.ProjectID != "", "project_name")
	case authAppCred:
		need(c.ApplicationCredentialID != "" || c.ApplicationCredentialName != "", "application_credential_id")
		need(c.ApplicationCredentialSecret != "", "application_credential_secret")
		if c.ApplicationCredentialID == "" {
			need(c.Username != "" || c.UserID != "", "username (with application_credential_name)")
		}
	case authToken:
		need(c.Token != "", "token")
	}
	if len(missing) > 0 {
		return fmt.Errorf("[neutron] %s not set, which authentication by %s needs", strings.Join(missing, ", "), way)
	}
	return nil
}

func (c Config) authentication() (string, error) {
	switch c.AuthType {
	case "password", "v3password":
		return authPassword, nil
	case "v3applicationcredential":
		return authAppCred, nil
	case "token", "v3token":
		return authToken, nil
	case "":
		switch {
		case c.ApplicationCredentialID != "" || c.ApplicationCredentialName != "":
			return authAppCred, nil
		case c.Token != "" && c.Password == "":
			return authToken, nil
		}
		return authPassword, nil
	}
	return "", fmt.Errorf(
		"[neutron] auth_type: %q is none of password, v3password, v3applicationcredential, token, v3token", c.AuthType)
}

// Secrets returns the secrets with which Connect would log in, those of clouds.yaml among them, for a redactor. What
// cannot be read has none.
func (c Config) Secrets() []string {
	secrets := []string{c.Password, c.ApplicationCredentialSecret, c.Token}
	if c.Cloud != "" {
		if o, _, _, err := c.fromClouds(); err == nil {
			secrets = append(secrets, o.Password, o.ApplicationCredentialSecret, o.TokenID, o.Passcode)
		}
	}
	return slices.DeleteFunc(secrets, func(s string) bool { return s == "" })
}

// String shows the configuration without its secrets.
func (c Config) String() string {
	if c.Cloud != "" {
		return "cloud " + c.Cloud
	}
	return fmt.Sprintf("%s at %s", c.who(), redacted(c.AuthURL))
}

// LogValue implements slog.LogValuer: without secrets.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Format implements fmt.Formatter, so that no verb prints a secret.
func (c Config) Format(to fmt.State, _ rune) { _, _ = to.Write([]byte(c.String())) }

func (c Config) who() string {
	switch {
	case c.ApplicationCredentialID != "":
		return "application credential " + c.ApplicationCredentialID
	case c.ApplicationCredentialName != "":
		return "application credential " + c.ApplicationCredentialName
	case c.Username != "":
		return "user " + c.Username
	case c.UserID != "":
		return "user " + c.UserID
	}
	return "a token"
}
