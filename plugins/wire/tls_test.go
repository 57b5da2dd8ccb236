// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"testing"
)

// A driver accepts the client of its environment alone, and that client the server of the driver's handshake alone.
func TestClientTLS(t *testing.T) {
	t.Parallel()
	client, variable := clientTLS(t)
	authority, ok := strings.CutPrefix(variable, CertificateEnv+"=")
	known := x509.NewCertPool()
	if !ok || !known.AppendCertsFromPEM([]byte(authority)) {
		t.Fatalf("the driver's environment has %q", variable)
	}
	driver, _ := clientTLS(t) // its key serves as well
	driver.ClientAuth, driver.ClientCAs = tls.RequireAndVerifyClientCert, known
	stranger, _ := clientTLS(t)
	trusting := func(c *tls.Config) *tls.Config {
		c = c.Clone()
		c.RootCAs = x509.NewCertPool()
		leaf, err := x509.ParseCertificate(driver.Certificates[0].Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		c.RootCAs.AddCert(leaf)
		return c
	}
	for name, test := range map[string]struct {
		client   *tls.Config
		accepted bool
	}{
		"the client of the environment":       {trusting(client), true},
		"another client":                      {trusting(stranger), false},
		"a server that is not in a handshake": {client, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := greet(test.client, driver); (err == nil) != test.accepted {
				t.Errorf("accepted must be %t: %v", test.accepted, err)
			}
		})
	}
}

func clientTLS(t *testing.T) (*tls.Config, string) {
	t.Helper()
	config, variable, err := ClientTLS()
	if err != nil {
		t.Fatal(err)
	}
	return config, variable
}

// greet sends one byte from the server to the client.
func greet(client, server *tls.Config) error {
	here, there := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		end := tls.Server(there, server)
		_, _ = end.Write([]byte{1})
		_ = there.Close()
	}()
	_, err := tls.Client(here, client).Read(make([]byte, 1))
	_ = here.Close()
	<-done
	return err
}
