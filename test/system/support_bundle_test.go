// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"archive/tar"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"io"
	"net/url"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kuryr/raven/test/harness"
	simkube "github.com/kuryr/raven/test/sim/kube"
)

// A support bundle has all parts, and no secret of any source: the configuration, clouds.yaml, the kubeconfig, the
// environment, annotations of objects, and what was logged.
func TestSupportBundleHasNoSecrets(t *testing.T) {
	t.Parallel()
	const (
		ofCloud      = "Pica-pica-5512+/ &"
		ofKubeconfig = "Garrulus-8831-token"
		ofAnnotation = "Nucifraga-2207"
		ofCredential = "Pyrrhocorax-4410"
	)
	r := newRigWith(t, simkube.Options{TLS: true, Tokens: map[string]string{ofKubeconfig: "raven"}}, nil)
	r.createNamespace("shop")
	r.createPod("shop", "a")
	_, err := r.kube.Patch(pods(), "shop", "a", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"example.org/password":"`+ofAnnotation+`"}}}`))
	r.check(err)
	d := r.start("--set", "DEFAULT.debug=true")
	r.awaitRest(d)

	bundle := func(name string, extra ...string) map[string]string {
		t.Helper()
		args := append([]string{
			"support-bundle", "--config-file", r.configure(), "--address", d.address(), "-f", r.path(name),
		}, extra...)
		got := r.raven(args...)
		if got.status != 0 || !strings.Contains(got.out, name) {
			t.Fatalf("raven %v: exit status %d: %s%s", args, got.status, got.out, got.errors)
		}
		info, err := os.Stat(r.path(name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
		if again := r.raven(args...); again.status != 1 {
			t.Errorf("it overwrites what is there: exit status %d", again.status)
		}
		return unpack(t, r.path(name))
	}
	secrets := []string{password, ofCloud, ofKubeconfig, ofAnnotation, ofCredential}
	files := bundle("whole.tar.gz")
	for name, has := range map[string]string{
		"version.txt": "raven ", "config.txt": "[neutron]", "config-validate.txt": "ok    values", "status.json": `"Pod"`,
		"describe.json": `"reconciles"`, "livez.txt": "alive", "readyz.txt": "leader", "metrics.txt": "raven_leading",
		"config-of-daemon.txt": "debug", "goroutines.txt": "goroutine ", "log.txt": "applied", "drivers.json": `"pod"`,
		"plan.json": `"formatVersion"`,
	} {
		if !strings.Contains(files[name], has) {
			t.Errorf("%s has no %q: %s", name, has, tailOf(files[name]))
		}
	}
	if text, there := files["errors.txt"]; there {
		t.Errorf("something is missing: %s", text)
	}
	holdNo(t, files, secrets)
	d.stop()

	// Other logins, from other sources, which fail; the daemon is gone.
	r.write("clouds.yaml", "clouds:\n  one:\n    auth:\n      auth_url: "+r.cloud.AuthURL()+
		"\n      username: kuryr\n      project_name: kuryr\n      password: '"+ofCloud+"'\n")
	neutron := r.conf["neutron"]
	for name, options := range map[string]harness.Settings{
		"cloud": harness.Settings{}.Set("neutron", "cloud", "one").Set("neutron", "clouds_file", r.path("clouds.yaml")),
		"credential": harness.Settings{}.Set("neutron", "auth_type", "v3applicationcredential").
			Set("neutron", "auth_url", r.cloud.AuthURL()).Set("neutron", "application_credential_id", "x").
			Set("neutron", "application_credential_secret", ofCredential),
		"broken": harness.Settings{}.Set("neutron", "auth_url", r.cloud.AuthURL()).Set("neutron", "timeout", "soon").
			Set("neutron", "username", "u").Set("neutron", "password", ofCloud),
	} {
		r.conf["neutron"] = options["neutron"]
		files := bundle(name + ".tar.gz")
		if !strings.Contains(files["config.txt"], "[neutron]") || !strings.Contains(files["errors.txt"], "plan") {
			t.Errorf("%s: config.txt is %s, errors.txt is %s", name, tailOf(files["config.txt"]), files["errors.txt"])
		}
		holdNo(t, files, secrets)
	}
	r.conf["neutron"] = neutron
}

// unpack returns the files of an archive by their names in its one folder.
func unpack(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	packed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(packed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(header.Name, "/")
		files[name] = string(text)
	}
}

// holdNo checks that no file has a secret, in any form.
func holdNo(t *testing.T, files map[string]string, secrets []string) {
	t.Helper()
	for name, text := range files {
		for _, secret := range secrets {
			for _, form := range []string{
				secret, url.QueryEscape(secret), url.PathEscape(secret), base64.StdEncoding.EncodeToString([]byte(secret)),
			} {
				if at := strings.Index(text, form); at >= 0 {
					t.Errorf("%s has a secret: %q", name, text[max(0, at-60):at+len(form)])
				}
			}
		}
	}
}
