// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kuryr/raven/service/config"
)

// TestLogOptions: log_options prints every option with its origin at debug level, secrets masked; without it nothing.
func TestLogOptions(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{"true": true, "false": false} {
		values, _, err := config.Load(config.Sources{Environ: []string{
			"OS_NEUTRON__PASSWORD=hush",
			"OS_DEFAULT__LOG_OPTIONS=" + value,
		}}, Options())
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		l := &Settings{Values: values}
		l.report(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
		text := out.String()
		shown := strings.Contains(text, "level=DEBUG") && strings.Contains(text, "graceful_shutdown_timeout = 1m0s") &&
			strings.Contains(text, "# default") &&
			strings.Contains(text, "password = ****") && strings.Contains(text, "environment OS_NEUTRON__PASSWORD")
		if shown != want || strings.Contains(text, "hush") {
			t.Errorf("log_options = %s:\n%s", value, text)
		}
	}
}

// TestSecretsOfOtherFilesStayHidden: what stands in clouds.yaml, in a kubeconfig or in a token file is a secret as what
// stands in kuryr.conf is.
func TestSecretsOfOtherFilesStayHidden(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	clouds := write("clouds.yaml", `clouds:
  user: {auth: {auth_url: "http://k/v3", username: u, password: cloudy-hush, project_name: p}}
  app:
    auth_type: v3applicationcredential
    auth: {auth_url: "http://k/v3", application_credential_id: i, application_credential_secret: app-hush}
`)
	kubeconfig := write("kubeconfig", `apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "https://c:6443"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: kube-hush}}]
`)
	token := write("token", "file-hush\n")
	for secret, set := range map[string][]string{
		"cloudy-hush": {"OS_NEUTRON__CLOUD=user", "OS_NEUTRON__CLOUDS_FILE=" + clouds},
		"app-hush":    {"OS_NEUTRON__CLOUD=app", "OS_NEUTRON__CLOUDS_FILE=" + clouds},
		"kube-hush":   {"OS_KUBERNETES__KUBECONFIG=" + kubeconfig},
		"file-hush":   {"OS_KUBERNETES__API_ROOT=https://c:6443", "OS_KUBERNETES__TOKEN_FILE=" + token},
	} {
		values, _, err := config.Load(config.Sources{Environ: set}, Options())
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		logs, err := openLog(&Settings{Values: values}, &out, false)
		if err != nil {
			t.Fatal(err)
		}
		logs.Logger().Error("refused", "error", "the server does not like "+secret)
		if text := out.String(); strings.Contains(text, secret) || !strings.Contains(text, "does not like ****") {
			t.Errorf("%s is in the log: %s", secret, text)
		}
		if err := logs.Close(); err != nil {
			t.Error(err)
		}
	}
}
