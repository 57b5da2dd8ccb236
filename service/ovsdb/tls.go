// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLS are the files of ssl connections, and what the operator has named them by, for errors.
type TLS struct {
	PrivateKey, Certificate, CACert            string // paths
	KeyOption, CertificateOption, CACertOption string
}

// Config reads the files. As everywhere in Open vSwitch it is the authority that counts, not the name in the server's
// certificate, which has none of a host.
func (t TLS) Config() (*tls.Config, error) {
	text, err := os.ReadFile(t.CACert)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", t.CACertOption, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: there is no certificate in %s", t.CACertOption, t.CACert)
	}
	own, err := tls.LoadX509KeyPair(t.Certificate, t.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("reading %s %s and %s %s: %w", t.CertificateOption, t.Certificate, t.KeyOption, t.PrivateKey,
			err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // of the usual check only the host's name is left out: see VerifyConnection
		VerifyConnection:   func(state tls.ConnectionState) error { return t.verify(pool, state) },
	}, nil
}

// verify checks the certificates that a server has shown.
func (t TLS) verify(pool *x509.CertPool, state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the server has shown no certificate")
	}
	between := x509.NewCertPool()
	for _, one := range state.PeerCertificates[1:] {
		between.AddCert(one)
	}
	_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: pool, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err != nil {
		return fmt.Errorf("the server's certificate is not of %s: %w", t.CACertOption, err)
	}
	return nil
}
