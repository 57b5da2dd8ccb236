// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package systemd

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// The files of a container runtime, which the daemon writes.
const (
	cniConfiguration = "/etc/cni/net.d/10-raven.conflist"
	cniPlugin        = "/opt/cni/bin/raven-cni"
)

// TestNodePackage is the life of the Debian package raven-node on one machine: it is installed and waits, a real Open
// vSwitch database comes, the runtime's files are written and the Node is annotated, it is upgraded, and it goes.
func TestNodePackage(t *testing.T) {
	w := newWorld(t)
	nodes := schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	if _, err := w.kube.Create(nodes, map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "node-1"},
	}); err != nil {
		t.Fatal(err)
	}
	m := newMachine(t)
	step := func(name string, f func(m *machine)) {
		t.Helper()
		if !t.Run(name, func(t *testing.T) { f(m.in(t)) }) {
			t.FailNow() // what follows stands on it
		}
	}
	step("installs, and is not started", func(m *machine) { installNode(m, w) })
	step("waits for Open vSwitch", func(m *machine) { waitsForSwitch(m, w) })
	step("sets up CNI", func(m *machine) { setsUpCNI(m, w, nodes) })
	step("plugs a pod in from within its sandbox", func(m *machine) { plugsIn(m, w) })
	step("upgrades while it runs", upgradeNode)
	step("is removed and purged", purgeNode)
}

func installNode(m *machine, w *world) {
	t := m.t
	m.run("rm", "-rf", "/etc/cni", "/opt/cni") // what the machine that this one is a copy of may have
	m.write("/tmp/raven.deb", "644", "root", read(t, debianPackage(t, "raven")))
	m.write("/tmp/raven-node.deb", "644", "root", read(t, debianPackage(t, "raven-node")))
	if out, status := m.status("dpkg", "--install", "/tmp/raven-node.deb"); status == 0 {
		t.Errorf("it does without the package raven:\n%s", out)
	}
	t.Log(m.run("dpkg", "--install", "/tmp/raven.deb", "/tmp/raven-node.deb"))
	if state := m.ofNode("ActiveState"); state != "inactive" {
		t.Errorf("installed, it is %s", state)
	}
	if got := m.run("stat", "-c", "%U %a", "/etc/kuryr/raven-node.conf"); got != "root 640" {
		t.Errorf("raven-node.conf is %s", got)
	}
	m.write("/etc/kuryr/kubelet.conf", "600", "root", string(w.kube.Kubeconfig()))
	conf := m.run("cat", "/etc/kuryr/raven-node.conf")
	for from, to := range map[string]string{
		"kubeconfig = /etc/kubernetes/kubelet.conf": "kubeconfig = /etc/kuryr/kubelet.conf",
		"# node_name = node-1":                      "node_name = node-1",
		"port = 8083":                               fmt.Sprintf("port = %d", w.port),
		"port = 9655":                               "port = 0",
	} {
		if !strings.Contains(conf, from) {
			t.Fatalf("raven-node.conf has no %q:\n%s", from, conf)
		}
		conf = strings.Replace(conf, from, to, 1)
	}
	m.write("/etc/kuryr/raven-node.conf", "640", "root", conf)
}

// ofNode is what systemd says of raven-node.service.
func (m *machine) ofNode(property string) string {
	m.t.Helper()
	return m.run("systemctl", "show", "raven-node", "--value", "--property="+property)
}

func (m *machine) nodeJournal() string {
	text, _ := m.try("journalctl", "--no-pager", "--lines=60", "--unit=raven-node")
	return text
}

func waitsForSwitch(m *machine, w *world) {
	t := m.t
	m.run("systemctl", "enable", "--now", "raven-node")
	if state := m.ofNode("ActiveState"); state != "active" {
		t.Fatalf("it is %s:\n%s", state, m.nodeJournal())
	}
	m.eventually("it says what it waits for", func() error {
		out, _ := m.status("curl", "--silent", fmt.Sprintf("http://127.0.0.1:%d/readyz", w.port))
		if !strings.Contains(out, "openvswitch") || !strings.Contains(out, "db.sock") {
			return fmt.Errorf("/readyz says %q; %s", out, m.nodeJournal())
		}
		return nil
	})
	if out, status := m.status("raven", "node", "check", "--config-file", "/etc/kuryr/raven-node.conf"); status != 1 ||
		!strings.Contains(out, "lacks") {
		t.Errorf("raven node check has status %d:\n%s", status, out)
	}
	for _, path := range []string{cniConfiguration, cniPlugin} {
		if out, status := m.status("stat", path); status == 0 {
			t.Errorf("it is not ready, and there is %s", out)
		}
	}
	if got := m.run("stat", "-c", "%U %a", "/run/raven-node"); got != "root 700" {
		t.Errorf("the folder of its socket is %s", got)
	}
}

func setsUpCNI(m *machine, w *world, nodes schema.GroupVersionResource) {
	t := m.t
	m.run("mkdir", "-p", "/run/openvswitch")
	m.run("ovsdb-tool", "create", "/run/openvswitch/conf.db", "/usr/share/openvswitch/vswitch.ovsschema")
	m.run("ovsdb-server", "--detach", "--pidfile=/run/openvswitch/ovsdb-server.pid",
		"--remote=punix:/run/openvswitch/db.sock", "/run/openvswitch/conf.db")
	vsctl := func(args ...string) {
		m.run(append([]string{"ovs-vsctl", "--no-wait", "--db=unix:/run/openvswitch/db.sock"}, args...)...)
	}
	vsctl("init")
	vsctl("add-br", "br-int")
	vsctl("set", "Open_vSwitch", ".", "external_ids:system-id=chassis-1", "external_ids:hostname=compute-7")
	m.eventually("the runtime's files are there", func() error {
		for _, path := range []string{cniPlugin, cniConfiguration} {
			if _, status := m.status("test", "-s", path); status != 0 {
				return fmt.Errorf("there is no %s: %s", path, m.nodeJournal())
			}
		}
		return nil
	})
	if m.run("sha256sum", cniPlugin)[:64] != m.run("sha256sum", "/usr/libexec/raven/raven-cni")[:64] {
		t.Error("the plugin is not the package's")
	}
	if out := m.run("sh", "-c", "CNI_COMMAND=VERSION "+cniPlugin+" </dev/null"); !strings.Contains(out, "1.1.0") {
		t.Errorf("the plugin answers %q", out)
	}
	m.eventually("the Node names its chassis", func() error {
		node, err := w.kube.Get(nodes, "", "node-1")
		if err != nil {
			return err
		}
		metadata, _ := node["metadata"].(map[string]any)
		annotations, _ := metadata["annotations"].(map[string]any)
		if annotations["node.kuryr.org/chassis-hostname"] != "compute-7" {
			return fmt.Errorf("it has %v", annotations)
		}
		return nil
	})
}

// annotatedPod makes a pod of the node as Raven leaves it, and returns its UID.
func annotatedPod(t *testing.T, w *world, port string) string {
	t.Helper()
	type object = map[string]any
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	w.create(t, "shop")
	made, err := w.kube.Create(pods, object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"namespace": "shop", "name": "web"},
		"spec": object{"nodeName": "node-1", "containers": []any{object{"name": "c", "image": "i"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	uid := made["metadata"].(object)["uid"].(string)
	const subnet = "8f0c2f5e-6c0e-4c0b-9a55-3f0d6c1d2e3f"
	annotations := object{"kuryr.org/contract-version": "1"}
	for key, document := range map[string]object{
		"kuryr.org/neutron-port": {
			"id": port, "mac_address": "02:00:00:00:00:01", "device_id": uid, "binding:host_id": "compute-7",
			"fixed_ips": []any{object{"subnet_id": subnet, "ip_address": "192.168.5.9"}},
		},
		"kuryr.org/neutron-subnet": {
			"id": subnet, "cidr": "192.168.5.0/24", "gateway_ip": "192.168.5.1", "host_routes": []any{}, "ip_version": 4,
			"dns_nameservers": []any{},
		},
		"kuryr.org/neutron-network": {"id": "5a0e3b1c-0d2f-4e6a-8b9c-7d1e2f3a4b5c", "mtu": 1400},
	} {
		text, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		annotations[key] = string(text)
	}
	patch, err := json.Marshal(object{"metadata": object{"annotations": annotations}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.kube.Patch(pods, "shop", "web", types.MergePatchType, patch); err != nil {
		t.Fatal(err)
	}
	return uid
}

// plugsIn is an ADD and a DEL of a pod: the unit's sandbox lets the daemon make links and enter network namespaces that
// came after it. The test plays ovn-controller.
func plugsIn(m *machine, w *world) {
	t := m.t
	const port = "3c9a1d7e-52b4-4f0e-b6c8-9e1f0a2d3c4b"
	uid := annotatedPod(t, w, port)
	m.run("ip", "netns", "add", "raven-e2e-web")
	defer m.run("ip", "netns", "delete", "raven-e2e-web")
	call := func(command string) string {
		return fmt.Sprintf(`echo '{"cniVersion":"1.0.0","name":"raven","type":"raven-cni"}' | env CNI_COMMAND=%s `+
			`CNI_CONTAINERID=sandbox-1 CNI_NETNS=/run/netns/raven-e2e-web CNI_IFNAME=eth0 CNI_PATH=/opt/cni/bin `+
			`CNI_ARGS='IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_UID=%s' %s`,
			command, uid, cniPlugin)
	}
	const database = "--db=unix:/run/openvswitch/db.sock"
	m.write("/tmp/add.sh", "755", "root", "#!/bin/sh\n"+call("ADD")+" >/tmp/add.out 2>&1\necho $? >/tmp/add.status\n")
	m.run("systemd-run", "--collect", "--unit=add", "/tmp/add.sh")
	m.eventually("the pod's interface is in Open vSwitch", func() error {
		row, _ := m.status("ovs-vsctl", database, "--bare", "--columns=_uuid", "find", "Interface",
			"external_ids:iface-id="+port)
		if row == "" {
			out, _ := m.status("cat", "/tmp/add.out")
			return fmt.Errorf("it is not: %s; %s", out, m.nodeJournal())
		}
		_, _ = m.status("ovs-vsctl", "--no-wait", database, "set", "Interface", row, "external_ids:ovn-installed=true")
		return nil
	})
	m.eventually("ADD has ended", func() error {
		_, status := m.status("test", "-s", "/tmp/add.status")
		if status != 0 {
			return errors.New(m.nodeJournal())
		}
		return nil
	})
	if status, out := m.run("cat", "/tmp/add.status"), m.run("cat", "/tmp/add.out"); status != "0" ||
		!strings.Contains(out, "192.168.5.9/24") {
		t.Fatalf("ADD has status %s:\n%s", status, out)
	}
	inside := m.run("ip", "-netns", "raven-e2e-web", "address", "show", "dev", "eth0")
	for _, want := range []string{"mtu 1400", "02:00:00:00:00:01", "192.168.5.9/24"} {
		if !strings.Contains(inside, want) {
			t.Errorf("no %s in the pod:\n%s", want, inside)
		}
	}
	m.run("sh", "-c", call("DEL"))
	if row := m.run("ovs-vsctl", database, "--bare", "--columns=name", "find", "Interface",
		"external_ids:iface-id="+port); row != "" {
		t.Errorf("after DEL Open vSwitch has %s", row)
	}
	if out, status := m.status("ip", "-netns", "raven-e2e-web", "link", "show", "dev", "eth0"); status == 0 {
		t.Errorf("after DEL the pod has %s", out)
	}
}

func upgradeNode(m *machine) {
	before := m.ofNode("MainPID")
	m.t.Log(m.run("dpkg", "--install", "/tmp/raven-node.deb"))
	m.eventually("another process runs", func() error {
		if now := m.ofNode("MainPID"); now == before || now == "0" || m.ofNode("SubState") != "running" {
			return errors.New("the process is " + now)
		}
		return nil
	})
	if conf := m.run("cat", "/etc/kuryr/raven-node.conf"); !strings.Contains(conf, "node_name = node-1") {
		m.t.Error("the upgrade has changed raven-node.conf")
	}
}

func purgeNode(m *machine) {
	t := m.t
	t.Log(m.run("dpkg", "--remove", "raven-node"))
	if out, status := m.status("stat", cniConfiguration); status == 0 {
		t.Errorf("nothing plugs pods any more, and the runtime still has %s", out)
	}
	if out, status := m.status("pgrep", "--list-full", "--exact", "raven"); status == 0 {
		t.Errorf("left are:\n%s", out)
	}
	t.Log(m.run("dpkg", "--purge", "raven-node", "raven"))
	m.run("sh", "-c", "kill $(cat /run/openvswitch/ovsdb-server.pid)")
	m.run("rm", "-r", "/etc/kuryr") // what this test has put there
	m.gone()
	if out, status := m.status("stat", cniPlugin); status == 0 {
		t.Errorf("left is %s", out)
	}
}
