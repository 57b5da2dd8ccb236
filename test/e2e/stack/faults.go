// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
)

// FaultMark is a moment in the life of the stack, for EnvironmentFaults: what its servers' log held by then.
func (s *Stack) FaultMark() (int64, error) {
	c, err := s.Component(Vswitchd)
	if err != nil {
		return 0, err
	}
	info, err := os.Stat(c.Log)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// EnvironmentFaults lists what has gone wrong since a FaultMark (0: since the stack was brought up) with the servers
// themselves and says nothing about Raven: aborts of ovs-vswitchd. 3.1.0 of Debian 12 aborts now and then under
// bursts of load-balanced connections (measured: assertion in conntrack.c:1063); its monitor starts it anew, and says
// so in the log. A run that fails with such a fault in it proves nothing.
func (s *Stack) EnvironmentFaults(since int64) ([]string, error) {
	c, err := s.Component(Vswitchd)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(c.Log)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	content = content[min(max(since, 0), int64(len(content))):]
	// The line is there twice, from the log file and from the console, with times of two forms.
	faults := map[string]bool{}
	for line := range strings.Lines(string(content)) {
		if _, crash, found := strings.Cut(line, " crashes: pid "); found && strings.Contains(crash, "restarting") {
			faults[Vswitchd+" broke by itself: pid "+strings.TrimSpace(crash)] = true
		}
	}
	return slices.Sorted(maps.Keys(faults)), nil
}

// SQL runs a statement on a service's database ("octavia"), and gives what it printed: for what an administrator can
// do in no other way.
func (s *Stack) SQL(ctx context.Context, database, statement string) (string, error) {
	return s.Run(ctx, "mariadb", "--no-defaults", "-uroot", "-S", s.path("sock", "mysql.sock"), "--batch",
		"--skip-column-names", database, "-e", statement)
}

// Compact compacts etcd at its newest revision. Kubernetes' watches then answer 410 to versions from before, but only
// once the apiserver has been restarted too: until then its watch cache still has them (measured).
func (s *Stack) Compact(ctx context.Context) error {
	var answer struct {
		Header struct{ Revision string }
	}
	if err := s.etcd(ctx, "/v3/kv/range", map[string]any{"key": "AA==", "limit": 1}, &answer); err != nil {
		return err
	}
	return s.etcd(ctx, "/v3/kv/compaction", map[string]any{"revision": answer.Header.Revision, "physical": true}, nil)
}

func (s *Stack) etcd(ctx context.Context, path string, body, into any) error {
	content, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.state.Endpoints.Etcd+path, bytes.NewReader(content))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("asking etcd: %w", err)
	}
	defer response.Body.Close()
	if content, err = io.ReadAll(response.Body); err != nil {
		return fmt.Errorf("asking etcd: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd answers %s: %s", response.Status, content)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(content, into)
}
