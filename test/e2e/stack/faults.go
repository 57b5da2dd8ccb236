// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// Ended lists the components that have ended by themselves, or were killed and not started again, with the end of
// their logs. Those of nodes are not among them.
func (s *Stack) Ended() []string {
	var ended []string
	for _, c := range s.state.Components {
		if !c.OnDemand && !s.Running(c.Name) {
			ended = append(ended, c.Name+" does not run; "+Tail(c.Log, tail))
		}
	}
	return ended
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
