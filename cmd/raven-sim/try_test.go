// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const tryService = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {containers: [{name: web, image: nginx}]}
`

func try(t *testing.T, manifest string, args ...string) (string, error) {
	t.Helper()
	bin, tmp := programDir(t), shortTempDir(t)
	file := filepath.Join(tmp, "manifest.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "raven-sim"), append([]string{"try", "-f", file}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestTry(t *testing.T) {
	t.Parallel()
	driver := "lbaas=" + filepath.Join(programDir(t), "raven-driver-lbaas")
	out, err := try(t, tryService, "--driver", driver, "--set", "octavia_defaults.provider=ovn", "--delete")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"shop/web", "lbaas", "done", "loadbalancer \"", "provider=ovn", "Pod shop/web  kuryr.org/neutron-port: {",
		"raven deletes",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "raven:owner") || strings.Contains(out, "raven:source") {
		t.Errorf("identities are shown:\n%s", out)
	}
}

// TestTriedDriversMayContribute: whoever tries his own driver need not allow it what it adds to others' resources,
// but may allow it less.
func TestTriedDriversMayContribute(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		set  []string
		want string
	}{
		"all":  {nil, "allow_contributions = " + contributions},
		"less": {[]string{"driver:mine.allow_contributions=routes"}, "allow_contributions = routes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conf, _, err := tryOptions{drivers: []string{"mine=/bin/mine"}, set: tc.set}.configuration()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Count(conf, "allow_contributions") != 1 || !strings.Contains(conf, tc.want+"\n") {
				t.Errorf("want %q once in\n%s", tc.want, conf)
			}
		})
	}
}

func TestTryThatCannotBe(t *testing.T) {
	t.Parallel()
	lbaas := filepath.Join(programDir(t), "raven-driver-lbaas")
	for why, test := range map[string]struct {
		manifest, says string
		args           []string
	}{
		"no such program": {tryService, "none/of/them", []string{"--driver", "x=/none/of/them"}},
		"no such kind": {
			"{apiVersion: example.org/v1, kind: Nothing, metadata: {name: x}}", "Nothing",
			[]string{"--driver", "lbaas=" + lbaas},
		},
		"no time":        {tryService, "waited", []string{"--driver", "lbaas=" + lbaas, "--timeout", "1ms"}},
		"no equals sign": {tryService, "NAME=PROGRAM", []string{"--driver", lbaas}},
	} {
		if out, err := try(t, test.manifest, test.args...); err == nil || !strings.Contains(out, test.says) {
			t.Errorf("%s: %v\n%s", why, err, out)
		}
	}
}
