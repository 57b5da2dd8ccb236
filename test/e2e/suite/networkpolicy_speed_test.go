// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuryr/raven/test/harness"
)

// The sizes of what is measured.
const (
	labelChanges    = 20
	podsUnderPolicy = 8
	runningPods     = 100
	memberChanges   = 5 // with as many other members as manyMembers says
)

var manyMembers = []int{100, 1000}

// TestNetworkPolicySpeed measures what NetworkPolicies cost on the real Neutron and OVN: from the change of a label to
// packets, also with many peers, a new pod under five policies against one under none, and a namespace with 100 pods
// from the policy to the first call that is not answered. It prints a table.
func TestNetworkPolicySpeed(t *testing.T) {
	needFull(t)
	r := record(t)
	s := proxying(t, "policy-speed", harness.Settings{}.Set("raven", "drivers", "namespace,pod,kubeproxy,networkpolicy").
		Set("neutron", "endpoint_override", r.url).Set("raven", "drift_check_interval", 300).
		Set("raven", "sweep_interval", 300).Set("namespace_subnet", "subnet_prefix_length", 24))
	createNamespace(t, "np-a")
	createNamespace(t, "np-b")
	createPod(t, "np-a", "web", appLabel("web"))
	createPod(t, "np-a", "client", appLabel("client"))
	s.settled(t)
	m := &policySpeed{site: s, log: r, web: plug(t, "np-a", "web"), client: plug(t, "np-a", "client")}
	m.at = net.JoinHostPort(m.web.addresses[0], peerPort)
	defer m.report(t) // also of what was measured before something failed
	m.labels(t)
	m.pods(t)
	m.wholeNamespace(t)
	m.members(t)
}

func (m *policySpeed) report(t *testing.T) {
	text := m.b.String()
	t.Log("\n" + text)
	if err := os.WriteFile(filepath.Join(world.artifacts, t.Name(), "report.txt"), []byte(text), 0o644); err != nil {
		t.Error(err)
	}
}

type policySpeed struct {
	*site
	log         *recorder
	web, client *nic
	at          string // where web answers
	b           strings.Builder
}

func appLabel(app string) func(spec, metadata map[string]any) {
	return func(_, metadata map[string]any) { metadata["labels"] = map[string]any{"app": app} }
}

// labels lets the client in by a label, again and again.
func (m *policySpeed) labels(t *testing.T) {
	m.friends(t)
	took := m.befriend(t, labelChanges)
	noPolicy(t, "in")
	m.client.open(t, "tcp", m.at, m.web.pod, true)
	fmt.Fprintf(&m.b, "%-60s %s\n", fmt.Sprintf("label of a pod to packets, ms, median of %d (from to)", labelChanges),
		spread(took))
}

// friends has a policy let pods with a label reach web.
func (m *policySpeed) friends(t *testing.T) {
	t.Helper()
	policy(t, "in", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {role: friend}}}]}]}`)
	m.settled(t)
	m.client.open(t, "tcp", m.at, m.web.pod, false)
}

// befriend gives the client that label so many times, and returns how long it took until it was answered, in ms.
func (m *policySpeed) befriend(t *testing.T, times int) (took []float64) {
	t.Helper()
	for range times {
		took = append(took, measured(t, m.client, m.at, m.web.pod, func() {
			patchPod(t, "np-a", "client", `{"metadata":{"labels":{"role":"friend"}}}`)
		}))
		patchPod(t, "np-a", "client", `{"metadata":{"labels":{"role":null}}}`)
		m.client.open(t, "tcp", m.at, m.web.pod, false)
		m.settled(t)
	}
	return took
}

// members has the client become one of many peers. The others are ports without pods, in a network of their own.
func (m *policySpeed) members(t *testing.T) {
	m.friends(t)
	groups, err := world.cloud.list(t.Context(), "security-groups", "fields=id&fields=name")
	if err != nil {
		t.Fatal(err)
	}
	groups = slices.DeleteFunc(groups, func(g thing) bool {
		return !strings.HasPrefix(g.str("name"), "network-policy-peers-")
	})
	if len(groups) != 1 {
		t.Fatalf("there are %d groups of peers", len(groups))
	}
	network := makeCloud(t, "networks", thing{"name": "policy-speed-members"})
	makeCloud(t, "subnets", thing{"network_id": network.str("id"), "ip_version": 4, "cidr": "10.200.0.0/20"})
	for i, many := range manyMembers {
		before := 0
		if i > 0 {
			before = manyMembers[i-1]
		}
		defer m.join(t, many-before, network.str("id"), groups[0].str("id"))()
		fmt.Fprintf(&m.b, "%-60s %s\n", fmt.Sprintf("the same beside %d other peers, of %d", many, memberChanges),
			spread(m.befriend(t, memberChanges)))
	}
}

// join makes ports that are members of a group, and returns what removes them.
func (m *policySpeed) join(t *testing.T, n int, network, group string) (leave func()) {
	t.Helper()
	const atOnce = 25
	var made []thing
	leave = sync.OnceFunc(func() {
		var work errgroup.Group
		work.SetLimit(4)
		for _, port := range made {
			work.Go(func() error { return world.cloud.remove(context.Background(), "ports", port.str("id")) })
		}
		if err := work.Wait(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(leave)
	for n > 0 {
		ports := slices.Repeat([]any{thing{"network_id": network, "security_groups": []any{group}}}, min(n, atOnce))
		out, err := world.cloud.call(t.Context(), http.MethodPost, "ports", thing{"ports": ports})
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, out.things("ports")...)
		n -= len(ports)
	}
	return leave
}

// pods makes pods one by one, under no policy and under five, in turns.
func (m *policySpeed) pods(t *testing.T) {
	for i := range 5 {
		policy(t, fmt.Sprint("five-", i), fmt.Sprintf(`{podSelector: {matchLabels: {app: under}}, policyTypes: [Ingress],
		  ingress: [{from: [{podSelector: {matchLabels: {team: t%d}}}]}]}`, i))
	}
	m.settled(t)
	took, writes := map[string][]float64{}, map[string]int{}
	for i := range 2 * podsUnderPolicy {
		app := []string{"free", "under"}[i%2]
		name := fmt.Sprint(app, "-", i)
		began := time.Now()
		createPod(t, "np-a", name, appLabel(app))
		await(t, name+" to be annotated", func(ctx context.Context) string {
			if _, port, err := getPod(ctx, "np-a", name); err != nil || port == nil {
				return fmt.Sprintf("it is not (%v)", err)
			}
			return ""
		})
		took[app] = append(took[app], float64(time.Since(began))/float64(time.Millisecond))
		m.settled(t)
		for _, q := range m.log.since(began) {
			if q.Method != "GET" {
				writes[app]++
			}
		}
	}
	for _, app := range []string{"free", "under"} {
		what := map[string]string{"free": "no policy", "under": "five policies"}[app]
		fmt.Fprintf(&m.b, "%-60s %s; %d writes to Neutron\n",
			fmt.Sprintf("a pod under %s until its annotation, ms, of %d", what, podsUnderPolicy), spread(took[app]), writes[app])
	}
	for i := range 5 {
		noPolicy(t, fmt.Sprint("five-", i))
	}
	m.settled(t)
}

// wholeNamespace closes a namespace with many pods: by a policy for all pods, and by one for all that have a label.
func (m *policySpeed) wholeNamespace(t *testing.T) {
	createPods(t, []string{"np-b"}, runningPods-1, func(*unstructured.Unstructured) {})
	createPod(t, "np-b", "web", appLabel("web"))
	m.settledWithin(t, 5*time.Minute)
	web := plug(t, "np-b", "web")
	at := net.JoinHostPort(web.addresses[0], peerPort)
	m.client.open(t, "tcp", at, web.pod, true)
	for _, c := range []struct{ what, spec string }{
		{"an empty podSelector", `{podSelector: {}, policyTypes: [Ingress]}`},
		{"a label of all of them", `{podSelector: {matchExpressions: [{key: app, operator: Exists}]}, policyTypes: [Ingress]}`},
	} {
		time.Sleep(calmBefore)
		began := time.Now()
		policyOf(t, "np-b", "close", c.spec)
		closed := m.lastAnswer(t, at)
		m.open(t, "np-b", 0)
		fmt.Fprintf(&m.b,
			"%-60s %.0f to the last answer of one of them, %.1f s until all ports have left the open group; %s\n",
			fmt.Sprintf("%d pods closed by %s, ms", runningPods, c.what), float64(closed.Sub(began))/float64(time.Millisecond),
			time.Since(began).Seconds(), tally(m.log.since(began)))
		if err := networkPoliciesOf("np-b").Delete(t.Context(), "close", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		m.open(t, "np-b", runningPods)
		m.client.open(t, "tcp", at, web.pod, true)
	}
}

// open waits until so many ports are in the group of a namespace that lets everything in.
func (m *policySpeed) open(t *testing.T, namespace string, want int) {
	t.Helper()
	if amiss := waitFor(t.Context(), 5*time.Minute, func(ctx context.Context) string {
		groups, err := world.cloud.list(ctx, "security-groups", "name="+namespace+"-in")
		if err != nil || len(groups) != 1 {
			return fmt.Sprintf("there are %d groups (%v)", len(groups), err)
		}
		ports, err := world.cloud.list(ctx, "ports", "security_groups="+groups[0].str("id"))
		if err != nil || len(ports) != want {
			return fmt.Sprintf("%d ports are in it (%v)", len(ports), err)
		}
		return ""
	}); amiss != "" {
		t.Fatalf("waiting for %d ports in the open group of %s: %s", want, namespace, amiss)
	}
}

// lastAnswer calls until no call is answered for two seconds, and says when the last one was made that was.
func (m *policySpeed) lastAnswer(t *testing.T, at string) (last time.Time) {
	t.Helper()
	began := time.Now()
	last = began
	for time.Since(last) < 2*time.Second {
		now := time.Now()
		if now.Sub(began) > patience {
			t.Fatalf("%s still answers", at)
		}
		answers, err := m.client.calls(t.Context(), "udp", at, 1)
		if err != nil {
			t.Fatal(err)
		}
		for answer := range answers {
			if !strings.HasPrefix(answer, "!") {
				last = now
			}
		}
	}
	return last
}

// settledWithin is settled for what takes long.
func (m *policySpeed) settledWithin(t *testing.T, bound time.Duration) {
	t.Helper()
	if amiss := waitFor(t.Context(), bound, m.amiss); amiss != "" {
		t.Fatalf("waiting for cloud and cluster to agree: %s", amiss)
	}
}
