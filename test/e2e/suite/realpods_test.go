// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuryr/raven/test/e2e/stack"
	"github.com/kuryr/raven/test/harness"
)

// TestNodes runs a pod on each of two real nodes, plugged by Raven's own plugin and daemon, and sends packets wherever
// pods, nodes and the control plane may want to. What pods have on a node goes with them. Raven may bind ports to hosts
// here; in the other scenarios with real nodes it may not.
func TestNodes(t *testing.T) {
	network := &ravenNetwork{
		conf:    harness.Settings{}.Set("neutron", "cloud", stack.BindingCloud),
		chained: `,{"type":"bandwidth","capabilities":{"bandwidth":true}},{"type":"tuning","sysctl":{"` + tuned + `":"77"}}`,
	}
	nodes := realNodes(t, network)
	before := traces(t, nodes)
	r := newRealPods(t, network, nodes)
	for _, part := range []struct {
		name string
		run  func(*realPods, *testing.T)
	}{
		{"across", (*realPods).across},
		{"full-size", (*realPods).fullSize},
		{"services", (*realPods).services},
		{"hairpin", (*realPods).hairpin},
		{"local-endpoints", (*realPods).localEndpoints},
		{"kubelet", (*realPods).kubelet},
		{"api-server", (*realPods).apiServer},
		{"hosts", (*realPods).hosts},
		{"outside", (*realPods).outside},
		{"chained", (*realPods).chained},
		{"static", (*realPods).static},
		{"underlay", (*realPods).behindGateway},
		{"reboot", (*realPods).reboot},
		{"another-node", (*realPods).anotherNode},
		{"another-chassis-name", (*realPods).anotherChassisName},
		{"another-port", (*realPods).anotherPort}, // last: the pod's status keeps its first address
	} {
		t.Run(part.name, func(t *testing.T) { part.run(r, t) })
	}
	deleteNamespace(t, r.namespace)
	gone(t, r.namespace)
	asBefore(t, nodes, before)
}

// realPods are two pods, each on a node of its own, and a Service of both.
type realPods struct {
	namespace string
	network   *ravenNetwork
	nodes     []stack.Node
	pods      []string
	addresses []string
	mtu       int
	vip       string
}

const (
	webPort  = "8080" // of agnhost's netexec, TCP
	udpPort  = "8081"
	hostPort = "18080"
)

func newRealPods(t *testing.T, network *ravenNetwork, nodes []stack.Node) *realPods {
	t.Helper()
	r := &realPods{namespace: "nodes", network: network, nodes: nodes}
	createNamespace(t, r.namespace)
	dumpIfFailed(t)
	for i := range nodes {
		r.pods = append(r.pods, "web-"+strconv.Itoa(i+1))
		r.create(t, i)
	}
	for i := range r.pods {
		r.addresses = append(r.addresses, r.ready(t, i))
	}
	r.vip = r.service(t, "web", thing{"app": "web"})
	link := r.run(t, 0, "cat /sys/class/net/eth0/mtu")
	var err error
	if r.mtu, err = strconv.Atoi(link); err != nil {
		t.Fatalf("the MTU of a pod is %q", link)
	}
	return r
}

// create makes one of the pods on its node.
func (r *realPods) create(t *testing.T, i int) {
	t.Helper()
	name := r.pods[i]
	createPod(t, r.namespace, name, func(spec, metadata map[string]any) {
		metadata["labels"] = map[string]any{"app": "web", "name": name}
		spec["nodeSelector"] = map[string]any{"kubernetes.io/hostname": r.nodes[i].Name}
		port, _ := strconv.ParseInt(hostPort, 10, 64)
		spec["containers"] = []any{map[string]any{
			"name": "web", "image": "registry.k8s.io/e2e-test-images/agnhost:2.63.0", "imagePullPolicy": "Never",
			"args":  []any{"netexec", "--http-port=" + webPort, "--udp-port=" + udpPort},
			"ports": []any{map[string]any{"containerPort": int64(8080), "hostPort": port, "protocol": "TCP"}},
			"readinessProbe": map[string]any{
				"httpGet": map[string]any{"path": "/healthz", "port": int64(8080)}, "periodSeconds": int64(1),
			},
		}}
	})
}

// ready waits until one of the pods is ready, and returns its address.
func (r *realPods) ready(t *testing.T, i int) string {
	t.Helper()
	name := r.pods[i]
	await(t, "pod "+name+" to be ready", func(ctx context.Context) string { return podReadiness(ctx, r.namespace, name) })
	pod, _, err := getPod(t.Context(), r.namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	address, _, _ := unstructured.NestedString(pod.Object, "status", "podIP")
	return address
}

// podReadiness says what keeps a pod from being ready.
func podReadiness(ctx context.Context, namespace, name string) string {
	pod, _, err := getPod(ctx, namespace, name)
	if err != nil {
		return err.Error()
	}
	conditions, _, _ := unstructured.NestedSlice(pod.Object, "status", "conditions")
	for _, one := range conditions {
		if c, _ := one.(map[string]any); c["type"] == "Ready" && c["status"] == "True" {
			return ""
		}
	}
	said := []string{fmt.Sprint(pod.Object["status"])}
	events, err := world.kube.Resource(resource("events")).Namespace(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.name=" + name,
	})
	if err == nil {
		for _, e := range events.Items {
			message, _, _ := unstructured.NestedString(e.Object, "message")
			said = append(said, message)
		}
	}
	return "it is not: " + strings.Join(said, "\n")
}

// service makes a Service of pods, TCP and UDP, and returns its clusterIP.
func (r *realPods) service(t *testing.T, name string, selector thing, more ...func(spec map[string]any)) string {
	t.Helper()
	u := &unstructured.Unstructured{Object: thing{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"type": "NodePort", "selector": map[string]any(selector), "ports": []any{
			map[string]any{"name": "tcp", "port": int64(80), "targetPort": int64(8080), "protocol": "TCP"},
			map[string]any{"name": "udp", "port": int64(81), "targetPort": int64(8081), "protocol": "UDP"},
		}},
	}}
	for _, change := range more {
		change(u.Object["spec"].(map[string]any)) //nolint:forcetypeassert // see above
	}
	made, err := world.kube.Resource(resource("services")).Namespace(r.namespace).Create(t.Context(), u,
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	vip, _, _ := unstructured.NestedString(made.Object, "spec", "clusterIP")
	return vip
}

// kubectl calls kubectl on the control plane's host.
func kubectl(ctx context.Context, args ...string) (string, error) {
	net := world.stack.Network()
	return sh(ctx, append([]string{
		"nsenter", "--net=/run/netns/" + net.Control, filepath.Join(world.stack.Tools().Kubelet, "kubectl"),
		"--kubeconfig=" + net.Kubeconfig,
	}, args...)...)
}

// run runs a shell's command in a pod, by the API server and the kubelet.
func (r *realPods) run(t *testing.T, pod int, command string) string {
	t.Helper()
	out, err := kubectl(t.Context(), "exec", "-n", r.namespace, r.pods[pod], "--", "sh", "-c", command)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// answers waits until a command in a pod prints a text.
func (r *realPods) answers(t *testing.T, pod int, command, want string) {
	t.Helper()
	await(t, fmt.Sprintf("%q in %s to print %q", command, r.pods[pod], want), func(ctx context.Context) string {
		out, err := kubectl(ctx, "exec", "-n", r.namespace, r.pods[pod], "--", "sh", "-c", command)
		if err != nil {
			return err.Error()
		}
		if !strings.Contains(out, want) {
			return fmt.Sprintf("it prints %q", out)
		}
		return ""
	})
}

// refused runs a command in a pod that must fail, since nobody answers.
func (r *realPods) refused(t *testing.T, pod int, command string) {
	t.Helper()
	out, err := kubectl(t.Context(), "exec", "-n", r.namespace, r.pods[pod], "--", "sh", "-c", command)
	if err == nil {
		t.Errorf("%q in %s prints %q", command, r.pods[pod], out)
	}
}

// curl asks for a page, in a few seconds or not at all.
func curl(address string) string { return "curl -sgk --max-time 5 " + address }

func (r *realPods) across(t *testing.T) {
	for from, to := range []int{1, 0} {
		r.answers(t, from, curl("http://"+net.JoinHostPort(r.addresses[to], webPort)+"/hostname"), r.pods[to])
		r.answers(t, from, "echo hostname | nc -u -w 1 "+r.addresses[to]+" "+udpPort, r.pods[to])
	}
}

// fullSize sends packets of exactly the MTU, which nothing on the way may cut, and many of them.
func (r *realPods) fullSize(t *testing.T) {
	r.answers(t, 0, fmt.Sprintf("ping -c 1 -W 2 -M do -s %d %s", r.mtu-28, r.addresses[1]), " 0% packet loss")
	r.answers(t, 0, "head -c 2000000 /agnhost >/tmp/much && curl -sg --max-time 20 -F file=@/tmp/much http://"+
		net.JoinHostPort(r.addresses[1], webPort)+"/upload", "/uploads/")
}

func (r *realPods) services(t *testing.T) {
	for pod := range r.pods {
		for _, name := range r.pods { // each of the two is among the answers
			r.answers(t, pod, "for i in 1 2 3 4 5 6 7 8 9 10; do "+curl("http://"+r.vip+"/hostname")+"; echo; done", name)
		}
		r.answers(t, pod, curl("http://web."+r.namespace+".svc.cluster.local/hostname"), "web-")
		r.answers(t, pod, "echo hostname | nc -u -w 1 "+r.vip+" 81", "web-")
	}
}

// hairpin reaches a pod from itself by a Service that has no other.
func (r *realPods) hairpin(t *testing.T) {
	vip := r.service(t, "only", thing{"name": r.pods[0]})
	r.answers(t, 0, curl("http://"+vip+"/hostname"), r.pods[0])
	r.answers(t, 1, curl("http://"+vip+"/hostname"), r.pods[0])
}

// localEndpoints reaches Services with internalTrafficPolicy Local: a pod is answered by an endpoint of its own node,
// and by none where there is none.
func (r *realPods) localEndpoints(t *testing.T) {
	local := func(spec map[string]any) { spec["internalTrafficPolicy"] = "Local" }
	each := r.service(t, "local", thing{"app": "web"}, local)
	first := r.service(t, "local-first", thing{"name": r.pods[0]}, local)
	many := "for i in 1 2 3 4 5 6 7 8 9 10; do " + curl("http://"+each+"/hostname") + "; done"
	for pod, name := range r.pods {
		r.answers(t, pod, many, strings.Repeat(name, 10))
		r.answers(t, pod, "echo hostname | nc -u -w 1 "+each+" 81", name)
	}
	r.answers(t, 0, curl("http://"+first+"/hostname"), r.pods[0])
	// OVN has got all of it with what was answered above, on this node too.
	r.refused(t, 1, curl("http://"+first+"/hostname"))
	r.changeService(t, "local-first", `{"spec":{"internalTrafficPolicy":"Cluster"}}`)
	r.answers(t, 1, curl("http://"+first+"/hostname"), r.pods[0])
	r.changeService(t, "local-first", `{"spec":{"internalTrafficPolicy":"Local"}}`)
	await(t, "the other node's endpoint not to answer any more", func(ctx context.Context) string {
		out, err := kubectl(ctx, "exec", "-n", r.namespace, r.pods[1], "--", "sh", "-c", curl("http://"+first+"/hostname"))
		if err == nil {
			return out
		}
		return ""
	})
}

// changeService merges a document into a Service.
func (r *realPods) changeService(t *testing.T, name, document string) {
	t.Helper()
	if _, err := world.kube.Resource(resource("services")).Namespace(r.namespace).Patch(t.Context(), name,
		types.MergePatchType, []byte(document), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// kubelet asks kubelets for what they do with a pod; its probe was shown by the pod's readiness.
func (r *realPods) kubelet(t *testing.T) {
	for i, pod := range r.pods {
		if out := r.run(t, i, "hostname"); out != pod {
			t.Errorf("exec in %s: %q", pod, out)
		}
		out, err := kubectl(t.Context(), "logs", "-n", r.namespace, pod)
		if err != nil || !strings.Contains(out, webPort) {
			t.Errorf("logs of %s: %q (%v)", pod, out, err)
		}
	}
}

// apiServer reaches the API server from pods by its Service and at its host's address, and pods from the API server.
func (r *realPods) apiServer(t *testing.T) {
	for i, pod := range r.pods {
		r.answers(t, i, curl("https://kubernetes.default.svc.cluster.local/healthz"), "ok")
		r.answers(t, i, curl(world.stack.Network().APIServer+"/healthz"), "ok")
		await(t, "the API server to reach "+pod, func(ctx context.Context) string {
			out, err := kubectl(ctx, "get", "--raw",
				"/api/v1/namespaces/"+r.namespace+"/pods/"+pod+":"+webPort+"/proxy/hostname")
			if err != nil || out != pod {
				return fmt.Sprintf("%q (%v)", out, err)
			}
			return ""
		})
	}
}

// hosts reaches pods from hosts, by their own addresses, hostPorts and nodePorts, and hosts from pods.
func (r *realPods) hosts(t *testing.T) {
	service, err := world.kube.Resource(resource("services")).Namespace(r.namespace).Get(t.Context(), "only",
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ports, _, _ := unstructured.NestedSlice(service.Object, "spec", "ports")
	nodePort := fmt.Sprint(ports[0].(map[string]any)["nodePort"])
	for i, node := range r.nodes {
		for j, address := range r.addresses {
			fromHost(t, node.Namespace, "http://"+net.JoinHostPort(address, webPort)+"/hostname", r.pods[j])
		}
		control := world.stack.Network().Control
		fromHost(t, control, "http://"+net.JoinHostPort(r.addresses[i], webPort)+"/hostname", r.pods[i])
		fromHost(t, control, "http://"+net.JoinHostPort(node.Address, hostPort)+"/hostname", r.pods[i])
		fromHost(t, control, "http://"+net.JoinHostPort(node.Address, nodePort)+"/hostname", r.pods[0])
		for pod := range r.pods {
			r.answers(t, pod, curl("http://"+net.JoinHostPort(node.Address, nodePort)+"/hostname"), r.pods[0])
			r.answers(t, pod, curl("https://"+net.JoinHostPort(node.Address, "10250")+"/healthz"), "Unauthorized")
		}
	}
}

// fromHost waits until a host gets an answer.
func fromHost(t *testing.T, space, url, want string) {
	t.Helper()
	await(t, url+" to answer in "+space, func(ctx context.Context) string { return askFrom(ctx, space, url, want) })
}

// askFrom asks for a page from a host, and says what is amiss with the answer.
func askFrom(ctx context.Context, space, url, want string) string {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return stack.DialIn(ctx, space, address)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err.Error()
	}
	response, err := client.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || string(body) != want {
		return fmt.Sprintf("%q (%v)", body, err)
	}
	return ""
}

// outside reaches the gateway of the external network, which is a machine that knows nothing of pods' addresses.
func (r *realPods) outside(t *testing.T) {
	gateway, _, _ := strings.Cut(world.externalCIDR, "0/")
	for pod := range r.pods {
		r.answers(t, pod, "ping -c 1 -W 2 "+gateway+"1", " 0% packet loss")
	}
}

// reboot has the second node lose all that a reset takes from it. Its pods come back
// with what they had, each with one interface, and reach each other again.
func (r *realPods) reboot(t *testing.T) {
	const second = 1
	node := r.nodes[second]
	daemon := r.network.daemons[second]
	daemon.kill(t)
	log, err := os.Create(filepath.Join(artifacts(t), "reboot.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }() // it is for people
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := time.Now()
	err = world.stack.Reboot(ctx, node, stack.Options{Progress: log})
	daemon.start(t) // whatever comes: the test's end expects it
	if err != nil {
		t.Fatalf("rebooting %s: %v", node.Name, err)
	}
	up := time.Since(began)
	// Until the kubelet has looked at it the pod is said to be ready as before.
	await(t, "each pod to have one interface", func(ctx context.Context) string { return leftOn(ctx, node) })
	checkPods(t, r.namespace, r.nodes)
	t.Logf("%s is up %.1f s after its reset, and its pods after %.1f s", node.Name, up.Seconds(),
		time.Since(began).Seconds())
	for i, name := range r.pods {
		pod, _, err := getPod(t.Context(), r.namespace, name)
		if err != nil {
			t.Fatal(err)
		}
		if address, _, _ := unstructured.NestedString(pod.Object, "status", "podIP"); address != r.addresses[i] {
			t.Errorf("pod %s has the address %s after the reboot, and had %s", name, address, r.addresses[i])
		}
	}
	r.across(t)
	r.services(t)
	r.hosts(t)
}

// anotherPort has an administrator delete the port of a pod that runs. Raven makes another one, and the pod is plugged
// into that, with what it has.
func (r *realPods) anotherPort(t *testing.T) {
	name := r.pods[0]
	_, old, err := getPod(t.Context(), r.namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := world.admin.remove(t.Context(), "ports", old.str("id")); err != nil {
		t.Fatal(err)
	}
	address := ""
	await(t, "Raven to make another port of "+name, func(ctx context.Context) string {
		_, port, err := getPod(ctx, r.namespace, name)
		if err != nil {
			return err.Error()
		}
		has := port.addresses()
		if port.str("id") == old.str("id") || len(has) != 1 {
			return fmt.Sprintf("it has port %s with the addresses %v", port.str("id"), has)
		}
		address = has[0]
		return ""
	})
	await(t, name+" to have the address of its new port alone", func(ctx context.Context) string {
		inside, err := kubectl(ctx, "exec", "-n", r.namespace, name, "--", "sh", "-c", "ip -4 -o addr show dev eth0")
		if err != nil || strings.Count(inside, " inet ") != 1 || !strings.Contains(inside, " inet "+address+"/") {
			return fmt.Sprintf("it has %q (%v), not %s", inside, err, address)
		}
		return ""
	})
	url := "http://" + net.JoinHostPort(address, webPort) + "/hostname"
	for _, node := range r.nodes {
		fromHost(t, node.Namespace, url, name)
	}
	r.answers(t, 1, curl(url), name)
	await(t, "each pod to have one interface", func(ctx context.Context) string { return leftOn(ctx, r.nodes[0]) })
}
