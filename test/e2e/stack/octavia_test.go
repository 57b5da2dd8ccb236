// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A folder that is removed takes along what other namespaces have mounted on it.
func TestOctaviasFolderOutlivesAStack(t *testing.T) {
	if out, err := exec.Command("unshare", "-m", "true").CombinedOutput(); err != nil {
		t.Skipf("mount namespaces cannot be made here: %v: %s", err, out)
	}
	shared := filepath.Join(t.TempDir(), "octavia")
	stacks := make([]*Stack, 2)
	for i := range stacks {
		sockets := t.TempDir()
		s := standing(t, Component{
			Name: "agent", Ready: Probe{Text: "ready now"},
			Argv: append(ownSockets(sockets, shared), "sh", "-c", `echo > "$0/socket"; echo ready now; exec sleep 1000`, shared),
		})
		stacks[i] = s
		if err := s.Start(t.Context(), "agent"); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(sockets, "socket")); err != nil {
			t.Errorf("what the server wrote is not in its own folder: %v", err)
		}
	}
	if entries, err := os.ReadDir(shared); err != nil || len(entries) > 0 {
		t.Errorf("the machine sees %v, %v", entries, err)
	}
	// The first was the one that made the folder, and earlier versions recorded that.
	first, second := stacks[0], stacks[1]
	var document map[string]any
	content, err := os.ReadFile(first.path(stateFile))
	if err == nil {
		err = json.Unmarshal(content, &document)
	}
	if err != nil {
		t.Fatal(err)
	}
	document["made"] = []string{shared}
	if content, err = json.Marshal(document); err == nil {
		err = os.WriteFile(first.path(stateFile), content, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := Down(t.Context(), first.Dir()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/root%s/socket", second.PID("agent"), shared)); err != nil {
		t.Errorf("the other stack's server has lost its sockets: %v", err)
	}
}
