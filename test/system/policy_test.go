// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

var update = flag.Bool("update", false, "write the golden files")

// policies makes what TestExplainAPolicy asks about: web is reached by cart at 80 and 8080, and by some addresses.
func (r *rig) policies() {
	r.t.Helper()
	for _, name := range []string{"web", "cart", "other"} {
		r.createPod("shop", name)
		r.patchPod("shop", name, fmt.Sprintf(`{"metadata":{"labels":{"app":%q}}}`, name))
	}
	for name, spec := range map[string]object{
		"deny": {"podSelector": object{}, "policyTypes": []any{"Ingress"}},
		"web": {"podSelector": object{"matchLabels": object{"app": "web"}}, "ingress": []any{
			object{
				"from": []any{object{"podSelector": object{"matchLabels": object{"app": "cart"}}}},
				"ports": []any{
					object{"port": int64(80), "protocol": "TCP"},
					object{"port": int64(8080), "endPort": int64(8090), "protocol": "TCP"},
				},
			},
			object{"from": []any{object{"ipBlock": object{"cidr": "203.0.113.0/24", "except": []any{"203.0.113.128/25"}}}}},
		}},
	} {
		_, err := r.kube.Create(schema.GroupVersionResource{
			Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies",
		}, object{
			"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
			"metadata": object{"namespace": "shop", "name": name}, "spec": spec,
		})
		r.check(err)
	}
}

// TestExplainAPolicy: what is said of connections by policies and cloud, and where somebody has changed the cloud.
func TestExplainAPolicy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.bare()
	r.install("raven-driver-networkpolicy", "bin/raven-driver-networkpolicy")
	r.conf.Set("raven", "drivers", "namespace,pod,networkpolicy")
	d := r.start()
	r.createNamespace("shop")
	r.policies()
	must(t, "policies and cloud to be the same", func() string {
		if amiss := d.settled(); amiss != "" {
			return amiss
		}
		got := r.raven("policy", "explain", "shop/web", "--config-file", r.path("kuryr.conf"))
		if got.status != 0 {
			return got.errors + got.out
		}
		return ""
	})
	d.stop()
	r.cloud.ResetLog()
	r.kube.ResetLog()

	var text strings.Builder
	explain := func(want int, args ...string) string {
		t.Helper()
		got := r.raven(append([]string{"policy", "explain", "--config-file", r.path("kuryr.conf")}, args...)...)
		if got.status != want {
			t.Errorf("raven policy explain %v: exit status %d, wanted %d: %s%s", args, got.status, want, got.errors, got.out)
		}
		fmt.Fprintf(&text, "$ raven policy explain %s\n%s\n", strings.Join(args, " "), got.out+got.errors)
		return got.out
	}
	explain(0, "shop/web")
	explain(0, "shop/web", "--from", "shop/cart", "--port", "80/tcp")
	explain(0, "shop/web", "--from", "shop/cart")
	explain(2, "shop/web", "--from", "shop/other", "--port", "80/tcp")
	explain(0, "shop/web", "--to", "198.51.100.7", "--port", "53/udp")
	explain(0, "shop/web", "--from", "203.0.113.0/24", "--port", "443/tcp")
	r.readOnly()

	address := regexp.MustCompile(`192\.168\.\d+\.\d+`).FindString(fmt.Sprint(r.portNamed("cart")["fixed_ips"]))
	out := explain(0, "shop/web", "--from", address, "--port", "80")
	if !strings.Contains(out, "From shop/cart to shop/web") {
		t.Errorf("the address of a pod is not that pod:\n%s", out)
	}

	r.foreignChanges()
	explain(3, "shop/web", "--from", "shop/cart", "--port", "80/tcp")
	explain(3, "shop/web", "--from", "shop/other", "--port", "22/tcp")
	explain(3, "shop/web")
	r.createPod("shop", "new")
	explain(2, "shop/web", "--to", "shop/new", "--port", "80/tcp")
	explain(1, "shop/nobody")
	explain(64, "web")
	explain(64, "shop/web", "--from", "shop/cart", "--port", "http")
	r.golden("policy-explain.txt", text.String())

	var document struct {
		FormatVersion int
		Connections   []struct {
			Cases []struct {
				Allowed, CloudAllowed, Differ bool
				Sides                         []struct{ Rules []string }
			}
		}
	}
	out = explain(3, "shop/web", "--from", "shop/cart", "--port", "80/tcp", "-o", "json")
	if err := json.Unmarshal([]byte(out), &document); err != nil {
		t.Fatal(err)
	}
	c := document.Connections[0].Cases[0]
	if document.FormatVersion != 1 || !c.Allowed || c.CloudAllowed || !c.Differ ||
		c.Sides[1].Rules[0] != "shop/web ingress[0]" {
		t.Errorf("-o json: %+v", document)
	}
}

// portNamed returns a port of the cloud.
func (r *rig) portNamed(name string) map[string]any {
	r.t.Helper()
	for _, p := range r.cloud.Ports() {
		if p["name"] == name {
			return p
		}
	}
	r.t.Fatalf("there is no port %q", name)
	return nil
}

// foreignChanges takes cart out of the groups of peers, and puts a rule into a policy's group that it does not have.
func (r *rig) foreignChanges() {
	r.t.Helper()
	call := func(method, path string, body any) {
		r.t.Helper()
		status, doc := r.cloud.Call(simcloud.UserKuryr, simcloud.ProjectKuryr, method, "/"+path, body)
		if status >= http.StatusBadRequest {
			r.t.Fatalf("%s %s: %d %v", method, path, status, doc)
		}
	}
	names, ids := map[string]string{}, map[string]string{}
	for _, g := range r.cloud.SecurityGroups() {
		names[fmt.Sprint(g["id"])], ids[fmt.Sprint(g["name"])] = fmt.Sprint(g["name"]), fmt.Sprint(g["id"])
	}
	cart := r.portNamed("cart")
	left := []any{}
	for _, id := range strings.Fields(strings.Trim(fmt.Sprint(cart["security_groups"]), "[]")) {
		if !strings.HasPrefix(names[id], "network-policy-peers-") {
			left = append(left, id)
		}
	}
	call(http.MethodPut, "ports/"+fmt.Sprint(cart["id"]), object{"port": object{"security_groups": left}})
	call(http.MethodPost, "security-group-rules", object{"security_group_rule": object{
		"security_group_id": ids["shop-web"], "direction": "ingress", "ethertype": "IPv4", "protocol": "tcp",
		"port_range_min": 22, "port_range_max": 22,
	}})
}

// golden compares a text, with its ids and addresses masked, with the one in testdata.
func (r *rig) golden(name, text string) {
	r.t.Helper()
	for _, mask := range [][2]string{
		{`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`, "ID"},
		{`192\.168\.\d+\.\d+`, "ADDRESS"},
		{regexp.QuoteMeta(r.kube.URL()), "URL"},
	} {
		text = regexp.MustCompile(mask[0]).ReplaceAllString(text, mask[1])
	}
	path := filepath.Join("testdata", name)
	if *update {
		r.check(os.WriteFile(path, []byte(text), 0o600))
	}
	want, err := os.ReadFile(path)
	r.check(err)
	if diff := cmp.Diff(string(want), text); diff != "" {
		r.t.Errorf("%s is another; write it with -update:\n%s", path, diff)
	}
}
