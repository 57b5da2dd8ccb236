// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// stage is the simulations and the files by which clients find them.
type stage struct {
	kube  *simkube.API
	cloud *simcloud.Cloud
	dir   string
	own   bool // the folder is ours to remove
}

// The files of a stage's folder.
func (s *stage) kubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }
func (s *stage) clouds() string     { return filepath.Join(s.dir, "clouds.yaml") }
func (s *stage) login() string      { return filepath.Join(s.dir, "login.json") }
func (s *stage) help() string       { return filepath.Join(s.dir, "access.txt") }
func (s *stage) conf() string       { return filepath.Join(s.dir, "kuryr.conf") }
func (s *stage) log() string        { return filepath.Join(s.dir, "raven.log") }

// newStage starts the simulations and writes the files. An empty dir is a new temporary one, which close removes.
func newStage(ctx context.Context, dir string, ko simkube.Options, co simcloud.Options) (*stage, error) {
	s := &stage{kube: simkube.New(ko), cloud: simcloud.New(co), dir: dir} //nolint:contextcheck // close ends them
	if err := s.open(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *stage) open(ctx context.Context) error {
	if s.dir == "" {
		dir, err := os.MkdirTemp("", "raven-sim-")
		if err != nil {
			return fmt.Errorf("making a folder for the configuration: %w", err)
		}
		s.dir, s.own = dir, true
	} else {
		if err := os.MkdirAll(s.dir, 0o700); err != nil {
			return fmt.Errorf("making a folder for the configuration: %w", err)
		}
		dir, err := filepath.Abs(s.dir)
		if err != nil {
			return fmt.Errorf("finding the folder for the configuration: %w", err)
		}
		s.dir = dir
	}
	if _, err := s.kube.Start(""); err != nil {
		return fmt.Errorf("starting the simulated Kubernetes API: %w", err)
	}
	if _, err := s.cloud.Start(context.WithoutCancel(ctx), ""); err != nil { // close ends it, after raven
		return fmt.Errorf("starting the simulated cloud: %w", err)
	}
	login, err := json.Marshal(s.loginBody())
	if err != nil {
		return fmt.Errorf("encoding a login: %w", err)
	}
	for path, text := range map[string][]byte{
		s.kubeconfig(): s.kube.Kubeconfig(), s.clouds(): s.cloud.CloudsYAML(), s.login(): login, s.help(): []byte(s.access()),
	} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return fmt.Errorf("writing the configuration: %w", err)
		}
	}
	return nil
}

func (s *stage) close() {
	s.kube.Close()
	s.cloud.Close()
	if s.own {
		_ = os.RemoveAll(s.dir)
	}
}

// loginBody is what Keystone wants for a token of the user that Raven is, too.
func (s *stage) loginBody() map[string]any {
	auth := s.cloud.PasswordAuth(simcloud.UserKuryr, simcloud.ProjectKuryr)
	return map[string]any{"auth": map[string]any{
		"identity": map[string]any{"methods": []string{"password"}, "password": map[string]any{"user": map[string]any{
			"name": auth["username"], "password": auth["password"], "domain": map[string]any{"name": auth["user_domain_name"]},
		}}},
		"scope": map[string]any{"project": map[string]any{
			"name": auth["project_name"], "domain": map[string]any{"name": auth["project_domain_name"]},
		}},
	}}
}

// access is how to reach the simulations from another terminal.
func (s *stage) access() string {
	return fmt.Sprintf(`  export KUBECONFIG=%s
  kubectl get pods -A

  export OS_CLIENT_CONFIG_FILE=%s OS_CLOUD=%s
  openstack port list

  TOKEN=$(curl -s -D - -o /dev/null -H 'Content-Type: application/json' -d @%s %s/auth/tokens | tr -d '\r' | awk 'tolower($1) == "x-subject-token:" {print $2}')
  curl -H "X-Auth-Token: $TOKEN" %s/v2.0/ports

  curl %s/sim/dump      the whole cloud, as text
`, s.kubeconfig(), s.clouds(), simcloud.CloudMember, s.login(), s.cloud.AuthURL(), s.cloud.NetworkURL(),
		s.cloud.BaseURL())
}

func (s *stage) printAccess(out io.Writer) {
	fmt.Fprintf(out, "The simulated cluster and cloud are up. From another terminal:\n\n%s\n", s.access())
}
