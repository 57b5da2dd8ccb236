// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kuryr/raven/test/e2e/stack"
)

// ownRequest is the global id of the suite's own requests to OpenStack, by which its servers' logs tell them from
// Raven's.
const ownRequest = "req-e2e00000-0000-4000-8000-000000000000"

// ravensAccount is how the API server calls Raven's account.
const ravensAccount = `"username":"system:serviceaccount:kube-system:raven-e2e"`

// requestLogs are the servers' logs with a line for each request, and what tells Raven's.
func requestLogs() map[string]func(line string) bool {
	return map[string]func(string) bool{
		stack.NeutronServer: func(line string) bool {
			return strings.Contains(line, " INFO neutron.wsgi ") && !strings.Contains(line, ownRequest)
		},
		stack.OctaviaAPI: func(line string) bool {
			return strings.Contains(line, " /v2") && strings.Contains(line, " bytes ") && !strings.Contains(line, ownRequest)
		},
		stack.APIServer + "-requests": func(line string) bool { return strings.Contains(line, ravensAccount) },
	}
}

// requestsOf keeps the requests that Raven makes from now to the end of the test, as the servers logged them, among
// the artifacts. It costs nothing while the test runs: nothing stands between Raven and the servers.
func requestsOf(t *testing.T) {
	t.Helper()
	if world.stack == nil {
		return
	}
	folder := filepath.Join(world.artifacts, t.Name())
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, ravens := range requestLogs() {
		log := filepath.Join(world.artifacts, "log", name+".log")
		var from int64
		if info, err := os.Stat(log); err == nil {
			from = info.Size()
		}
		t.Cleanup(func() {
			if err := extract(log, from, filepath.Join(folder, "requests-"+name+".log"), ravens); err != nil {
				t.Errorf("keeping the requests to %s: %v", name, err)
			}
		})
	}
}

// extract copies the lines that are wanted from a place of a log on.
func extract(log string, from int64, to string, wanted func(string) bool) error {
	in, err := os.Open(log)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read
	if _, err := in.Seek(from, io.SeekStart); err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if wanted(line) {
			if _, err := out.WriteString(line); err != nil {
				return errors.Join(err, out.Close())
			}
		}
		if errors.Is(err, io.EOF) {
			return out.Close()
		}
		if err != nil {
			return errors.Join(err, out.Close())
		}
	}
}
