// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/watch"
)

const kubeconfig = `apiVersion: v1
kind: Config
current-context: one
clusters:
- {name: one, cluster: {server: "https://one:6443"}}
- {name: two, cluster: {server: "https://two:6443"}}
contexts:
- {name: one, context: {cluster: one, user: me}}
- {name: two, context: {cluster: two, user: me}}
users:
- {name: me, user: {token: secret}}
`

func TestRESTConfig(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", dir)
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for name, test := range map[string]struct {
		set     map[string]string
		environ []string
		host    string
		insecur bool
		token   string
		err     string
	}{
		"kubeconfig": {set: map[string]string{"kubeconfig": path}, host: "https://one:6443"},
		"context":    {set: map[string]string{"kubeconfig": path, "context": "two"}, host: "https://two:6443"},
		"no such context": {
			set: map[string]string{"kubeconfig": path, "context": "three"}, err: `context "three" does not exist`,
		},
		"no such file": {
			set: map[string]string{"kubeconfig": dir + "/none"}, err: "[kubernetes] kubeconfig = " + dir + "/none",
		},
		"no such context, no file": {set: map[string]string{"context": "three"}, err: `"three"`},
		"api_root": {
			set: map[string]string{"api_root": "http://localhost:8080"}, host: "http://localhost:8080",
		},
		"K8S_API": {environ: []string{"K8S_API=https://k:1"}, host: "https://k:1"},
		"not verified": {
			set: map[string]string{"api_root": "https://k:1", "ssl_verify_server_crt": "False"}, host: "https://k:1",
			insecur: true,
		},
		"token": {
			set: map[string]string{"api_root": "https://k:1", "token_file": path}, host: "https://k:1", token: path,
		},
		"token missing": {
			set: map[string]string{"api_root": "https://k:1", "token_file": dir + "/none"}, err: "[kubernetes] token_file",
		},
		"certificate, no key": {
			set: map[string]string{"api_root": "https://k:1", "ssl_client_crt_file": path}, err: "ssl_client_key_file",
		},
		"both":    {set: map[string]string{"api_root": "https://k:1", "kubeconfig": path}, err: "set one of them"},
		"no URL":  {set: map[string]string{"api_root": "k:1"}, err: "[kubernetes] api_root: \"k:1\" is not a uri"},
		"nothing": {host: "https://localhost:6443"},
	} {
		t.Run(name, func(t *testing.T) {
			args := map[config.Name][]string{}
			for option, value := range test.set {
				args[config.Name{Group: "kubernetes", Name: option}] = []string{value}
			}
			values, _, err := config.Load(config.Sources{Args: args, Environ: test.environ}, watch.Options())
			var got *rest.Config
			if err == nil {
				got, err = watch.RESTConfig(values, "1.2")
			}
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) || strings.Contains(err.Error(), "\n") {
					t.Fatalf("error %v, want one line with %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Host != test.host || got.Insecure != test.insecur || got.BearerTokenFile != test.token ||
				got.UserAgent != "raven/1.2" || got.QPS != -1 {
				t.Errorf("got %+v, want %+v", got, test)
			}
		})
	}
}
