// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/kuryr/raven/test/e2e/stack"
	"github.com/kuryr/raven/test/harness"
)

// TestGone makes the API server forget where Raven was: while Raven is cut off, pods come and go, etcd is compacted
// and the API server killed and started anew. What Raven was sent meanwhile is lost, and a watch from where it was is
// answered 410: it must list again, and miss nothing.
func TestGone(t *testing.T) {
	if world.stack == nil {
		lacks(t, "etcd cannot be compacted from here: RAVEN_E2E_STACK is not set")
	}
	proxy, kubeconfig := viaProxy(t, "gone")
	s := standing(t, harness.Settings{}.Set("kubernetes", "kubeconfig", kubeconfig))
	createNamespace(t, "go-a")
	createNamespace(t, "go-b")
	for _, name := range []string{"a", "b"} {
		createPod(t, "go-a", name)
		createPod(t, "go-b", name)
	}
	s.settled(t)
	proxy.Cut()
	t.Cleanup(proxy.Restore)
	list, err := pods("").List(t.Context(), metav1.ListOptions{}) // Raven knows nothing later
	if err != nil {
		t.Fatal(err)
	}
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
	back := time.Now()
	proxy.Restore()
	s.settled(t)
	for _, kind := range []string{"pods", "namespaces"} {
		await(t, "the API server to note that Raven listed "+kind+" anew", func(context.Context) string {
			return listedAnew(kind, back)
		})
	}
}

// listedAnew looks among the API server's notes of requests for one by which Raven got all objects of a kind since a
// time: a list, or a watch that begins with what there is.
func listedAnew(kind string, since time.Time) string {
	text, err := os.ReadFile(filepath.Join(world.artifacts, "log", stack.APIServer+"-requests.log"))
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(text)) {
		var note struct {
			Verb, RequestURI         string
			RequestReceivedTimestamp time.Time
			User                     struct{ Username string }
		}
		if !strings.Contains(line, ravensAccount) || json.Unmarshal([]byte(line), &note) != nil ||
			note.RequestReceivedTimestamp.Before(since) {
			continue
		}
		if path, query, _ := strings.Cut(note.RequestURI, "?"); strings.HasSuffix(path, "/"+kind) &&
			(note.Verb == "list" || note.Verb == "watch" && strings.Contains(query, "sendInitialEvents=true")) {
			return ""
		}
	}
	return "there is none"
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
	if err := apierrors.FromObject(event.Object); event.Type == apiwatch.Error &&
		(apierrors.IsGone(err) || apierrors.IsResourceExpired(err)) {
		return ""
	}
	return "an event of type " + string(event.Type)
}
