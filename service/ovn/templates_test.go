// SPDX-License-Identifier: Apache-2.0

package ovn_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/ovn"
	"github.com/kuryr/raven/test/sim/northbound"
)

// localVIP is a VIP with backends for each chassis.
func localVIP(protocol, address string, port int64, affinity int64, chassis ...any) map[string]any {
	doc := vip(protocol, address, port, affinity)
	doc["backends"], doc["chassis"] = []any{}, chassis
	return doc
}

func chassis(id string, backends ...any) any {
	if backends == nil {
		backends = []any{}
	}
	return map[string]any{"id": id, "backends": backends}
}

// values are the values of Raven's variables of a chassis, sorted.
func (r *rig) values(chassis string) []string {
	r.Helper()
	out := r.ctl("--format=json", "--columns=chassis,variables", "find", "Chassis_Template_Var", "chassis="+chassis)
	var table struct {
		Data [][]any `json:"data"`
	}
	if err := json.Unmarshal([]byte(out), &table); err != nil {
		r.Fatal(err)
	}
	var values []string
	for _, row := range table.Data {
		pairs, _ := row[1].([]any)[1].([]any)
		for _, pair := range pairs {
			values = append(values, pair.([]any)[1].(string))
		}
	}
	slices.Sort(values)
	return values
}

func (r *rig) wantValues(chassis string, want ...string) {
	r.Helper()
	if diff := cmp.Diff(want, r.values(chassis)); diff != "" {
		r.Errorf("variables of chassis %s: %s", chassis, diff)
	}
}

// TestBackendsOfEachChassis: a VIP whose clients have backends by chassis is a template, and its variables follow it.
// What others have in the rows of chassis stays.
func TestBackendsOfEachChassis(t *testing.T) {
	r := newRig(t)
	g := r.group()
	r.ctl("create", "Chassis_Template_Var", "chassis=c1", "variables:theirs=1")
	local := localVIP("TCP", "10.96.0.10", 80, 0,
		chassis("c1", backend("10.244.1.7", 8080), backend("10.244.1.8", 8080)), chassis("c2"))
	six := localVIP("TCP", "fd00::10", 80, 0, chassis("c1"), chassis("c2", backend("fd00:1::7", 8080)))
	made := r.balancer("u1", g, local, six, vip("TCP", "10.96.0.10", 81, 0, backend("10.244.1.7", 8081)))
	r.wantValues("c1", "1", "10.244.1.7:8080,10.244.1.8:8080", "10.96.0.10", "[fe80::ffff:ffff:ffff:ffff]:1", "fd00::10")
	r.wantValues("c2", "10.96.0.10", "127.0.0.1:1", "[fd00:1::7]:8080", "fd00::10")
	for _, text := range r.column("Load_Balancer", "vips") {
		if strings.Contains(text, "^") == strings.Contains(text, "10.96") {
			t.Errorf("VIPs %s: a template names variables, and nothing else does", text)
		}
	}
	if o, there, err := r.Get(drivers.KindOVNLoadBalancer, made.ID); err != nil || !there ||
		!cmp.Equal(o.Attrs, made.Attrs) || len(made.Attrs["vips"].([]any)) != 3 {
		t.Errorf("observed: %v %v %v", o.Attrs, there, err)
	}
	before := r.committed()
	r.balancer("u1", g, local, six, vip("TCP", "10.96.0.10", 81, 0, backend("10.244.1.7", 8081)))
	if after := r.committed(); after != before {
		t.Errorf("%d transactions for what was there", after-before)
	}
	// Another has the VIP: it is a conflict, template or not.
	if _, err := r.Create(t.Context(), drivers.KindOVNLoadBalancer, identity("service-proxy", "u2", "lb"),
		map[string]any{"name": "other", "group_id": g, "vips": []any{vip("TCP", "10.96.0.10", 80, 0)}}); err != nil {
		t.Log(err) // all but the VIP is made
	}
	for _, text := range r.column("Load_Balancer", "vips") {
		if strings.Contains(text, "10.96.0.10:80=") {
			t.Errorf("two load balancers have a VIP: %s", text)
		}
	}
	r.update(made.ID, localVIP("TCP", "10.96.0.10", 80, 0, chassis("c2", backend("10.244.2.9", 8080))))
	r.wantValues("c1", "1")
	r.wantValues("c2", "10.244.2.9:8080", "10.96.0.10")
	r.update(made.ID, vip("TCP", "10.96.0.10", 80, 0, backend("10.244.2.9", 8080)))
	r.wantValues("c1", "1")
	r.wantValues("c2")
	r.update(made.ID, local)
	if err := r.Delete(t.Context(), drivers.KindOVNLoadBalancer, made.ID); err != nil {
		t.Fatal(err)
	}
	r.wantValues("c1", "1")
	r.wantValues("c2")
}

func (r *rig) update(id string, vips ...any) {
	r.Helper()
	if _, err := r.Update(r.Context(), drivers.KindOVNLoadBalancer, id, map[string]any{"vips": vips}); err != nil {
		r.Fatal(err)
	}
}

// TestVariablesOfOthersHands: a variable that another client has changed, or a chassis' row that it has deleted, is
// drift: it is told, shown and repaired.
func TestVariablesOfOthersHands(t *testing.T) {
	r := newRig(t)
	g := r.group()
	vips := []any{localVIP("UDP", "10.96.0.10", 53, 10800, chassis("c1", backend("10.244.1.7", 53)), chassis("c2"))}
	made := r.balancer("u1", g, vips...)
	row := strings.TrimSpace(r.ctl("--bare", "--columns=_uuid", "find", "Chassis_Template_Var", "chassis=c1"))
	for what, change := range map[string][]string{
		"deleted": {"destroy", "Chassis_Template_Var", row},
		"emptied": {"clear", "Chassis_Template_Var", "c2", "variables"},
	} {
		if what == "emptied" {
			change[2] = strings.TrimSpace(r.ctl("--bare", "--columns=_uuid", "find", "Chassis_Template_Var", "chassis=c2"))
		}
		r.seen.forget()
		r.ctl(change...)
		r.until(what+" is told", func() bool { return r.seen.hasChanged(made.ID) })
		o, _, err := r.Get(drivers.KindOVNLoadBalancer, made.ID)
		if err != nil || cmp.Equal(o.Attrs, made.Attrs) {
			t.Errorf("%s: observed as if nothing were amiss: %v, %v", what, o.Attrs, err)
		}
		r.update(made.ID, vips...)
		r.wantValues("c1", "10.244.1.7:53", "10.96.0.10")
		r.wantValues("c2", "10.96.0.10", "127.0.0.1:1")
	}
}

// TestDatabaseWithoutTemplates: where OVN is older than 22.12 all clients have the backends of all chassis, and what
// is desired is what is observed; with a newer one the same rows become templates.
func TestDatabaseWithoutTemplates(t *testing.T) {
	server := start(t, func(c *northbound.Config) { c.Schema = olderSchema(t) })
	r := connect(t, server, ovn.Config{Endpoints: []string{server.Unix()}})
	if r.Templates() {
		t.Error("it has the table")
	}
	g := r.group()
	vips := []any{localVIP("TCP", "10.96.0.10", 80, 0, chassis("c1", backend("10.244.1.7", 80)),
		chassis("c2", backend("10.244.2.7", 80)))}
	made := r.balancer("u1", g, vips...)
	want := []string{"10.96.0.10:80=10.244.1.7:80,10.244.2.7:80"}
	if got := r.column("Load_Balancer", "vips"); !slices.Equal(got, want) {
		t.Errorf("VIPs %v", got)
	}
	list, _ := made.Attrs["vips"].([]any)
	if len(list) != 1 || len(list[0].(map[string]any)["chassis"].([]any)) != 2 {
		t.Errorf("observed: %v", made.Attrs)
	}
	before := r.committed()
	r.balancer("u1", g, vips...)
	if after := r.committed(); after != before {
		t.Errorf("%d transactions for what was there", after-before)
	}
}

// olderSchema is OVN's schema without the table of variables.
func olderSchema(t *testing.T) string {
	t.Helper()
	if err := northbound.Available(); err != nil {
		t.Skip(err)
	}
	text, err := os.ReadFile(northbound.Schema())
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(schema["tables"].(map[string]any), func(name string, _ any) bool {
		return name == "Chassis_Template_Var"
	})
	if text, err = json.Marshal(schema); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ovn-nb.ovsschema")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
