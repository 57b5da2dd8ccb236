// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kuryr/raven/test/harness"
)

// The Lease of this scenario: short, since its end is waited for.
const (
	leaseName     = "raven-e2e"
	leaseDuration = 15 * time.Second
	renewDeadline = 11 * time.Second
)

func leases() dynamic.ResourceInterface {
	return world.kube.Resource(schema.GroupVersionResource{
		Group: "coordination.k8s.io", Version: "v1", Resource: "leases",
	}).Namespace("kube-system")
}

// TestLeader runs two Ravens for one cluster. The leader is cut off from the API server while a create of its own is
// on its way to a Neutron that takes its time: another leads, and what takes effect late leaves no lasting duplicate.
// Then the leader is stopped, and at last killed. Every time the other one goes on with what there is; how long it
// took is told.
func TestLeader(t *testing.T) {
	allowLeases(t)
	one, two := newContender(t, "leader-one"), newContender(t, "leader-two")
	var runs []*raven
	t.Cleanup(func() { killAll(runs, nil) })
	s := own(t, "leader", one.conf.With(harness.Settings{}.
		Set("kubernetes", "controller_ha", true).Set("kubernetes", "lease_name", leaseName).Set("kubernetes",
		"lease_namespace", "kube-system").
		Set("kubernetes", "lease_duration", leaseDuration).Set("kubernetes", "lease_renew_deadline", renewDeadline).
		Set("kubernetes", "lease_retry_period", time.Second).Set("neutron", "timeout", leaseDuration-time.Second)))
	t.Cleanup(func() {
		one.proxy.Restore() // cut off, the site's raven could not be stopped in order
		killAll(runs, s.raven)
	})
	first := s.raven
	runs = append(runs, first)
	second := s.beside(t, two)
	runs = append(runs, second)
	if sent := two.gateway.after(time.Time{}); len(sent) > 0 {
		t.Errorf("the one that stands by has sent: %v", sent)
	}

	leader := holder(t)
	late := one.gateway.hold(http.MethodPost, "networks")
	createNamespace(t, "ld-a")
	createPod(t, "ld-a", "a")
	select {
	case <-late.arrived:
	case <-time.After(patience):
		t.Fatal("the leader makes no network")
	}
	one.proxy.Cut()
	cut := time.Now()
	other := anotherLeads(t, leader)
	led := time.Now()
	t.Logf("cut off from the API server: another one leads after %s", led.Sub(cut).Round(100*time.Millisecond))
	s.raven = second
	createPod(t, "ld-a", "b")
	await(t, "the new leader's network", func(ctx context.Context) string { return networks(ctx, "ld-a", 1) })
	t.Logf("%s after the cut the new leader has made a network of its own", time.Since(cut).Round(100*time.Millisecond))
	late.letGo()
	twin := <-late.answer
	if twin.status != http.StatusCreated || twin.id == "" {
		t.Fatalf("Neutron answered the late create with %d: there is no twin, and nothing is shown", twin.status)
	}
	oneOfTwins(t, "ld-a", twin.id)
	s.settled(t)
	if sent := one.gateway.after(led); len(sent) > 0 {
		t.Errorf("the one that is cut off went on: %v", sent)
	}

	one.proxy.Restore()
	await(t, "the first one, standing by", one.ready)
	stopping := time.Now()
	if status, err := second.end(); err != nil || status != 0 {
		t.Fatalf("stopping the leader: exit status %d, %v", status, err)
	}
	s.raven = first
	if now := anotherLeads(t, other); now != leader {
		t.Errorf("%s leads, and not %s", now, leader)
	}
	t.Logf("stopped: the other one leads %s after SIGTERM", time.Since(stopping).Round(100*time.Millisecond))
	createPod(t, "ld-a", "c")
	s.settled(t)

	second = s.beside(t, two)
	runs = append(runs, second)
	killed := time.Now()
	first.Kill()
	s.raven = second
	anotherLeads(t, leader)
	took := time.Since(killed)
	t.Logf("killed: another one leads after %s", took.Round(100*time.Millisecond))
	if most := leaseDuration + 15*time.Second; took > most {
		t.Errorf("a Lease of %s was taken over after %s", leaseDuration, took)
	}
	createPod(t, "ld-a", "d")
	s.settled(t)
}

// beside starts another raven of the site, and returns when a probe finds it ready.
func (s *site) beside(t *testing.T, p *contender) *raven {
	t.Helper()
	path := filepath.Join(s.dir, p.name+".conf")
	if err := os.WriteFile(path, []byte(s.conf.With(p.conf).String()), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := launch(path, filepath.Join(s.dir, p.name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	await(t, p.name+" to be ready", func(ctx context.Context) string {
		if why := r.died(); why != "" {
			return why
		}
		return p.ready(ctx)
	})
	return r
}

// killAll ends those that still run, but for one.
func killAll(runs []*raven, but *raven) {
	for _, r := range runs {
		if r != but && r.died() == "" {
			r.Kill()
		}
	}
}

// holder is who holds the Lease.
func holder(t *testing.T) string {
	t.Helper()
	lease, err := leases().Get(t.Context(), leaseName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity")
	return name
}

// anotherLeads waits until the Lease has another holder.
func anotherLeads(t *testing.T, than string) string {
	t.Helper()
	now := ""
	await(t, "another leader", func(context.Context) string {
		if now = holder(t); now == "" || now == than {
			return fmt.Sprintf("the Lease is held by %q", now)
		}
		return ""
	})
	return now
}

// networks says whether there are so many networks of a name.
func networks(ctx context.Context, name string, want int) string {
	found, err := world.cloud.list(ctx, "networks", "fields=id&name="+name)
	if err != nil {
		return err.Error()
	}
	if len(found) != want {
		return fmt.Sprintf("there are %d networks %s", len(found), name)
	}
	return ""
}

// oneOfTwins waits until one of a namespace's two networks is gone, and checks that the one that stays is the
// annotated one.
func oneOfTwins(t *testing.T, namespace, twin string) {
	t.Helper()
	await(t, "the end of the network "+twin+" or of its twin", func(ctx context.Context) string {
		return networks(ctx, namespace, 1)
	})
	found, err := world.cloud.list(t.Context(), "networks", "fields=id&name="+namespace)
	if told := annotated(t, namespace, networkAnnotation).str("id"); err != nil || len(found) != 1 ||
		found[0].str("id") != told {
		t.Errorf("of the twins there is left %v (%v), and the namespace is told of %s", found, err, told)
	}
}

// allowLeases lets Raven's account contend for the Lease, which is removed at the end.
func allowLeases(t *testing.T) {
	t.Helper()
	const name = "raven-e2e-leader"
	rbac := func(kind string) dynamic.ResourceInterface {
		return world.kube.Resource(schema.GroupVersionResource{
			Group: "rbac.authorization.k8s.io", Version: "v1", Resource: kind,
		}).Namespace("kube-system")
	}
	for kind, object := range map[string]thing{
		"roles": {
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": map[string]any{"name": name},
			"rules": []any{map[string]any{
				"apiGroups": []any{"coordination.k8s.io"}, "resources": []any{"leases"}, "verbs": []any{"get", "create", "update"},
			}},
		},
		"rolebindings": {
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": map[string]any{"name": name},
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
			"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": "raven-e2e", "namespace": "kube-system"}},
		},
	} {
		if err := apply(t.Context(), rbac(kind), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = rbac(kind).Delete(context.Background(), name, metav1.DeleteOptions{}) })
	}
	t.Cleanup(func() { _ = leases().Delete(context.Background(), leaseName, metav1.DeleteOptions{}) })
}
