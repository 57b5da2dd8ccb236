//go:build e2e

package suite

import (
	"context"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/kuryr/raven/test/e2e/stack"
)

// TestGone makes the API server forget where Raven was: while Raven stands still, pods come and go, etcd is compacted and the API
// server killed and started anew. A watch from where Raven was is answered 410; Raven must list again, and miss nothing of what happened.
func TestGone(t *testing.T) {
	if world.stack == nil {
		t.Skip("etcd cannot be compacted from here: RAVEN_E2E_STACK is not set")
	}
	s := standing(t)
	createNamespace(t, "go-a")
	createNamespace(t, "go-b")
	for _, name := range []string{"a", "b"} {
		createPod(t, "go-a", name)
		createPod(t, "go-b", name)
	}
	s.settled(t)
	list, err := pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.raven.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goOn := func() { _ = s.raven.cmd.Process.Signal(syscall.SIGCONT) }
	t.Cleanup(goOn)
	deletePod(t, "go-a", "a")
	createPod(t, "go-a", "c")
	deleteNamespace(t, "go-b")
	createNamespace(t, "go-c")
	createPod(t, "go-c", "d")
	gone(t, "go-b")
	if err := world.stack.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	killed(t, stack.APIServer)
	started(t, stack.APIServer)
	await(t, "a watch from where Raven was to be answered 410", func(ctx context.Context) string {
		return answeredGone(ctx, list.GetResourceVersion())
	})
	goOn()
	s.settled(t)
}

// answeredGone says what came instead of 410.
func answeredGone(ctx context.Context, version string) string {
	w, err := pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		if apierrors.IsGone(err) || apierrors.IsResourceExpired(err) {
			return ""
		}
		return err.Error()
	}
	defer w.Stop()
	event := <-w.ResultChan()
	if err := apierrors.FromObject(event.Object); event.Type == apiwatch.Error && (apierrors.IsGone(err) || apierrors.IsResourceExpired(err)) {
		return ""
	}
	return "an event of type " + string(event.Type)
}
