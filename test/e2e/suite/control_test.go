// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"fmt"
	"os/exec"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuryr/raven/test/e2e/stack"
)

// script is a program that stops and starts the servers of a stack.
type script string

func (s script) Kill(ctx context.Context, component string) error {
	return s.call(ctx, "kill", component)
}

func (s script) Start(ctx context.Context, component string) error {
	return s.call(ctx, "start", component)
}

func (s script) call(ctx context.Context, verb, component string) error {
	if out, err := exec.CommandContext(ctx, string(s), verb, component).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s %s: %w: %s", string(s), verb, component, err, out)
	}
	return nil
}

// needControls skips a scenario that stops servers where nobody can.
func needControls(t *testing.T) {
	t.Helper()
	if world.controls == nil {
		lacks(t,
			"this stack's servers cannot be stopped and started from here: neither RAVEN_E2E_STACK nor RAVEN_E2E_CONTROL is set")
	}
}

// killed ends a server as kill -9 does.
func killed(t *testing.T, component string) {
	t.Helper()
	if err := world.controls.Kill(t.Context(), component); err != nil {
		t.Fatalf("killing %s: %v", component, err)
	}
	// Nothing that fails may leave the others without this server.
	t.Cleanup(func() {
		if t.Failed() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			_ = world.controls.Start(ctx, component)
		}
	})
}

// started starts a server again, and returns when it answers.
func started(t *testing.T, component string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := world.controls.Start(ctx, component); err != nil {
		t.Fatalf("starting %s: %v", component, err)
	}
	if component == stack.Etcd || component == stack.APIServer {
		kubernetesWrites(t)
	}
}

// kubernetesWrites waits until Kubernetes stores what it is given: after a restart of etcd it answers while it cannot
// do so yet, with 500.
func kubernetesWrites(t *testing.T) {
	t.Helper()
	maps := world.kube.Resource(resource("configmaps")).Namespace(metav1.NamespaceDefault)
	for round := range 2 { // the first may come by a connection from before
		await(t, "Kubernetes to store things", func(ctx context.Context) string {
			object := thing{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "raven-e2e-writes"},
				"data": map[string]any{"at": fmt.Sprint(round, time.Now())},
			}
			if err := apply(ctx, maps, object); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	if err := maps.Delete(t.Context(), "raven-e2e-writes", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}
