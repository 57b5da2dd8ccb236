// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestKubectl(t *testing.T) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("no kubectl on PATH: ", err)
	}
	api := New(Options{Kubelet: &Kubelet{}})
	defer api.Close()
	if _, err := api.Start(""); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(config, api.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(stdin string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "kubectl",
			append([]string{"--cache-dir", filepath.Join(dir, "cache")}, args...)...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+config, "HOME="+dir)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		t.Logf("$ kubectl %s\n%s", strings.Join(args, " "), out)
		if err != nil {
			t.Errorf("kubectl %s: %v", strings.Join(args, " "), err)
		}
		return string(out)
	}
	run("", "version")
	run("", "get", "ns")
	run("", "create", "namespace", "shop")
	run("", "-n", "shop", "run", "web", "--image=nginx")
	run("", "-n", "shop", "wait", "--for=condition=Ready", "pod/web", "--timeout=10s")
	run("", "-n", "shop", "get", "pods", "-o", "wide")
	run("", "-n", "shop", "annotate", "pod", "web", "a/b=c")
	run("", "-n", "shop", "label", "pod", "web", "tier=front")
	run("", "-n", "shop", "get", "pods", "-l", "tier in (front)", "-o", "name")
	run("", "-n", "shop", "patch", "pod", "web", "-p", `{"spec":{"containers":[{"name":"web","image":"nginx:2"}]}}`)
	run("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm, namespace: shop}\ndata: {a: b}\n", "apply", "-f", "-")
	run("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm, namespace: shop}\ndata: {a: c}\n", "apply", "-f", "-")
	run("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm2, namespace: shop}\ndata: {a: c}\n", "apply",
		"--server-side", "-f", "-")
	run("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm2, namespace: shop}\ndata: {b: c}\n", "apply",
		"--server-side", "-f", "-")
	run("", "-n", "shop", "get", "cm", "-o", "yaml", "--show-managed-fields")
	run("", "-n", "shop", "create", "deployment", "d", "--image=nginx")
	run("", "-n", "shop", "get", "all")
	run("", "-n", "shop", "describe", "pod", "web")
	run("", "-n", "shop", "delete", "pod", "web")
	run("", "delete", "namespace", "shop")
	run("", "auth", "can-i", "list", "pods")
	run("", "api-resources")
}
