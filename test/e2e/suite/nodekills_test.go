// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuryr/raven/test/e2e/stack"
)

// TestNodesKills kills in turn, with kill -9, all that has a part in plugging pods in, while pods are made and deleted
// on both nodes: Raven, and of a node its daemon, containerd, kubelet, ovn-controller and ovs-vswitchd. After each kill
// the node must bring a new pod up before the next one there, and each pod that runs must answer the control plane's
// host. At the end all pods are as they should be, and when they are gone nothing of them is left.
func TestNodesKills(t *testing.T) {
	needControls(t)
	network := &ravenNetwork{}
	nodes := realNodes(t, network)
	before := traces(t, nodes)
	rounds := 3
	if world.full {
		rounds = 17 // of six kills each
	}
	only := regexp.MustCompile(os.Getenv("RAVEN_E2E_VICTIMS"))
	createNamespace(t, "kills")
	dumpIfFailed(t)
	c := newChurn(t, "kills", nodes)
	victims := slices.DeleteFunc(network.victims(), func(v victim) bool { return !only.MatchString(v.name) })
	if len(victims) == 0 {
		t.Fatalf("RAVEN_E2E_VICTIMS=%s names nothing that can be killed", only)
	}
	for i := range rounds * len(victims) {
		victim := victims[i%len(victims)]
		c.disturb(t, victim, (i+i/len(victims))%len(nodes))
	}
	c.end(t)
	checkPods(t, "kills", nodes)
	t.Logf("%d kills; %d pods were made: %d ran before they were deleted, %d were deleted at any moment",
		rounds*len(victims), c.made.Load(), c.ran.Load(), c.early.Load())
	deleteNamespace(t, "kills")
	gone(t, "kills")
	network.portsLeft(t)
	asBefore(t, nodes, before)
}

// victim is what is killed, on one of the nodes where it is there on each.
type victim struct {
	name        string
	kill, start func(t *testing.T, node int)
}

func (r *ravenNetwork) victims() []victim {
	all := []victim{
		{"raven", func(*testing.T, int) { r.raven.Kill() }, func(t *testing.T, _ int) { r.restart(t) }},
		{
			"raven node", func(t *testing.T, node int) { r.daemons[node].kill(t) },
			func(t *testing.T, node int) { r.daemons[node].start(t) },
		},
	}
	for _, component := range []string{stack.Containerd, stack.Kubelet, stack.OVNController, stack.Vswitchd} {
		all = append(all, victim{
			component, func(t *testing.T, node int) { killed(t, stack.On(component, r.daemons[node].node)) },
			func(t *testing.T, node int) { started(t, stack.On(component, r.daemons[node].node)) },
		})
	}
	return all
}

// churn makes and deletes pods, without an end: some places on each node, each with a pod of its own name.
type churn struct {
	namespace        string
	nodes            []stack.Node
	random           *rand.Rand
	stop             chan struct{}
	work             sync.WaitGroup
	made, ran, early atomic.Int64
	up               map[int]time.Time // when what was killed last ran again, by node
	killed           map[int]string    // what that was

	mu     sync.Mutex        // guards what follows
	newest map[int]time.Time // when the newest pod was made that has run, by node
}

// churnPlaces is how many pods there are at once on a node.
const churnPlaces = 4

func newChurn(t *testing.T, namespace string, nodes []stack.Node) *churn {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	c := &churn{
		namespace: namespace, nodes: nodes, random: rand.New(rand.NewPCG(seed, 0)), stop: make(chan struct{}),
		newest: map[int]time.Time{}, up: map[int]time.Time{}, killed: map[int]string{},
	}
	for node := range nodes {
		for i := range churnPlaces {
			random := rand.New(rand.NewPCG(seed, uint64(1+node*churnPlaces+i)))
			c.work.Go(func() { c.place(t, node, fmt.Sprintf("%s-%d", nodes[node].Name, i), random) })
		}
	}
	t.Cleanup(func() { c.end(t) })
	return c
}

// place has a pod come and go under one name until the churn ends; then one stays. Every other one is deleted at a
// moment that is drawn.
func (c *churn) place(t *testing.T, node int, name string, random *rand.Rand) {
	for {
		if amiss := c.create(t.Context(), name, c.nodes[node].Name); amiss != "" {
			t.Errorf("pod %s cannot be made: %s", name, amiss)
			return
		}
		c.made.Add(1)
		began := time.Now()
		if random.IntN(2) == 0 {
			select {
			case <-time.After(time.Duration(random.IntN(2500)) * time.Millisecond): // when it goes, whatever it does by then
				c.early.Add(1)
			case <-c.stop:
				return
			}
		} else {
			amiss := waitFor(t.Context(), patience, func(ctx context.Context) string {
				return podReadiness(ctx, c.namespace, name)
			})
			if amiss != "" {
				t.Errorf("pod %s does not run: %s", name, amiss)
				return
			}
			if amiss = c.reached(t.Context(), name); amiss != "" {
				t.Errorf("pod %s on %s runs, and does not answer from the control plane's host: %s", name,
					c.nodes[node].Name, amiss)
				return
			}
			c.ran.Add(1)
			c.mu.Lock()
			if began.After(c.newest[node]) {
				c.newest[node] = began
			}
			c.mu.Unlock()
		}
		select {
		case <-c.stop:
			return
		default:
		}
		if amiss := c.remove(t.Context(), name); amiss != "" {
			t.Errorf("pod %s does not go: %s", name, amiss)
			return
		}
	}
}

// reached waits until a pod that runs answers a host that is no node.
func (c *churn) reached(ctx context.Context, name string) string {
	pod, _, err := getPod(ctx, c.namespace, name)
	if err != nil {
		return err.Error()
	}
	address, _, _ := unstructured.NestedString(pod.Object, "status", "podIP")
	return waitFor(ctx, patience, func(ctx context.Context) string {
		return askFrom(ctx, world.stack.Network().Control, "http://"+net.JoinHostPort(address, webPort)+"/hostname", name)
	})
}

// create makes a pod, once its namespace lets pods in.
func (c *churn) create(ctx context.Context, name, node string) string {
	return waitFor(ctx, patience, func(ctx context.Context) string {
		_, err := pods(c.namespace).Create(ctx, newPod(name, webPod(name, node)), metav1.CreateOptions{})
		if err != nil {
			return err.Error()
		}
		return ""
	})
}

// remove deletes a pod and waits until its kubelet has let it go.
func (c *churn) remove(ctx context.Context, name string) string {
	if err := pods(c.namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err.Error()
	}
	return waitFor(ctx, patience, func(ctx context.Context) string {
		_, _, err := getPod(ctx, c.namespace, name)
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprintf("it is still there (%v)", err)
	})
}

// disturb kills something at a moment that is drawn, once the node has brought up a pod that was made after the kill
// before this one, and starts it again. It returns when it runs: the other node is disturbed while this one recovers.
func (c *churn) disturb(t *testing.T, v victim, node int) {
	t.Helper()
	c.recovered(t, node)
	time.Sleep(time.Duration(c.random.IntN(1500)) * time.Millisecond) // whatever pods do by then
	began := time.Now()
	v.kill(t, node)
	time.Sleep(time.Duration(c.random.IntN(1000)) * time.Millisecond) // what it is missed for
	v.start(t, node)
	c.up[node], c.killed[node] = time.Now(), v.name
	t.Logf("%s on %s is up again after %.1f s", v.name, c.nodes[node].Name, time.Since(began).Seconds())
}

// recovered waits until a pod runs on the node that was made after the last kill.
func (c *churn) recovered(t *testing.T, node int) {
	t.Helper()
	await(t, fmt.Sprintf("%s to bring a pod up after a kill of %s", c.nodes[node].Name, c.killed[node]),
		func(context.Context) string {
			if t.Failed() {
				return "" // a place has failed
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if !c.newest[node].After(c.up[node]) {
				return "none does"
			}
			return ""
		})
	if t.Failed() {
		t.FailNow()
	}
}

// end waits until each place has a pod that stays.
func (c *churn) end(t *testing.T) {
	t.Helper()
	select {
	case <-c.stop:
	default:
		close(c.stop)
	}
	c.work.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// webPod is a pod on a node that tells its name by HTTP.
func webPod(name, node string) func(spec, metadata map[string]any) {
	return func(spec, metadata map[string]any) {
		metadata["labels"] = map[string]any{"app": "web", "name": name}
		spec["nodeSelector"] = map[string]any{"kubernetes.io/hostname": node}
		spec["containers"] = []any{map[string]any{
			"name": "web", "image": "registry.k8s.io/e2e-test-images/agnhost:2.63.0", "imagePullPolicy": "Never",
			"args": []any{"netexec", "--http-port=" + webPort, "--udp-port=" + udpPort},
		}}
	}
}

// checkPods waits until all pods of a namespace are ready. Each has the address of its Neutron port inside, no other
// one has it, and it answers there from everywhere, as itself.
func checkPods(t *testing.T, namespace string, nodes []stack.Node) {
	t.Helper()
	list, err := pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) == 0 {
		t.Fatalf("namespace %s has no pods", namespace)
	}
	holder := map[string]string{}
	for i := range list.Items {
		name := list.Items[i].GetName()
		await(t, "pod "+name+" to be ready", func(ctx context.Context) string { return podReadiness(ctx, namespace, name) })
		pod, annotated, err := getPod(t.Context(), namespace, name)
		if err != nil {
			t.Fatal(err)
		}
		told, _, _ := unstructured.NestedString(pod.Object, "status", "podIP")
		if other := holder[told]; other != "" {
			t.Errorf("pods %s and %s both have the address %s", other, name, told)
		}
		holder[told] = name
		ports, err := world.cloud.list(t.Context(), "ports", "device_id="+string(pod.GetUID()))
		if err != nil || len(ports) != 1 {
			t.Fatalf("pod %s has %d ports in Neutron (%v)", name, len(ports), err)
		}
		if given := ports[0].addresses(); len(given) != 1 || given[0] != told || ports[0].str("id") != annotated.str("id") {
			t.Errorf("pod %s has the address %s and port %s; its port is %s with %s", name, told, annotated.str("id"),
				ports[0].str("id"), given)
		}
		inside, err := kubectl(t.Context(), "exec", "-n", namespace, name, "--", "sh", "-c", "ip -4 -o addr show dev eth0")
		if err != nil || strings.Count(inside, " inet ") != 1 || !strings.Contains(inside, " inet "+told+"/") {
			t.Errorf("pod %s has not the address %s inside: %q (%v)", name, told, inside, err)
		}
		spaces := []string{world.stack.Network().Control}
		for _, node := range nodes {
			spaces = append(spaces, node.Namespace)
		}
		for _, space := range spaces {
			fromHost(t, space, "http://"+net.JoinHostPort(told, webPort)+"/hostname", name)
		}
	}
}
