// SPDX-License-Identifier: Apache-2.0

package python_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/plugins/wire"
)

const interpreter = "/usr/bin/python3"

const driver = `
import sys
sys.path.insert(0, sys.argv.pop(1))
import raven_driver as raven

class Driver:
    def core(self, capabilities):
        self.kinds = [name[5:] for name in capabilities if name in ("kind:network", "kind:loadbalancer")]
    def info(self):
        print("text that is no handshake")
        return raven.Info(name="small", version="1", kinds=getattr(self, "kinds", []), capabilities=["small-talk"])
    def configure(self, values):
        return [raven.Watch(name="namespaces", version="v1", resource="namespaces", kind="Namespace", source=True)]
    def translate(self, obj, needs):
        return raven.Set()

raven.serve(Driver())
`

// certificate makes one as go-plugin makes Raven's: ECDSA on P-521, its own authority, for localhost.
func certificate(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		NotBefore:    time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageKeyAgreement |
			x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// A driver in Python takes go-plugin's certificate, lets nobody else in, and ends with Raven.
func TestMutualTLSAndLifeline(t *testing.T) {
	if err := exec.CommandContext(t.Context(), interpreter, "-c",
		"import cryptography, grpc, google.protobuf").Run(); err != nil {
		t.Skipf("%s lacks grpcio, protobuf or cryptography: %v", interpreter, err)
	}
	sdk, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "py") //nolint:usetesting // short: a socket is in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ours, ourPEM := certificate(t)
	theirs, _ := certificate(t)
	read, lifeline, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), interpreter, "-c", driver, sdk)
	cmd.ExtraFiles = []*os.File{read}
	cmd.Env = []string{
		wire.CookieKey + "=" + wire.CookieValue, wire.LifelineEnv + "=3", "PLUGIN_UNIX_SOCKET_DIR=" + dir,
		"PLUGIN_CLIENT_CERT=" + ourPEM,
		"PYTHONDONTWRITEBYTECODE=1",
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = read.Close()
	line, err := bufio.NewReader(out).ReadString('\n')
	parts := strings.Split(strings.TrimSpace(line), "|")
	if err != nil || len(parts) != 6 || filepath.Dir(parts[3]) != dir {
		t.Fatalf("its handshake is %q (%v)", line, err)
	}
	der, err := base64.RawStdEncoding.DecodeString(parts[5])
	if err != nil {
		t.Fatal(err)
	}
	authority, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(authority)
	for who, config := range map[string]*tls.Config{
		"Raven":                   {Certificates: []tls.Certificate{ours}},
		"somebody else":           {Certificates: []tls.Certificate{theirs}},
		"one without certificate": {},
	} {
		config.RootCAs, config.ServerName, config.MinVersion = pool, "localhost", tls.VersionTLS12
		if err := connects(t, parts[3], config); (err == nil) != (who == "Raven") {
			t.Errorf("%s: %v", who, err)
		}
	}
	_ = lifeline.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

const talkative = `
import logging, sys
sys.path.insert(0, ".")
from raven_driver import contract, log, service
log.set_up()
class Driver:
    def translate(self, obj, needs):
        logging.warning("about it", extra={"key": 1})
items = [b'{"metadata": {"namespace": "shop", "name": "web"}}', b'{"metadata": []}']
for item in items:
    service.Service(Driver()).result(contract.TranslateItem(object=contract.Object(watch="pods", json=item)))
logging.info("about nothing")
`

// What a driver logs about an object says which one it is.
func TestLinesNameTheirObject(t *testing.T) {
	if err := exec.CommandContext(t.Context(), interpreter, "-c", "import grpc, google.protobuf").Run(); err != nil {
		t.Skipf("%s lacks grpcio or protobuf: %v", interpreter, err)
	}
	cmd := exec.CommandContext(t.Context(), interpreter, "-c", talkative)
	cmd.Env = []string{"PYTHONDONTWRITEBYTECODE=1"}
	out, err := cmd.CombinedOutput()
	want := `{"@level": "warn", "@message": "about it", "watch": "pods", "object": "shop/web", "key": 1}
{"@level": "warn", "@message": "about it", "watch": "pods", "object": "", "key": 1}
{"@level": "info", "@message": "about nothing"}
`
	if diff := cmp.Diff(want, string(out)); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// A driver that is started by hand with --debug serves who attaches to it as it says, and is told what the core can.
func TestDebug(t *testing.T) {
	if err := exec.CommandContext(t.Context(), interpreter, "-c", "import grpc, google.protobuf").Run(); err != nil {
		t.Skipf("%s lacks grpcio or protobuf: %v", interpreter, err)
	}
	cmd := exec.CommandContext(t.Context(), interpreter, "-c", driver, ".", "--debug")
	cmd.Env, cmd.Stderr = []string{"PYTHONDONTWRITEBYTECODE=1", "TMPDIR=" + os.TempDir()}, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	path, exported := "", false
	for lines := bufio.NewScanner(out); path == "" && lines.Scan(); {
		exported = exported || strings.Contains(lines.Text(), "export RAVEN_ATTACH_SMALL=/")
		if _, rest, found := strings.Cut(lines.Text(), "attach = /"); found {
			path = "/" + rest
		}
	}
	if !exported || path == "" {
		t.Fatalf("it says how to attach: %t, at %q", exported, path)
	}
	folder, err := os.Stat(filepath.Dir(path))
	if err != nil || folder.Mode().Perm() != 0o700 {
		t.Errorf("others may connect: %v, %v", folder, err)
	}
	client := attach(t, path, insecure.NewCredentials())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := client.Connect(ctx); err != nil {
		t.Fatal(err)
	}
	want := drivers.Info{
		Name: "small", Version: "1", Kinds: []drivers.Kind{drivers.KindNetwork, drivers.KindLoadBalancer},
		Capabilities: []string{"small-talk"},
	}
	got := client.Info()
	slices.SortFunc(got.Kinds, func(a, b drivers.Kind) int { return -strings.Compare(string(a), string(b)) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("its info is another (-want +got):\n%s", diff)
	}
	client.Close()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if _, err := os.Stat(filepath.Dir(path)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it leaves %s: %v", filepath.Dir(path), err)
	}
}

func connects(t *testing.T, path string, config *tls.Config) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	client := attach(t, path, credentials.NewTLS(config))
	defer client.Close()
	return client.Connect(ctx)
}

// attach returns a client of a driver's socket.
func attach(t *testing.T, path string, by credentials.TransportCredentials) *wire.Client {
	t.Helper()
	options := append(wire.DialOptions(), grpc.WithTransportCredentials(by),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}))
	conn, err := grpc.NewClient("passthrough:driver", options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the test is over
	return wire.NewClient(conn, wire.ClientConfig{})
}
