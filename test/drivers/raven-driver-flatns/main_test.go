// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/pod"
	"github.com/kuryr/raven/plugins/sdktest"
)

func translate(t *testing.T, d drivers.Driver, watch, raw string) drivers.Set {
	t.Helper()
	set, _, err := sdktest.Translate(t.Context(), d, drivers.Object{Watch: watch, Raw: json.RawMessage(raw)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := set.Validate(d.Info()); err != nil {
		t.Error(err)
	}
	return set
}

// Whatever the pod driver asks of a namespace, this driver exports: that is all that either knows of the other.
func TestExportsWhatPodsAskFor(t *testing.T) {
	var exported []string
	for _, r := range translate(t, sdktest.Configured(t, new(flat), nil), "ns", `{"metadata":{"name":"shop"}}`).Resources {
		exported = append(exported, r.Exports...)
	}
	asked := 0
	for _, r := range translate(t, sdktest.Configured(t, pod.New(), nil), "pods",
		`{"metadata":{"name":"web","namespace":"shop"}}`).Resources {
		refs := slices.Clone(r.After)
		for _, value := range drivers.Attributes(r.Spec) {
			list, ok := value.([]any)
			if !ok {
				list = []any{value}
			}
			for _, one := range list {
				if ref, ok := one.(drivers.Ref); ok {
					refs = append(refs, ref)
				}
			}
		}
		for _, ref := range refs {
			if ref.Role == nil {
				continue
			}
			asked++
			if !slices.Contains(exported, ref.Role.Role) {
				t.Errorf("pods ask for %s, and only %v is exported", ref.Role, exported)
			}
		}
	}
	if asked != 3 {
		t.Errorf("pods asked for %d roles, not for network, subnet and security group", asked)
	}
}
