// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestBenchOfPoliciesInSmall: the scenario measures all that it is there for, and nothing is written at rest.
func TestBenchOfPoliciesInSmall(t *testing.T) {
	t.Parallel()
	dir := programDir(t)
	var out, progress bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "raven-sim"), "bench", "--raven",
		filepath.Join(dir, "raven"), "--scenario", "^policies$", "--pods", "10", "-o", "json")
	cmd.Stdout, cmd.Stderr = &out, &progress
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, &progress, &out)
	}
	var report benchReport
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	measures := map[string]measure{}
	for _, m := range report.Scenarios[0].Measures {
		measures[m.Name] = m
	}
	for name, note := range map[string]string{
		"driver enabled until the last port has moved":  "100 PUT port",
		"policies until the last port is in its groups": "PUT port",
		"one pod's label":                               "1 PUT port",
		"one pod's label: reconciles":                   "pod",
		"one policy's port":                             "1 POST security_group_rule",
		"one policy's port: reconciles":                 "networkpolicy",
		"10 endpoints, one after the other":             "",
		"driver networkpolicy, resident, with policies": "",
	} {
		if m, ok := measures[name]; !ok || !strings.Contains(m.Note, note) {
			t.Errorf("%s: %+v, wanted a note with %q", name, m, note)
		}
	}
	if m := measures["writes to Neutron after it"]; m.Value != 0 {
		t.Errorf("a restart writes to Neutron: %+v", m)
	}
}
