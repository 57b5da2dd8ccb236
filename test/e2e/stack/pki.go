// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority issues certificates into its folder.
type authority struct {
	dir         string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	serial      int64
}

// newAuthority makes ca.crt and ca.key.
func newAuthority(dir, name string) (*authority, error) {
	key, err := newKey(filepath.Join(dir, "ca.key"))
	if err != nil {
		return nil, err
	}
	a := &authority{dir: dir, key: key, serial: 1}
	a.certificate = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().AddDate(1, 0, 0),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	return a, a.sign("ca", a.certificate, key)
}

// issue makes name.crt and name.key, for a server that is known by hosts or for a client.
func (a *authority) issue(name, subject, group string, hosts ...string) error {
	key, err := newKey(filepath.Join(a.dir, name+".key"))
	if err != nil {
		return err
	}
	a.serial++
	c := &x509.Certificate{
		SerialNumber: big.NewInt(a.serial), Subject: pkix.Name{CommonName: subject}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if group != "" {
		c.Subject.Organization = []string{group}
	}
	for _, host := range hosts {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		if address := net.ParseIP(host); address != nil {
			c.IPAddresses = append(c.IPAddresses, address)
		} else {
			c.DNSNames = append(c.DNSNames, host)
		}
	}
	return a.sign(name, c, key)
}

func (a *authority) sign(name string, c *x509.Certificate, key *ecdsa.PrivateKey) error {
	content, err := x509.CreateCertificate(rand.Reader, c, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		return fmt.Errorf("making the certificate of %s: %w", name, err)
	}
	content = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: content})
	return os.WriteFile(filepath.Join(a.dir, name+".crt"), content, 0o644)
}

// newKey makes a key and its file.
func newKey(path string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	content, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: content}), 0o600)
}
