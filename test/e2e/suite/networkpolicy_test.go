// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kuryr/raven/test/e2e/stack"
	"github.com/kuryr/raven/test/harness"
)

// policed are pods with an address of each IP version: web and client in namespace np-a, client in np-b.
type policed struct {
	*site
	web, near, far *nic
}

// TestNetworkPolicy sends packets between pods that NetworkPolicies isolate: by both IP versions, TCP and UDP.
func TestNetworkPolicy(t *testing.T) {
	s := proxying(t, "policy", dualStack.With(harness.Settings{}.Set("raven", "drivers",
		"namespace,pod,kubeproxy,networkpolicy")))
	createNamespace(t, "np-a")
	createNamespace(t, "np-b")
	label(t, "np-a", `{"team":"a"}`)
	label(t, "np-b", `{"team":"b"}`)
	labelled := func(app string) func(spec, metadata map[string]any) {
		return func(spec, metadata map[string]any) {
			metadata["labels"] = map[string]any{"app": app}
			container, _ := spec["containers"].([]any)[0].(map[string]any)
			container["ports"] = []any{map[string]any{"name": "web", "containerPort": int64(8080)}}
		}
	}
	createPod(t, "np-a", "web", labelled("web"))
	createPod(t, "np-a", "client", labelled("client"))
	createPod(t, "np-b", "client", labelled("client"))
	spec := bothProtocols()
	spec["ipFamilyPolicy"] = "RequireDualStack"
	createService(t, "np-a", "web", spec)
	endpoints(t, "np-a", "web", 2)
	s.settled(t)
	p := &policed{site: s, web: plug(t, "np-a", "web"), near: plug(t, "np-a", "client"), far: plug(t, "np-b", "client")}
	p.both(t, p.near, true)
	p.both(t, p.far, true)
	t.Run("ingress", p.ingress)
	t.Run("ranges", p.ranges)
	t.Run("ports", p.ports)
	t.Run("labels", p.labels)
	t.Run("egress", p.egress)
	t.Run("namespace", p.namespace)
	t.Run("kills", p.kills)
	t.Run("new-pod", p.newPod)
	t.Run("disabled", p.disabled)
}

func networkPoliciesOf(namespace string) dynamic.ResourceInterface {
	return world.kube.Resource(schema.GroupVersionResource{
		Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies",
	}).Namespace(namespace)
}

// policy makes a NetworkPolicy of namespace np-a, or changes it, until the test ends.
func policy(t *testing.T, name, spec string) {
	t.Helper()
	policyOf(t, "np-a", name, spec)
}

func policyOf(t *testing.T, namespace, name, spec string) {
	t.Helper()
	var fields map[string]any
	if err := yaml.Unmarshal([]byte(spec), &fields); err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{Object: thing{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": thing{"name": name}, "spec": fields,
	}}
	if _, err := networkPoliciesOf(namespace).Apply(t.Context(), name, object, metav1.ApplyOptions{
		FieldManager: "e2e", Force: true,
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = networkPoliciesOf(namespace).Delete(context.Background(), name, metav1.DeleteOptions{}) })
}

func noPolicy(t *testing.T, name string) {
	t.Helper()
	if err := networkPoliciesOf("np-a").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func label(t *testing.T, namespace, labels string) {
	t.Helper()
	patch := []byte(`{"metadata":{"labels":` + labels + `}}`)
	_, err := namespaces().Patch(t.Context(), namespace, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// both waits until a client reaches web by its addresses and by its Service, by TCP and UDP, or until it does not.
func (p *policed) both(t *testing.T, from *nic, open bool) {
	t.Helper()
	p.direct(t, from, open)
	for _, vip := range clusterIPs(t, "np-a", "web") {
		for _, protocol := range []string{"tcp", "udp"} {
			from.open(t, protocol, net.JoinHostPort(vip, "80"), p.web.pod, open)
		}
	}
}

// direct is both by addresses alone.
func (p *policed) direct(t *testing.T, from *nic, open bool) {
	t.Helper()
	for _, address := range p.web.addresses {
		for _, protocol := range []string{"tcp", "udp"} {
			from.open(t, protocol, net.JoinHostPort(address, peerPort), p.web.pod, open)
		}
	}
}

// open waits until an address and port answers as who it is, or until several calls in a row come to nothing.
func (n *nic) open(t *testing.T, protocol, at, who string, open bool) {
	t.Helper()
	silent := 0
	await(t, fmt.Sprintf("%s to reach %s by %s: %v", n.pod, at, protocol, open), func(ctx context.Context) string {
		answers, err := n.calls(ctx, protocol, at, 1)
		switch {
		case err != nil:
			return err.Error()
		case open && answers[who] == 1:
			return ""
		case open:
			return fmt.Sprintf("the answers are %v", answers)
		}
		for answer := range answers {
			if !strings.HasPrefix(answer, "!") {
				silent = 0
				return fmt.Sprintf("the answers are %v", answers)
			}
		}
		if silent++; silent < 2 {
			return "not sure yet"
		}
		return ""
	})
}

// ingress closes web to everybody, and opens it to pods of its namespace, and of another one.
func (p *policed) ingress(t *testing.T) {
	policy(t, "in", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}`)
	p.both(t, p.near, false)
	p.both(t, p.far, false)
	p.web.reaches(t, p.near) // its own way out stays
	policy(t, "in", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`)
	p.both(t, p.near, true)
	p.both(t, p.far, false)
	policy(t, "in", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}}]}]}`)
	p.both(t, p.far, true)
	p.both(t, p.near, false)
	noPolicy(t, "in")
	p.both(t, p.near, true)
}

// ranges opens web to a range of addresses without one of them.
func (p *policed) ranges(t *testing.T) {
	var blocks []string
	for _, address := range p.near.addresses {
		ip := netip.MustParseAddr(address)
		blocks = append(blocks, fmt.Sprintf("{ipBlock: {cidr: %q, except: [%q]}}", netip.PrefixFrom(ip, 16).Masked(),
			netip.PrefixFrom(ip, ip.BitLen())))
	}
	policy(t, "ranges", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [`+strings.Join(blocks, ", ")+`]}]}`)
	p.both(t, p.near, false)
	p.both(t, p.far, true)
	noPolicy(t, "ranges")
	p.both(t, p.near, true)
}

// ports opens a range of ports, and a named one.
func (p *policed) ports(t *testing.T) {
	at := func(port string) string { return net.JoinHostPort(p.web.addresses[0], port) }
	policy(t, "ports", `{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 8081, endPort: 8090}]}]}`)
	p.near.open(t, "tcp", at(peerPort), p.web.pod, false)
	p.near.open(t, "udp", at(peerPort), p.web.pod, false)
	p.near.open(t, "tcp", at(otherPort), p.web.pod+":"+otherPort, true)
	policy(t, "ports", `{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: web}]}]}`)
	p.near.open(t, "tcp", at(peerPort), p.web.pod, true)
	p.near.open(t, "udp", at(peerPort), p.web.pod, false)
	p.near.open(t, "tcp", at(otherPort), "", false)
	noPolicy(t, "ports")
	p.both(t, p.near, true)
}

// labels lets a client in and shuts it out by its own label and by its namespace's.
func (p *policed) labels(t *testing.T) {
	policy(t, "labels", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}},
	  podSelector: {matchLabels: {role: friend}}}]}]}`)
	p.direct(t, p.far, false)
	began := time.Now()
	patchPod(t, "np-b", "client", `{"metadata":{"labels":{"role":"friend"}}}`)
	p.far.open(t, "tcp", net.JoinHostPort(p.web.addresses[0], peerPort), p.web.pod, true)
	t.Logf("from a label to packets: %d ms", time.Since(began).Milliseconds())
	p.both(t, p.far, true)
	label(t, "np-b", `{"team":"c"}`)
	p.both(t, p.far, false)
	label(t, "np-b", `{"team":"b"}`)
	p.both(t, p.far, true)
	patchPod(t, "np-b", "client", `{"metadata":{"labels":{"role":null}}}`)
	p.both(t, p.far, false)
	noPolicy(t, "labels")
	p.both(t, p.far, true)
}

// egress closes the way out of near, and opens it to web: by its address and by its Service.
func (p *policed) egress(t *testing.T) {
	policy(t, "out", `{podSelector: {matchLabels: {app: client}}, policyTypes: [Egress]}`)
	p.both(t, p.near, false)
	p.web.reaches(t, p.near) // its own way in stays
	p.both(t, p.far, true)
	policy(t, "out", `{podSelector: {matchLabels: {app: client}}, policyTypes: [Egress],
	  egress: [{to: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 8080}, {port: 8080, protocol: UDP}]}]}`)
	p.both(t, p.near, true)
	p.near.open(t, "tcp", net.JoinHostPort(p.web.addresses[0], otherPort), "", false)
	noPolicy(t, "out")
	p.near.open(t, "tcp", net.JoinHostPort(p.web.addresses[0], otherPort), p.web.pod+":"+otherPort, true)
}

// namespace isolates all pods of the namespace, and lets some in.
func (p *policed) namespace(t *testing.T) {
	policy(t, "all", `{podSelector: {}, policyTypes: [Ingress]}`)
	p.both(t, p.near, false)
	p.both(t, p.far, false)
	p.web.reaches(t, p.far) // the way out stays
	policy(t, "all", `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`)
	p.both(t, p.near, true)
	p.both(t, p.far, false)
	noPolicy(t, "all")
	p.both(t, p.far, true)
}

// kills ends raven, its drivers and Neutron while a policy closes web: no packet comes through at any time, and what
// the policy allows comes through in the end.
func (p *policed) kills(t *testing.T) {
	closed := `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: %s}}}]}]}`
	policy(t, "kills", fmt.Sprintf(closed, "b"))
	p.both(t, p.near, false)
	at := net.JoinHostPort(p.web.addresses[0], peerPort)
	probers := []*prober{p.near.probe(t, "tcp", at), p.near.probe(t, "udp", at)}
	for _, victim := range []struct {
		name string
		kill func(*testing.T)
	}{
		{"raven", func(t *testing.T) {
			p.raven.Kill()
			p.restart(t)
		}},
		{"driver-networkpolicy", killDriver(p.site, "networkpolicy")},
		{"driver-pod", killDriver(p.site, "pod")},
		{"driver-namespace", killDriver(p.site, "namespace")},
		{"neutron", func(t *testing.T) {
			killed(t, stack.NeutronServer)
			started(t, stack.NeutronServer)
		}},
	} {
		t.Log("kill -9 of ", victim.name, " while the policy changes")
		policy(t, "kills", fmt.Sprintf(closed, "c"))
		victim.kill(t)
		p.direct(t, p.far, false)
		policy(t, "kills", fmt.Sprintf(closed, "b"))
		p.direct(t, p.far, true)
	}
	for _, prober := range probers {
		sent, answered := prober.end()
		t.Logf("%s: %d sent, one every 10 ms; %d wrongly answered", prober.protocol, sent, answered)
		if sent == 0 || answered > 0 {
			t.Errorf("%s: %d of %d were answered though the policy closes the pod", prober.protocol, answered, sent)
		}
	}
	noPolicy(t, "kills")
	p.both(t, p.near, true)
}

// newPod is isolated from its first moment on.
func (p *policed) newPod(t *testing.T) {
	policy(t, "new", `{podSelector: {matchLabels: {app: late}}, policyTypes: [Ingress]}`)
	p.settled(t)
	createPod(t, "np-a", "late", func(_, metadata map[string]any) { metadata["labels"] = map[string]any{"app": "late"} })
	p.settled(t)
	late := plug(t, "np-a", "late")
	at := net.JoinHostPort(late.addresses[0], peerPort)
	prober := p.near.probe(t, "udp", at)
	p.near.open(t, "tcp", at, late.pod, false)
	if sent, answered := prober.end(); sent == 0 || answered > 0 {
		t.Errorf("%d of %d were answered though the policy closes the pod", answered, sent)
	}
	late.reaches(t, p.near)
	noPolicy(t, "new")
	p.near.open(t, "tcp", at, late.pod, true)
}

// disabled takes the driver out of the configuration: pods stay isolated until what it made is removed.
func (p *policed) disabled(t *testing.T) {
	policy(t, "stays", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}`)
	p.both(t, p.near, false)
	prober := p.near.probe(t, "udp", net.JoinHostPort(p.web.addresses[0], peerPort))
	without := harness.Settings{}.Set("raven", "drivers", "namespace,pod,kubeproxy")
	p.start(t, without)
	p.settled(t)
	p.direct(t, p.near, false)
	if sent, answered := prober.end(); sent == 0 || answered > 0 {
		t.Errorf("%d of %d were answered though the policy closes the pod", answered, sent)
	}
	p.start(t, harness.Settings{})
	noPolicy(t, "stays")
	p.both(t, p.near, true)
}

// prober calls an address every 10 ms.
type prober struct {
	protocol string
	// end ends it, and returns how many calls it made and how many of them were answered.
	end func() (sent, answered int)
}

func (n *nic) probe(t *testing.T, protocol, at string) *prober {
	t.Helper()
	cmd, out := n.begin(context.Background(), t, "probe "+protocol+" "+at)
	count, read := map[string]int{}, make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			count[lines.Text()]++
		}
	}()
	end := sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
	})
	t.Cleanup(end)
	return &prober{protocol, func() (sent, answered int) {
		end()
		return count["sent"], count["answered"]
	}}
}
