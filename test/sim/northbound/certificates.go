// SPDX-License-Identifier: Apache-2.0

package northbound

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// Certificates writes an authority and, of it, a pair of key and certificate for each name into a folder, named as
// ovs-pki does: cacert.pem, <name>-privkey.pem, <name>-cert.pem. As with ovs-pki the certificates have no host's name
// in them.
func Certificates(dir string, names ...string) error {
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making a key: %w", err)
	}
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "OVN test CA"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if err := sign(filepath.Join(dir, "cacert.pem"), authority, authority, &authorityKey.PublicKey,
		authorityKey); err != nil {
		return err
	}
	for i, name := range names {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return fmt.Errorf("making a key: %w", err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return fmt.Errorf("encoding a key: %w", err)
		}
		if err := store(filepath.Join(dir, name+"-privkey.pem"), "PRIVATE KEY", der); err != nil {
			return err
		}
		certificate := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 2)), Subject: pkix.Name{CommonName: name + " id:1"},
			NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		}
		if err := sign(filepath.Join(dir, name+"-cert.pem"), certificate, authority, &key.PublicKey,
			authorityKey); err != nil {
			return err
		}
	}
	return nil
}

func sign(path string, certificate, authority *x509.Certificate, of *ecdsa.PublicKey, by *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, certificate, authority, of, by)
	if err != nil {
		return fmt.Errorf("signing %s: %w", path, err)
	}
	return store(path, "CERTIFICATE", der)
}

func store(path, kind string, der []byte) error {
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
