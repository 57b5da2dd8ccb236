// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStatusMustBeDeclared(t *testing.T) {
	set := Set{Outputs: []Output{{Kind: Ingress, Key: "4", Text: Text("10.0.0.9")}}}
	if err := set.Validate(Info{}); err == nil {
		t.Error("a driver's authority is what it declares")
	}
}

func TestPartDocuments(t *testing.T) {
	attrs := map[string]any{
		"pools": []any{
			map[string]any{
				"id": "2", "name": "b", "protocol": "UDP", "members": []any{map[string]any{"address": "10.0.0.1"}},
				"provisioning_status": "ACTIVE",
			},
			map[string]any{"id": "1", "name": "a", "protocol": "TCP"},
		},
	}
	want := []any{
		map[string]any{"id": "1", "name": "a", "protocol": "TCP"}, map[string]any{"id": "2", "name": "b", "protocol": "UDP"},
	}
	if diff := cmp.Diff(want, PartDocuments("pools", attrs)); diff != "" {
		t.Errorf("members and statuses change by themselves (-want +got):\n%s", diff)
	}
	if got := PartDocuments("listeners", attrs); len(got) != 0 {
		t.Errorf("got %v", got)
	}
	if got := PartDocuments("name", attrs); got != nil {
		t.Errorf("got %v", got)
	}
}

func TestFloatingIPName(t *testing.T) {
	for in, want := range map[string]string{
		"4": "floatingip-4", "192.0.2.1": "floatingip-192.0.2.1", "2001:db8::1": "floatingip-2001-db8--1",
	} {
		if got := FloatingIPName(in); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}
