// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/kuryr/raven/test/harness"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

func TestDescribeAnObject(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.start()
	r.createNamespace("shop")
	r.createPod("shop", "a")
	r.awaitRest(d)
	describe := func(args ...string) result {
		t.Helper()
		return r.raven(append([]string{"describe", "--address", d.address()}, args...)...)
	}
	got := describe("pods/a", "-n", "shop")
	for _, pattern := range []string{
		`(?m)^Pod shop/a  driver pod, UID `, `(?m)^State:  done since `,
		`(?m)^  port +a +[0-9a-f-]{36} +192\.168\.\d+\.\d+ +`, `(?m)^  annotation kuryr.org/neutron-port +\{`,
		`(?m)^  nodes +node-1 +(present|absent)`, `(?m)^  \d+s +done( +[0-9.]+[µm]?s){5} +\d+`,
	} {
		if got.status != 0 || !regexp.MustCompile(pattern).MatchString(got.out) {
			t.Errorf("raven describe has nothing like %s: exit status %d: %s\n%s", pattern, got.status, got.errors, got.out)
		}
	}
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"pod/nobody", "-n", "shop"}, 1, "knows no pod nobody in namespace shop"},
		{[]string{"service/a", "-n", "shop"}, 1, "knows no service at all: no enabled driver"},
		{[]string{"a"}, 64, "it must be KIND/NAME"},
	} {
		if got := describe(c.args...); got.status != c.status || !strings.Contains(got.errors, c.says) {
			t.Errorf("raven describe %v: exit status %d: %s%s", c.args, got.status, got.out, got.errors)
		}
	}

	// One that waits says for what, also in JSON.
	rule := simcloud.Rule{
		Kind: "port", Method: http.MethodPost, Action: simcloud.ActionStatus, Status: http.StatusServiceUnavailable,
	}
	if _, err := r.cloud.AddFault(rule); err != nil {
		t.Fatal(err)
	}
	r.createPod("shop", "b")
	must(t, "the reason why b has no port", func() string {
		got := describe("pod", "b", "-o", "json")
		var document struct {
			FormatVersion int
			Objects       []struct {
				Reasons    []string
				Wants      []struct{ Kind, Role string }
				Reconciles []struct {
					Outcome string
					Steps   int
				}
			}
		}
		if err := json.Unmarshal([]byte(got.out), &document); err != nil || len(document.Objects) != 1 {
			return got.errors + got.out
		}
		o := document.Objects[0]
		if document.FormatVersion != 1 || len(o.Reasons) == 0 || !strings.Contains(strings.Join(o.Reasons, " "), "503") ||
			len(o.Wants) != 1 || o.Wants[0].Kind != "port" || len(o.Reconciles) == 0 || o.Reconciles[0].Steps == 0 {
			return got.out
		}
		return ""
	})
	d.stop()
}

// Without a terminal each change is a line.
func TestWatchTheStatus(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.start()
	r.createNamespace("shop")
	r.awaitRest(d)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var out harness.Buffer
	watching := r.command(ctx, "status", "-w", "-n", "shop", "--address", d.address())
	watching.Stdout, watching.Stderr = &out, &out
	p, err := harness.Start(watching)
	if err != nil {
		t.Fatal(err)
	}
	seen := func(pattern string) {
		t.Helper()
		must(t, pattern, func() string {
			if text := out.String(); !regexp.MustCompile(pattern).MatchString(text) {
				return "it says: " + text
			}
			return ""
		})
	}
	seen(`(?m)^\d\d:\d\d:\d\d  Namespace shop, driver namespace  done 192\.168\.`)
	r.createPod("shop", "a")
	seen(`(?m)^\d\d:\d\d:\d\d  Pod shop/a, driver pod  done 192\.168\.`)
	r.deletePod("shop", "a")
	seen(`(?m)^\d\d:\d\d:\d\d  Pod shop/a, driver pod  is gone`)
	if n := strings.Count(out.String(), "Namespace shop, driver namespace  done"); n != 1 {
		t.Errorf("what has not changed is told %d times:\n%s", n, out.String())
	}
	cancel()
	<-p.Ended
	d.stop()
}
