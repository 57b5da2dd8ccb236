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
	"slices"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"

	"github.com/kuryr/raven/drivers"
)

// Connect logs in, finds the networking service and reads its extensions. Its errors are one line that says what is wrong and
// where; Classify tells ClassTerminal (the configuration), ClassUnauthorized and ClassRetry (the network) apart.
func Connect(ctx context.Context, config Config, logger *slog.Logger) (*Cloud, error) {
	config = config.withDefaults()
	if err := config.Validate(); err != nil {
		return nil, terminal("%w", err)
	}
	options, tlsConfig, config, err := config.resolve()
	if err != nil {
		return nil, err
	}
	transport := config.Transport
	if transport == nil {
		transport = newTransport(tlsConfig, config.MaxConcurrency)
	}
	client, err := login(ctx, config, options, transport)
	if err != nil {
		return nil, err
	}
	service, err := network(config, options, client)
	if err != nil {
		return nil, err
	}
	c := newCloud(config, service, transport, logger)
	if c.projectID, err = project(client); err != nil {
		return nil, terminal("reading the token of %s: %w", config.who(), err)
	}
	c.balancers = newBalancers(c, balancing(config, client))
	if err := c.readExtensions(ctx); err != nil {
		c.Close()
		return nil, err
	}
	logger.Info("connected to the cloud", "network", redacted(service.Endpoint), "project", c.projectID,
		"tags", c.kinds[drivers.KindPort].taggable, "revisions", c.Has("revision-if-match"))
	return c, nil
}

// resolve makes gophercloud's options of ours, or of clouds.yaml's.
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
		return gophercloud.AuthOptions{}, nil, c, terminal("%w", err)
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
		return o, nil, c, terminal("[neutron] cloud: reading cloud %q: %w", c.Cloud, err)
	}
	if o.IdentityEndpoint == "" {
		return o, nil, c, terminal("[neutron] cloud: cloud %q has no auth_url", c.Cloud)
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
	conf := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.Insecure} //nolint:gosec // insecure is the operator's own word
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, terminal("[neutron] cafile: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, terminal("[neutron] cafile: %s holds no certificate in PEM form", c.CAFile)
		}
	}
	if c.CertFile != "" {
		keyFile := c.KeyFile
		if keyFile == "" {
			keyFile = c.CertFile
		}
		certificate, err := tls.LoadX509KeyPair(c.CertFile, keyFile)
		if err != nil {
			return nil, terminal("[neutron] certfile: %w", err)
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

// login gets the first token. A new one is got when a request is refused; the contexts of the request that happens to be the
// first does not end that, since others wait for it too.
func login(
	ctx context.Context, config Config, options gophercloud.AuthOptions, transport http.RoundTripper,
) (*gophercloud.ProviderClient, error) {
	client, err := openstack.NewClient(options.IdentityEndpoint)
	if err != nil {
		return nil, terminal("[neutron] auth_url: %s: %w", redacted(options.IdentityEndpoint), err)
	}
	client.HTTPClient = http.Client{Transport: transport}
	client.UserAgent.Prepend("raven/" + config.Version)
	ctx, cancel := context.WithTimeout(ctx, config.Timeout)
	defer cancel()
	if err := openstack.Authenticate(ctx, client, options); err != nil {
		return nil, loginError(config, options.IdentityEndpoint, err)
	}
	if renew := client.ReauthFunc; renew != nil {
		client.ReauthFunc = func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), config.Timeout)
			defer cancel()
			return renew(ctx)
		}
	}
	return client, nil
}

func loginError(config Config, where string, err error) error {
	e := &Error{Op: "logging in at " + redacted(where) + " as " + config.who(), class: ClassRetry, cause: err}
	var refused gophercloud.ErrUnexpectedResponseCode
	var invalid x509.UnknownAuthorityError
	switch {
	case errors.As(err, &refused):
		e.Status = refused.Actual
		_, e.Message = explain(refused.Body)
		e.class = classifyStatus(e, false)
		if refused.Actual == http.StatusNotFound {
			e.Message, e.class = "there is no Keystone at this address: "+e.Message, ClassTerminal
		}
	case errors.As(err, &invalid):
		e.Message = "the server's certificate is not signed by a known authority ([neutron] cafile): " + brief(err)
		e.class = ClassTerminal
	default:
		e.Message = brief(err)
	}
	return e
}

// network finds the networking service's address in the catalog of the token.
func network(config Config, options gophercloud.AuthOptions, client *gophercloud.ProviderClient) (*gophercloud.ServiceClient, error) {
	address := config.EndpointOverride
	if address == "" {
		result, ok := client.GetAuthResult().(interface {
			ExtractServiceCatalog() (*tokens.ServiceCatalog, error)
		})
		if !ok {
			return nil, terminal("the token from %s has no catalog", redacted(options.IdentityEndpoint))
		}
		catalog, err := result.ExtractServiceCatalog()
		if err != nil {
			return nil, terminal("reading the catalog from %s: %w", redacted(options.IdentityEndpoint), err)
		}
		if address, err = endpoint(catalog, config, options.IdentityEndpoint, "network", "networking"); err != nil {
			return nil, err
		}
	}
	parsed, err := url.Parse(address)
	if err != nil || parsed.Host == "" {
		return nil, terminal("the networking service's address %q is no URL", redacted(address))
	}
	base := gophercloud.NormalizeURL(strings.TrimSuffix(strings.TrimRight(address, "/"), "/v2.0"))
	return &gophercloud.ServiceClient{ProviderClient: client, Endpoint: base, ResourceBase: base + "v2.0/", Type: "network"}, nil
}

func endpoint(catalog *tokens.ServiceCatalog, config Config, where string, types ...string) (string, error) {
	interfaces := config.Interfaces
	if len(interfaces) == 0 {
		interfaces = []string{"public"}
	}
	var regions, others []string
	for _, wanted := range interfaces {
		for _, entry := range catalog.Entries {
			if !slices.Contains(types, entry.Type) {
				continue
			}
			for _, e := range entry.Endpoints {
				regions = append(regions, e.Region)
				others = append(others, e.Interface)
				inRegion := config.RegionName == "" || e.Region == config.RegionName || e.RegionID == config.RegionName
				if inRegion && e.Interface == string(availability(wanted)) && e.URL != "" {
					return e.URL, nil
				}
			}
		}
	}
	unique := func(list []string) string { slices.Sort(list); return strings.Join(slices.Compact(list), ", ") }
	if len(regions) == 0 {
		return "", terminal("the catalog from %s has no networking service", redacted(where))
	}
	in := ""
	if config.RegionName != "" {
		in = fmt.Sprintf(" in region %q", config.RegionName)
	}
	return "", terminal("the catalog from %s has no %s endpoint of the networking service%s: it has the regions %s with the interfaces %s",
		redacted(where), strings.Join(interfaces, " or "), in, unique(regions), unique(others))
}

// availability is an interface by keystone's name; the old names end in URL.
func availability(name string) gophercloud.Availability {
	switch a := gophercloud.Availability(strings.TrimSuffix(strings.TrimSpace(name), "URL")); a {
	case gophercloud.AvailabilityPublic, gophercloud.AvailabilityInternal, gophercloud.AvailabilityAdmin:
		return a
	}
	return ""
}

func project(client *gophercloud.ProviderClient) (string, error) {
	result, ok := client.GetAuthResult().(interface {
		ExtractProject() (*tokens.Project, error)
	})
	if !ok {
		return "", errors.New("it names no project")
	}
	project, err := result.ExtractProject()
	if err != nil {
		return "", err
	}
	if project == nil || project.ID == "" {
		return "", errors.New("it is not scoped to a project ([neutron] project_name)")
	}
	return project.ID, nil
}

// readExtensions reads once what the networking service can do.
func (c *Cloud) readExtensions(ctx context.Context) error {
	r := call{
		op: "reading the extensions of the networking service at " + redacted(c.client.Load().Endpoint), method: http.MethodGet,
		kind: kind{many: "extensions"}, path: "extensions",
	}
	doc, err := c.do(ctx, r)
	if err != nil {
		return err
	}
	list, err := r.kind.list(doc)
	if err != nil {
		return newError(r, err, true)
	}
	for _, extension := range list {
		if alias, ok := extension["alias"].(string); ok {
			c.extensions[alias] = true
		}
	}
	if !c.extensions["standard-attr-description"] {
		return terminal("the networking service at %s has no descriptions (extension standard-attr-description), which Raven knows its resources by",
			redacted(c.client.Load().Endpoint))
	}
	limit(c.kinds, c.extensions)
	for name := range c.kinds {
		c.finders[name].kind = c.kinds[name]
		if b := c.batchers[name]; b != nil {
			b.kind = c.kinds[name]
		}
	}
	return nil
}

// terminal is an error of the configuration.
func terminal(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &Error{Message: oneLine(err.Error()), class: ClassTerminal, cause: err}
}

func redacted(address string) string {
	if parsed, err := url.Parse(address); err == nil {
		parsed.User = nil
		return parsed.String()
	}
	return "(not a URL)"
}
