// SPDX-License-Identifier: Apache-2.0

package ovn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/service/config"
)

const (
	optionGroup = "ovn"
	database    = "OVN_Northbound"
)

// Config says where the northbound database is, and how it is dealt with.
type Config struct {
	// Endpoints are the servers, in OVSDB's notation: unix:/path, tcp:host:port, ssl:host:port. Of a cluster all of them.
	Endpoints []string
	// PrivateKey, Certificate and CACert are paths, for ssl.
	PrivateKey, Certificate, CACert string
	// Cluster is the cluster id that identities carry.
	Cluster string
	// Timeout bounds a transaction, and the silence of a server that is connected to and copied; 0: DefaultTimeout.
	Timeout time.Duration
	// Probe is the time between two probes of a server that sends nothing; 0: DefaultProbe.
	Probe time.Duration
	// BackoffMin and BackoffMax bound the time between two attempts to connect; 0: 100 ms, DefaultBackoffMax.
	BackoffMin, BackoffMax time.Duration
	// Pass returns the context of a transaction that may be sent now, or an error where this process must not write.
	// Nil: it always may.
	Pass func(context.Context) (context.Context, context.CancelFunc, error)
	// Clock is nil for the real one.
	Clock clock.Clock
}

// The defaults of Config.
const (
	DefaultTimeout      = 10 * time.Second
	DefaultProbe        = 5 * time.Second
	DefaultBackoffMax   = 10 * time.Second
	defaultFirstBackoff = 100 * time.Millisecond
)

// Options declares [ovn].
func Options() []config.Option {
	former := func(name string) []config.Name { return []config.Name{{Group: optionGroup, Name: name}} }
	bound := func(f float64) *float64 { return &f }
	options := []config.Option{
		{
			Name: "nb_connection", Type: config.List, Deprecated: former("ovn_nb_connection"),
			SampleDefault: "ssl:192.0.2.10:6641,ssl:192.0.2.11:6641,ssl:192.0.2.12:6641",
			Pattern:       `^(unix:/.+|(tcp|ssl):.+:[0-9]+)$`,
			Help: "The servers of OVN's northbound database: unix:/path, tcp:address:port or ssl:address:port; of " +
				"a cluster all of them. Needed by drivers that make OVN load balancers (kubeproxy), and as long as some that " +
				"were made are left: whoever changes to another driver keeps it until `raven status` says 0 load balancers. A " +
				"reload without it is refused until then; after a start without it they serve on beside the other driver's. " +
				"Default: none.",
		},
		{
			Name: "nb_private_key", Deprecated: former("ovn_nb_private_key"), SampleDefault: "/etc/kuryr/ovn/raven-privkey.pem",
			Help: "Path of the private key of the client certificate, for ssl. It is read at each connection.",
		},
		{
			Name: "nb_certificate", Deprecated: former("ovn_nb_certificate"), SampleDefault: "/etc/kuryr/ovn/raven-cert.pem",
			Help: "Path of the client certificate, for ssl.",
		},
		{
			Name: "nb_ca_cert", Deprecated: former("ovn_nb_ca_cert"), SampleDefault: "/etc/kuryr/ovn/cacert.pem",
			Help: "Path of the certificate of the authority that the servers' certificates are of, for ssl.",
		},
		{
			Name: "connection_timeout", Type: config.Duration, Default: "10", Min: bound(0.1),
			Deprecated: former("ovsdb_connection_timeout"), Advanced: true,
			Help: "How long one transaction may take, how long a server may send nothing while it is connected to and its " +
				"rows are copied, and how long a start waits for a connection, in seconds.",
		},
		{
			Name: "probe_interval", Type: config.Duration, Default: "5", Min: bound(0.1), Advanced: true,
			Help: "The time between two checks whether the server still answers, in seconds.",
		},
		{
			Name: "retry_max_interval", Type: config.Duration, Default: "10", Min: bound(0.1),
			Deprecated: former("ovsdb_retry_max_interval"), Advanced: true,
			Help: "The longest time between two attempts to connect, in seconds.",
		},
	}
	for i := range options {
		options[i].Group, options[i].Declarer = optionGroup, "kuryr.raven"
	}
	return options
}

// FromConfig reads [ovn]. It returns false where there is no connection configured. The caller adds Cluster, Pass and
// Clock.
func FromConfig(v *config.Values) (Config, bool) {
	c := Config{
		Endpoints: v.List(optionGroup, "nb_connection"), PrivateKey: v.String(optionGroup, "nb_private_key"),
		Certificate: v.String(optionGroup, "nb_certificate"), CACert: v.String(optionGroup, "nb_ca_cert"),
		Timeout: v.Duration(optionGroup, "connection_timeout"), Probe: v.Duration(optionGroup, "probe_interval"),
		BackoffMax: v.Duration(optionGroup, "retry_max_interval"),
	}
	return c, len(c.Endpoints) > 0
}

// Validate fills in defaults and says what cannot be.
func (c *Config) Validate() error {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	for _, d := range []struct {
		at       *time.Duration
		standard time.Duration
	}{
		{&c.Timeout, DefaultTimeout},
		{&c.Probe, DefaultProbe},
		{&c.BackoffMin, defaultFirstBackoff},
		{&c.BackoffMax, DefaultBackoffMax},
	} {
		if *d.at <= 0 {
			*d.at = d.standard
		}
	}
	c.Endpoints = slices.Clone(c.Endpoints)
	if len(c.Endpoints) == 0 {
		return errors.New("[ovn] nb_connection is empty")
	}
	secure := false
	for _, endpoint := range c.Endpoints {
		scheme, rest, _ := strings.Cut(endpoint, ":")
		switch scheme {
		case "unix":
			if !strings.HasPrefix(rest, "/") {
				return fmt.Errorf("[ovn] nb_connection: %q has no path that begins with a slash", endpoint)
			}
		case "tcp", "ssl":
			secure = secure || scheme == "ssl"
			if _, port, err := net.SplitHostPort(rest); err != nil || port == "" {
				return fmt.Errorf("[ovn] nb_connection: %q is not %s:address:port; an IPv6 address stands in brackets", endpoint,
					scheme)
			}
		default:
			return fmt.Errorf("[ovn] nb_connection: %q begins with none of unix:, tcp: and ssl: as it should", endpoint)
		}
	}
	if !secure {
		return nil
	}
	if c.PrivateKey == "" || c.Certificate == "" || c.CACert == "" {
		return errors.New("[ovn] nb_connection has ssl: that takes nb_private_key, nb_certificate and nb_ca_cert")
	}
	_, err := c.tls()
	return err
}
