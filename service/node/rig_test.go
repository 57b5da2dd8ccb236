// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers/contract"
	"github.com/kuryr/raven/service/health"
	"github.com/kuryr/raven/service/node/cniapi"
	"github.com/kuryr/raven/service/openvswitch"
	"github.com/kuryr/raven/service/watch"
	"github.com/kuryr/raven/test/sim/kube"
	"github.com/kuryr/raven/test/sim/vswitch"
)

const (
	patience = 2 * time.Minute
	nodeName = "node-1"
	// inNetns says that the tests run in a network namespace of their own.
	inNetns = "RAVEN_TEST_IN_NETNS"
)

// TestMain runs the tests in a network namespace of their own where it may, since links are made in the one that the
// process was started in.
func TestMain(m *testing.M) {
	if os.Getenv(inNetns) != "" {
		if err := loopbackUp(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		goleak.VerifyTestMain(m)
		return
	}
	command := exec.Command(os.Args[0], os.Args[1:]...)
	command.Env = append(os.Environ(), inNetns+"=1")
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if uid := os.Getuid(); uid != 0 { // root of a user namespace does
		command.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		command.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		command.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	err := command.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "no network namespace can be made here, so the tests that need one are skipped:", err)
		goleak.VerifyTestMain(m)
	}
}

func loopbackUp() error {
	link, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	return err
}

// needNetns skips a test that needs network namespaces.
func needNetns(t *testing.T) {
	t.Helper()
	if os.Getenv(inNetns) == "" {
		t.Skip("no network namespace can be made here: that takes root, or user namespaces")
	}
	if err := vswitch.Available(); err != nil {
		t.Skip(err)
	}
}

// rig is a node: a real database of Open vSwitch, a simulated API server, and the daemon.
type rig struct {
	*testing.T
	dir        string
	server     *vswitch.Server
	south      *vswitch.Server
	controller *vswitch.Controller
	api        *kube.API
	clients    watch.Clients
	config     Config
	node       *Node
	registry   *health.Registry
}

// newRig starts all but the daemon.
func newRig(t *testing.T, change ...func(*Config)) *rig {
	t.Helper()
	needNetns(t)
	dir, err := os.MkdirTemp("", "rn") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r := &rig{T: t, dir: dir}
	r.server = r.database("ovs", vswitch.Either(vswitch.LocalSchema, "../openvswitch/vswitchdb/vswitch.ovsschema"))
	r.south = r.database("sb", vswitch.Either(vswitch.SouthboundSchema, "../ovn/southbound/testdata/southbound.ovsschema"))
	ids := map[string]string{"system-id": "chassis-1", "hostname": "host-1", "ovn-remote": r.south.Endpoint()}
	r.must(r.server.Chassis(t.Context(), "br-int", "netdev", ids))
	r.control()
	r.api = kube.New(kube.Options{LooseNamespaces: true})
	url, err := r.api.Start("")
	r.must(err)
	t.Cleanup(func() { r.api.Close() })
	r.clients, err = watch.NewClients(&rest.Config{Host: url, QPS: -1})
	r.must(err)
	t.Cleanup(r.clients.Close)
	r.create("v1", "Node", "", nodeName, nil, map[string]any{})
	plugin := filepath.Join(dir, "plugin")
	r.must(os.WriteFile(plugin, []byte("#!/bin/sh\n"), 0o755))
	r.config = Config{
		Name: nodeName, OVS: r.server.Endpoint(), Bridge: "br-int", Interface: "raven-node0",
		Socket: filepath.Join(dir, "cni.sock"), ConfDir: filepath.Join(dir, "net.d"), ConfName: "10-raven.conflist",
		BinDir: filepath.Join(dir, "bin"), Plugin: plugin, AddTimeout: patience, Clients: r.clients,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range change {
		f(&r.config)
	}
	t.Cleanup(r.noLeaks)
	return r
}

// started is a rig whose daemon runs.
func started(t *testing.T, change ...func(*Config)) *rig {
	t.Helper()
	r := newRig(t, change...)
	r.start()
	r.until("the daemon to be ready", func() bool { return r.node.unready() == nil })
	return r
}

func (r *rig) database(name, schema string) *vswitch.Server {
	r.Helper()
	dir := filepath.Join(r.dir, name)
	r.must(os.Mkdir(dir, 0o700))
	s, err := vswitch.Start(r.Context(), dir, schema)
	r.must(err)
	r.Cleanup(s.Kill)
	return s
}

func (r *rig) control() {
	r.Helper()
	var err error
	r.controller, err = r.server.Control(r.Context())
	r.must(err)
	r.Cleanup(r.controller.Close)
}

// start starts the daemon.
func (r *rig) start() {
	r.Helper()
	var err error
	r.registry = health.NewRegistry(clock.RealClock{})
	r.node, err = New(r.config, r.registry)
	r.must(err)
	r.must(r.node.Start(r.Context()))
	n := r.node
	r.Cleanup(func() { r.stop(n) })
}

func (r *rig) stop(n *Node) {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.Stop(ctx, true); err != nil {
		r.Error(err)
	}
	if err := n.Wait(); err != nil {
		r.Error(err)
	}
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) until(what string, f func() bool) {
	r.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if f() {
			return
		}
	}
	r.Fatalf("not within %s: %s", patience, what)
}

// noLeaks fails the test if anything of a sandbox is left.
func (r *rig) noLeaks() {
	l, err := newLinks()
	if err != nil {
		r.Error(err)
		return
	}
	defer l.close()
	links, err := l.ours()
	if err != nil {
		r.Error(err)
	}
	if len(links) > 0 {
		r.Errorf("links are left: %v", slices.Sorted(maps.Keys(links)))
	}
}

// rows are Raven's interfaces in Open vSwitch, by iface-id, as a connection of its own reads them.
func (r *rig) rows() map[string]openvswitch.Interface {
	r.Helper()
	s, err := openvswitch.New(openvswitch.Config{
		Endpoint: r.server.Endpoint(), Bridge: "br-int", Logger: slog.New(slog.DiscardHandler),
	})
	r.must(err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Run(ctx)
	}()
	defer func() { cancel(); <-ended }()
	view, err := s.Until(ctx, func(*openvswitch.View) error { return nil })
	r.must(err)
	found := map[string]openvswitch.Interface{}
	for _, i := range view.Where(func(openvswitch.Interface) bool { return true }) {
		found[i.ExternalIDs[openvswitch.IfaceID]] = i
	}
	return found
}

// create makes an object in the API server.
func (r *rig) create(version, kind, namespace, name string, annotations map[string]string, spec map[string]any) object {
	r.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	}}
	o.SetAnnotations(annotations)
	gvr := podsGVR()
	if kind == "Node" {
		gvr = nodesGVR()
	}
	made, err := r.clients.Dynamic.Resource(gvr).Namespace(namespace).
		Create(context.Background(), o, metav1.CreateOptions{})
	r.must(err)
	return object{namespace, name, string(made.GetUID()), made.GetAnnotations(), false}
}

// pod makes a pod of this node.
func (r *rig) pod(name string, annotations map[string]string) object {
	r.Helper()
	return r.create("v1", "Pod", "default", name, annotations, map[string]any{
		"nodeName": nodeName, "containers": []any{map[string]any{"name": "c", "image": "i"}},
	})
}

// annotate writes annotations as Raven does; an empty value takes one unavailable.
func (r *rig) annotate(o object, annotations map[string]string) {
	r.Helper()
	values := map[string]any{}
	for key, value := range annotations {
		values[key] = value
		if value == "" {
			values[key] = nil
		}
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": values}})
	r.must(err)
	gvr := podsGVR()
	if o.Namespace == "" {
		gvr = nodesGVR()
	}
	_, err = r.clients.Dynamic.Resource(gvr).Namespace(o.Namespace).
		Patch(context.Background(), o.Name, types.MergePatchType, body, metav1.PatchOptions{})
	r.must(err)
}

func (r *rig) remove(o object) {
	r.Helper()
	zero := int64(0)
	r.must(r.clients.Dynamic.Resource(podsGVR()).Namespace(o.Namespace).
		Delete(context.Background(), o.Name, metav1.DeleteOptions{GracePeriodSeconds: &zero}))
}

// bind makes a port known to the southbound database.
func (r *rig) bind(number int, deviceID string) {
	r.Helper()
	r.must(r.south.Binding(r.Context(), portID(number), deviceID, number))
}

// attach gives an object a port, as Raven does, and makes it known to OVN.
func (r *rig) attach(o object, number int) {
	r.Helper()
	r.bind(number, o.UID)
	r.annotate(o, portOf(number, o.UID))
}

func portID(number int) string { return fmt.Sprintf("6d3a1b52-3c5e-4b3a-9a55-%012d", number) }

func macOf(number int) string { return fmt.Sprintf("fa:16:3e:00:%02x:%02x", number/256, number%256) }

// portOf are the annotations of a port with one address of IPv4.
func portOf(number int, deviceID string) map[string]string {
	return map[string]string{
		contract.VersionKey: "1",
		contract.Port: fmt.Sprintf(`{"id":%q,"network_id":"n1","mac_address":%q,"device_id":%q,"binding:host_id":"host-1",`+
			`"fixed_ips":[{"subnet_id":"s4","ip_address":"10.1.%d.%d"}]}`, portID(number), macOf(number), deviceID,
			number/200, number%200+10),
		contract.Subnet: `{"id":"s4","cidr":"10.1.0.0/16","gateway_ip":"10.1.0.1","ip_version":4,` +
			`"dns_nameservers":["10.9.9.9"],"host_routes":[{"destination":"10.7.0.0/16","nexthop":"10.1.0.2"}]}`,
		contract.Network: `{"id":"n1","name":"net","mtu":1400}`,
	}
}

// sandboxOfTest is a network namespace with CNI's parameters.
type sandboxOfTest struct {
	id, path string
	ns       netns.NsHandle
}

// box makes a network namespace, which is known by no name: it ends with the test, whatever becomes of it.
func (r *rig) box(id string) sandboxOfTest {
	r.Helper()
	runtime.LockOSThread()
	own, err := netns.Get()
	r.must(err)
	ns, err := netns.New()
	r.must(err)
	r.must(netns.Set(own))
	runtime.UnlockOSThread()
	r.must(own.Close())
	r.Cleanup(func() { _ = ns.Close() })
	return sandboxOfTest{id: id, path: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(ns)), ns: ns}
}

// request is a request as raven-cni makes it.
func (b sandboxOfTest) request(command string, o object) cniapi.Request {
	return cniapi.Request{
		Command: command, ContainerID: b.id, Netns: b.path, IfName: "eth0",
		Args: fmt.Sprintf("IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=%s;"+
			"K8S_POD_INFRA_CONTAINER_ID=%s", o.Namespace, o.Name, o.UID, b.id),
		Config: json.RawMessage(`{"cniVersion":"1.1.0","name":"raven","type":"raven-cni"}`),
	}
}

// call asks the daemon by its socket.
func (r *rig) call(request cniapi.Request) (*types100.Result, error) {
	return r.callWithin(context.Background(), request)
}

func (r *rig) callWithin(ctx context.Context, request cniapi.Request) (*types100.Result, error) {
	text, err := cniapi.Call(ctx, r.config.Socket, request)
	if err != nil || request.Command != cniapi.Add {
		return nil, err
	}
	result, err := types100.NewResult(text)
	if err != nil {
		return nil, err
	}
	return types100.NewResultFromResult(result)
}

func (r *rig) add(b sandboxOfTest, o object) *types100.Result {
	r.Helper()
	result, err := r.call(b.request(cniapi.Add, o))
	r.must(err)
	return result
}

func (r *rig) del(b sandboxOfTest, o object) {
	r.Helper()
	_, err := r.call(b.request(cniapi.Del, o))
	r.must(err)
}
