// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
)

// Connect logs in and finds the services. Its errors are one line that says what is wrong and
// where; Classify tells ClassTerminal (the configuration), ClassUnauthorized and ClassRetry (the network) apart.
func Connect(ctx context.Context, config Config, logger *slog.Logger) (*Connection, error) {
	config = config.withDefaults()
	if err := config.Validate(); err != nil {
		return nil, Terminal("%w", err)
	}
	options, tlsConfig, config, err := config.resolve()
	if err != nil {
		return nil, err
	}
	transport := config.Transport
	if transport == nil {
		transport = newTransport(tlsConfig, config.MaxConcurrency)
	}
	identity := &reach{clock: config.Clock}
	client, err := login(ctx, config, options, transport, identity)
	if err != nil {
		return nil, err
	}
	c := newConnection(config, client, transport, identity, logger)
	service, err := networking(config, options, client)
	if err != nil {
		return nil, err
	}
	c.networking.client.Store(service)
	if c.projectID, err = project(client); err != nil {
		return nil, Terminal("reading the token of %s: %w", config.who(), err)
	}
	c.balancing.client.Store(balancing(config, client))
	return c, nil
}

// Check says what is wrong with the configuration and with the files that it names, clouds.yaml among them, without a
// request. Its errors are those of Connect.
func (c Config) Check() error {
	c = c.withDefaults()
	if err := c.Validate(); err != nil {
		return Terminal("%w", err)
	}
	_, _, _, err := c.resolve()
	return err
}

// resolve makes gophercloud's options of Raven's, or of clouds.yaml's.
func (c Config) resolve() (gophercloud.AuthOptions, *tls.Config, Config, error) {
	if c.Cloud != "" {
		return c.fromClouds()
	}
	tlsConfig, err := c.tls()
	if err != nil {
		return gophercloud.AuthOptions{}, nil, c, err
	}
	way, err := c.authentication()
	if err != nil {
		return gophercloud.AuthOptions{}, nil, c, Terminal("%w", err)
	}
	// auth_uri of old configurations ended in v2.0, which no Keystone has had for years.
	o := gophercloud.AuthOptions{
		IdentityEndpoint: strings.TrimSuffix(strings.TrimRight(c.AuthURL, "/"), "/v2.0"), AllowReauth: way != authToken,
	}
	user := func() {
		o.Username, o.UserID = c.Username, c.UserID
		if c.UserID == "" {
			o.DomainID, o.DomainName = domain(c.UserDomainID, c.UserDomainName)
		}
	}
	switch way {
	case authAppCred:
		o.ApplicationCredentialID, o.ApplicationCredentialName = c.ApplicationCredentialID, c.ApplicationCredentialName
		o.ApplicationCredentialSecret = c.ApplicationCredentialSecret
		if c.ApplicationCredentialID == "" {
			user()
		}
		return o, tlsConfig, c, nil
	case authToken:
		o.TokenID = c.Token
	default:
		o.Password = c.Password
		user()
	}
	switch {
	case c.ProjectID != "":
		o.Scope = &gophercloud.AuthScope{ProjectID: c.ProjectID}
	case c.ProjectName != "":
		o.Scope = &gophercloud.AuthScope{ProjectName: c.ProjectName}
		o.Scope.DomainID, o.Scope.DomainName = domain(c.ProjectDomainID, c.ProjectDomainName)
	}
	return o, tlsConfig, c, nil
}

// domain is the one domain that keystone takes; the default one where none is given.
func domain(id, name string) (string, string) {
	switch {
	case id != "":
		return id, ""
	case name != "":
		return "", name
	}
	return "default", ""
}

func (c Config) fromClouds() (gophercloud.AuthOptions, *tls.Config, Config, error) {
	options := []clouds.ParseOption{clouds.WithCloudName(c.Cloud)}
	if c.CloudsFile != "" {
		options = append(options, clouds.WithLocations(c.CloudsFile))
	}
	if c.RegionName != "" {
		options = append(options, clouds.WithRegion(c.RegionName))
	}
	if c.CAFile != "" {
		options = append(options, clouds.WithCACertPath(c.CAFile))
	}
	if c.CertFile != "" {
		options = append(options, clouds.WithClientCertPath(c.CertFile), clouds.WithClientKeyPath(c.KeyFile))
	}
	if c.Insecure {
		options = append(options, clouds.WithInsecure(true))
	}
	o, e, tlsConfig, err := clouds.Parse(options...)
	if err != nil {
		return o, nil, c, Terminal("[neutron] cloud: reading cloud %q: %w", c.Cloud, err)
	}
	if o.IdentityEndpoint == "" {
		return o, nil, c, Terminal("[neutron] cloud: cloud %q has no auth_url", c.Cloud)
	}
	o.AllowReauth = o.TokenID == ""
	c.RegionName = e.Region
	if len(c.Interfaces) == 0 && e.Availability != "" {
		c.Interfaces = []string{string(e.Availability)}
	}
	// For messages.
	c.Username, c.UserID, c.AuthURL = o.Username, o.UserID, o.IdentityEndpoint
	c.ApplicationCredentialID, c.ApplicationCredentialName = o.ApplicationCredentialID, o.ApplicationCredentialName
	return o, tlsConfig, c, nil
}

func (c Config) tls() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	conf.InsecureSkipVerify = c.Insecure // the operator's own word
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, Terminal("[neutron] cafile: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, Terminal("[neutron] cafile: %s holds no certificate in PEM form", c.CAFile)
		}
	}
	if c.CertFile != "" {
		keyFile := c.KeyFile
		if keyFile == "" {
			keyFile = c.CertFile
		}
		certificate, err := tls.LoadX509KeyPair(c.CertFile, keyFile)
		if err != nil {
			return nil, Terminal("[neutron] certfile: %w", err)
		}
		conf.Certificates = []tls.Certificate{certificate}
	}
	return conf, nil
}

func newTransport(tlsConfig *tls.Config, connections int) *http.Transport {
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true,
		MaxIdleConns: 2 * connections, MaxIdleConnsPerHost: connections, IdleConnTimeout: 90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second,
	}
}

// login gets the first token. A new one is got when a request is refused; the contexts of the request that happens to
// be the first does not end that, since others wait for it too.
func login(
	ctx context.Context, config Config, options gophercloud.AuthOptions, transport http.RoundTripper, identity *reach,
) (*gophercloud.ProviderClient, error) {
	client, err := openstack.NewClient(options.IdentityEndpoint)
	if err != nil {
		return nil, Terminal("[neutron] auth_url: %s: %w", redacted(options.IdentityEndpoint), err)
	}
	client.HTTPClient = http.Client{Transport: transport}
	client.UserAgent.Prepend("raven/" + config.Version)
	ctx, cancel := context.WithTimeout(ctx, config.Timeout)
	defer cancel()
	if err := openstack.Authenticate(ctx, client, options); err != nil {
		return nil, loginError(config, options.IdentityEndpoint, err)
	}
	identity.note(nil)
	if renew := client.ReauthFunc; renew != nil {
		client.ReauthFunc = func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), config.Timeout)
			defer cancel()
			err := renew(ctx)
			if err != nil {
				identity.note(loginError(config, options.IdentityEndpoint, err))
				return err
			}
			identity.note(nil)
			return nil
		}
	}
	return client, nil
}

func loginError(config Config, where string, err error) error {
	e := &Error{Op: "logging in at " + redacted(where) + " as " + config.who(), Class: ClassRetry, Cause: err}
	var refused gophercloud.ErrUnexpectedResponseCode
	var invalid x509.UnknownAuthorityError
	switch {
	case errors.As(err, &refused):
		e.Status = refused.Actual
		_, e.Message = explain(refused.Body)
		e.Class = classifyStatus(e, false)
		if refused.Actual == http.StatusNotFound {
			e.Message, e.Class = "there is no Keystone at this address: "+e.Message, ClassTerminal
		}
	case errors.As(err, &invalid):
		e.Message = "the server's certificate is not signed by a known authority ([neutron] cafile): " + brief(err)
		e.Class = ClassTerminal
	default:
		e.Message = brief(err)
	}
	return e
}

// Terminal is an error of the configuration.
func Terminal(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &Error{Message: OneLine(err.Error()), Class: ClassTerminal, Cause: err}
}

func redacted(address string) string {
	if parsed, err := url.Parse(address); err == nil {
		parsed.User = nil
		return parsed.String()
	}
	return "(not a URL)"
}
