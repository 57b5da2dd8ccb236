package stack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// EnvironmentFaults lists what went wrong with the servers themselves and says nothing about Raven: aborts of ovs-vswitchd.
// 3.1.0 of Debian 12 aborts now and then under bursts of load-balanced connections (measured: assertion in conntrack.c:1063);
// its monitor starts it anew, and says so in the log. A run that fails with such a fault in it proves nothing.
func (s *Stack) EnvironmentFaults() ([]string, error) {
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
	var faults []string
	for line := range bytes.Lines(content) {
		if text := string(bytes.TrimSpace(line)); strings.Contains(text, " crashes: pid ") && strings.Contains(text, "restarting") {
			faults = append(faults, Vswitchd+" aborted: "+text)
		}
	}
	return faults, nil
}

// Compact compacts etcd at its newest revision. Kubernetes' watches then answer 410 to versions from before, but only once
// the apiserver has been restarted too: until then its watch cache still has them (measured).
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
