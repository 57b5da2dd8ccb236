// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func ptr[T any](v T) *T { return &v }

func TestAttributes(t *testing.T) {
	role := Role{Kind: "Namespace", Name: "web", Role: PodNetwork}
	for _, tc := range []struct {
		name, reason string
		spec         Spec
		want         map[string]any
	}{
		{"nothing", "what is unset is unmanaged", Port{}, map[string]any{}},
		{
			"empty", "what is explicitly empty is enforced",
			Port{Name: ptr(""), SecurityGroups: []Value{}, AdminStateUp: ptr(false)},
			map[string]any{"name": "", "security_groups": []any{}, "admin_state_up": false},
		},
		{
			"values", "a literal is a text, a ref stays one",
			Port{NetworkID: FromRole(role), SecurityGroups: []Value{Text("a"), From("b")}},
			map[string]any{"network_id": Ref{Role: &role}, "security_groups": []any{"a", Ref{Name: "b"}}},
		},
		{
			"parts", "unset parts are unmanaged too", &Port{FixedIPs: []FixedIP{{SubnetID: From("s")}, {IPAddress: "10.0.0.1"}}},
			map[string]any{
				"fixed_ips": []any{map[string]any{"subnet_id": Ref{Name: "s"}}, map[string]any{"ip_address": "10.0.0.1"}},
			},
		},
		{
			"nowhere", "a Value can be set and empty",
			FloatingIP{FloatingNetworkID: Text("n"), PortID: Empty()},
			map[string]any{"floating_network_id": "n", "port_id": ""},
		},
		{
			"no gateway", "an empty structure means none",
			Router{ExternalGateway: &ExternalGateway{}},
			map[string]any{"external_gateway_info": map[string]any{}},
		},
		{"lookup", "kinds are texts", Lookup{Of: KindRouter, ID: "r"}, map[string]any{"of": "router", "id": "r"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Attributes(tc.spec)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// Every field of every spec is of a type that Attributes knows, and its tag is one that Schema knows.
func TestSchema(t *testing.T) {
	for _, kind := range Kinds() {
		spec := zero(kind)
		if spec == nil || spec.Kind() != kind {
			t.Fatalf("%s has no spec", kind)
		}
		filled := reflect.New(reflect.TypeOf(spec)).Elem()
		fill(filled)
		full, _ := filled.Interface().(Spec)
		attrs := Attributes(full)
		for i, a := range Schema(kind) {
			if attrs[a.Name] == nil {
				t.Errorf("%s: %s is lost", kind, a.Name)
			}
			for _, flag := range strings.Split(reflect.TypeOf(spec).Field(i).Tag.Get("raven"), ",")[1:] {
				known := map[string]bool{
					"immutable": a.Immutable, "required": a.Required, "unordered": a.Unordered, "besteffort": a.BestEffort,
				}
				if !known[flag] {
					t.Errorf("%s: %s: tag %q is not understood", kind, a.Name, flag)
				}
			}
		}
		if len(attrs) != reflect.TypeOf(spec).NumField() {
			t.Errorf("%s: %d attributes of %d fields", kind, len(attrs), reflect.TypeOf(spec).NumField())
		}
	}
	if Schema("cloud") != nil {
		t.Error("a kind that does not exist has a schema")
	}
}

func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[Value]() {
			v.Set(reflect.ValueOf(Text("x")))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.String:
		v.SetString("x")
	case reflect.Int64:
		v.SetInt(1)
	case reflect.Bool:
		v.SetBool(true)
	default:
		panic("no specification has a field of kind " + v.Kind().String())
	}
}

func TestDocument(t *testing.T) {
	port := map[string]any{
		"id": "p", "name": "web", "status": "ACTIVE", "revision_number": 7, "tags": []any{"a"}, "updated_at": "now",
		"description":      "d",
		"standard_attr_id": 9, "security_groups": []any{"b", "a"}, "mac_address": nil,
		"fixed_ips": []any{
			map[string]any{"ip_address": "fd00::5", "subnet_id": "a"},
			map[string]any{"ip_address": "10.0.0.5", "subnet_id": "z"},
		},
	}
	want := map[string]any{
		"id": "p", "name": "web", "security_groups": []any{"a", "b"}, "mac_address": nil,
		"fixed_ips": []any{
			map[string]any{"ip_address": "10.0.0.5", "subnet_id": "z"},
			map[string]any{"ip_address": "fd00::5", "subnet_id": "a"},
		},
	}
	got := Document(KindPort, port)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got["security_groups"].([]any)[0] = "changed"
	if port["security_groups"].([]any)[1] != "a" {
		t.Error("the document shares its lists")
	}
	for _, kind := range Kinds() {
		if Document(kind, map[string]any{"id": "x"})["id"] != "x" {
			t.Errorf("%s has no document", kind)
		}
	}
}

func BenchmarkAttributes(b *testing.B) {
	port := Port{
		Name: ptr("pod"), NetworkID: From("network"), DeviceOwner: ptr("compute:kuryr"), HostID: ptr("node"),
		DeviceID:     ptr("uid"),
		AdminStateUp: ptr(true), SecurityGroups: []Value{From("group")}, FixedIPs: []FixedIP{{SubnetID: From("subnet")}},
	}
	b.ReportAllocs()
	for b.Loop() {
		Attributes(port)
	}
}
