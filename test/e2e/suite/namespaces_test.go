// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNamespacesAndPods is the ordinary life of a cluster with topology shared and IPv4: namespaces and pods come,
// pods on the host's network have no port, those that complete lose theirs, a label chooses another security group,
// what somebody changed in Neutron is put right, and a namespace that is deleted with its pods takes all of it along.
// A network of somebody else's in the same project stays untouched.
func TestNamespacesAndPods(t *testing.T) {
	bystander := makeCloud(t, "networks", thing{"name": "np-blog", "description": "raven:cluster=somebody-else"})
	web := makeCloud(t, "security-groups", thing{"name": "e2e-web"})
	s := standing(t)
	createNamespace(t, "np-shop")
	createNamespace(t, "np-blog")
	onHost := func(spec, _ map[string]any) { spec["hostNetwork"] = true }
	for _, name := range []string{"a", "b", "job"} {
		createPod(t, "np-shop", name)
	}
	createPod(t, "np-blog", "c")
	createPod(t, "np-shop", "host", onHost)
	s.settled(t)
	inOVN(t, "np-shop", "a", "b", "job")
	inOVN(t, "np-blog", "c")

	t.Log("a pod completes")
	patchPod(t, "np-shop", "job", `{"status":{"phase":"Succeeded"}}`, "status")
	s.settled(t)

	t.Log("a label names a security group")
	patchPod(t, "np-shop", "a", fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, groupLabel, web.str("id")))
	s.settled(t)
	if _, port, err := getPod(t.Context(), "np-shop", "a"); err != nil ||
		!strings.Contains(fmt.Sprint(port["security_groups"]), web.str("id")) {
		t.Errorf("the annotation of a labelled pod tells of the groups %v (%v)", port["security_groups"], err)
	}
	patchPod(t, "np-shop", "a", fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, groupLabel))
	own := groupOf(t, "np-shop")
	await(t, "the port to have its namespace's group again", func(ctx context.Context) string {
		_, port, err := getPod(ctx, "np-shop", "a")
		if err != nil || fmt.Sprint(port.strs("security_groups")) != fmt.Sprint([]string{own}) {
			return fmt.Sprintf("the annotation has %v (%v)", port["security_groups"], err)
		}
		return ""
	})
	s.settled(t)

	t.Log("somebody renames a network, takes away a rule and deletes a port")
	meddle(t, s)
	s.settled(t)

	t.Log("a namespace goes with its pods")
	_, port, err := getPod(t.Context(), "np-shop", "a")
	if err != nil {
		t.Fatal(err)
	}
	deleteBusy(t, "np-shop")
	gone(t, "np-shop")
	s.settled(t)
	if world.ovnNB != "" {
		if out, err := nbctl(t.Context(), "--bare", "--columns=name", "find", "logical_switch_port",
			"name="+port.str("id")); err != nil || out != "" {
			t.Errorf("OVN still has port %q (%v)", out, err)
		}
	}
	deleteNamespace(t, "np-blog")
	gone(t, "np-blog")
	s.settled(t)
	after, err := world.cloud.call(t.Context(), "GET", "networks/"+bystander.str("id"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if network, _ := after["network"].(map[string]any); network["revision_number"] != bystander["revision_number"] {
		t.Errorf("somebody else's network was touched: %v, was %v", network, bystander)
	}
}

// deleteBusy deletes a namespace in which there is a Service, and in which pods are made all the time: some have
// their ports, some have not yet when it is deleted, and they come until the cluster lets none in any more.
func deleteBusy(t *testing.T, namespace string) {
	t.Helper()
	createService(t, namespace, "busy", nil)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	refused := make(chan error, 1)
	go func() {
		for i := 0; ; i++ {
			if _, err := pods(namespace).Create(ctx, newPod(fmt.Sprint("busy", i)), metav1.CreateOptions{}); err != nil {
				refused <- fmt.Errorf("after %d pods: %w", i, err)
				return
			}
			select {
			case <-time.After(500 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	await(t, "the first of the pods to have its port", func(ctx context.Context) string {
		_, port, err := getPod(ctx, namespace, "busy0")
		if err != nil || port == nil {
			return fmt.Sprintf("it has none (%v)", err)
		}
		return ""
	})
	deleteNamespace(t, namespace)
	if err := <-refused; apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err) {
		t.Logf("namespace %s lets no pod in any more, %v", namespace, err)
	} else {
		t.Errorf("pods were made while namespace %s was deleted, until: %v", namespace, err)
	}
}

// makeCloud makes something in the cloud that is not Raven's. It goes with the test.
func makeCloud(t *testing.T, kind string, attributes thing) thing {
	t.Helper()
	o, err := world.cloud.create(t.Context(), kind, attributes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := world.cloud.remove(context.Background(), kind, o.str("id")); err != nil {
			t.Error(err)
		}
	})
	return o
}

// groupOf is the security group in a namespace's annotation.
func groupOf(t *testing.T, namespace string) string {
	t.Helper()
	return annotated(t, namespace, groupAnnotation).str("id")
}

// meddle changes what is Raven's as an operator might by mistake.
func meddle(t *testing.T, s *site) {
	t.Helper()
	ctx := t.Context()
	network := annotated(t, "np-shop", networkAnnotation)
	if err := world.cloud.update(ctx, "networks", network.str("id"), thing{"name": "renamed"}); err != nil {
		t.Fatal(err)
	}
	rules, err := world.cloud.list(ctx, "security-group-rules", "security_group_id="+groupOf(t, "np-shop"))
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range rules {
		if rule.str("direction") == "ingress" && rule.str("ethertype") == "IPv4" {
			if err := world.cloud.remove(ctx, "security-group-rules", rule.str("id")); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, port, err := getPod(ctx, "np-shop", "b")
	if err != nil {
		t.Fatal(err)
	}
	if err := world.cloud.remove(ctx, "ports", port.str("id")); err != nil {
		t.Fatal(err)
	}
	if amiss := s.amiss(ctx); amiss == "" {
		t.Fatal("nothing was noticed of what was changed: this test could not fail")
	}
}

// inOVN checks that OVN has the ports of pods, with the addresses that the annotations tell of, on the switch of
// their namespace's network, and that this is joined to the router.
func inOVN(t *testing.T, namespace string, names ...string) {
	t.Helper()
	if world.ovnNB == "" {
		t.Log("not looked at in OVN: neither RAVEN_E2E_STACK nor RAVEN_E2E_OVN_NB is set")
		return
	}
	network := annotated(t, namespace, networkAnnotation).str("id")
	on, err := nbctl(t.Context(), "lsp-list", "neutron-"+network)
	if err != nil {
		t.Fatal(err)
	}
	joined := false
	for line := range strings.Lines(on) {
		id, _, _ := strings.Cut(line, " ")
		kind, err := nbctl(t.Context(), "lsp-get-type", id)
		joined = joined || err == nil && kind == "router"
	}
	if !joined {
		t.Errorf("in OVN the switch of namespace %s is joined to no router: %s", namespace, on)
	}
	for _, name := range names {
		_, port, err := getPod(t.Context(), namespace, name)
		if err != nil {
			t.Fatal(err)
		}
		addresses, err := nbctl(t.Context(), "lsp-get-addresses", port.str("id"))
		want := port.str("mac_address") + " " + strings.Join(port.addresses(), " ")
		if err != nil || addresses != want || !strings.Contains(on, "("+port.str("id")+")") {
			t.Errorf("OVN has the port of pod %s/%s with %q, not %q (%v); on its switch are:\n%s", namespace, name, addresses,
				want, err, on)
		}
	}
}
