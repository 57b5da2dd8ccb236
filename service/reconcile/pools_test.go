// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/contract"
	"github.com/kuryr/raven/drivers/namespace"
	"github.com/kuryr/raven/drivers/networkpolicy"
	"github.com/kuryr/raven/drivers/pod"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// readyPort is the name of a port that nobody has taken.
const readyPort = "available-port"

// pools switches pools on, of at least n ports.
func pools(n int, change func(*config)) setup {
	s := setup{
		drivers: map[string]drivers.Driver{"namespace": namespace.New(), "pod": pod.New()},
		values: map[string]map[string]any{
			"vif_pool": {"vif_pool_driver": "neutron", "ports_pool_min": int64(n), "ports_pool_update_frequency": int64(1)},
		},
		config: change,
	}
	able(s.drivers)
	return s
}

// able tells the drivers that the core can keep pools.
func able(list map[string]drivers.Driver, more ...string) {
	for _, d := range list {
		if aware, ok := d.(drivers.CoreAware); ok {
			aware.Core(append(more, drivers.KindCapability(drivers.KindPortPool)))
		}
	}
}

// readyPorts counts the ports of the namespace shop that nobody has taken.
func (w *world) readyPorts() (n int) {
	for _, port := range w.inShop() {
		if port["name"] == readyPort {
			n++
		}
	}
	return n
}

// inShop lists the ports for pods of the namespace shop.
func (w *world) inShop() (list []map[string]any) {
	networks := map[any]bool{}
	for _, network := range w.named("network", "shop") {
		networks[network["id"]] = true
	}
	for _, port := range w.cloud.Ports() {
		if networks[port["network_id"]] && port["device_owner"] == contract.DeviceOwner {
			list = append(list, port)
		}
	}
	return list
}

// awaitReady waits until Raven knows of so many ready ports in the namespace shop, or of more that it was asked for.
func (r *raven) awaitReady(n int) {
	r.w.t.Helper()
	r.w.eventually(fmt.Sprint(n, " ports are ready"), func() (bool, string) {
		got, known := r.w.readyPorts(), measured(r.w.t, r, "raven_port_pool_ready")
		return got >= n && int(known) == len(r.w.named("port", readyPort)), fmt.Sprintf("%d are, %v are known", got, known)
	})
}

// portOf returns the id in a pod's annotation.
func (w *world) portOf(name string) string {
	w.t.Helper()
	id, _ := w.annotation(pods(), "shop", name, contract.Port)["id"].(string)
	return id
}

func (w *world) awaitPort(name string) (id string) {
	w.t.Helper()
	w.eventually(name+" has a port", func() (bool, string) {
		id = w.portOf(name)
		return id != "", "it has none"
	})
	return id
}

// awaitWritten waits until Neutron has all that is to be written of a pod's port.
func (w *world) awaitWritten(name, id string) {
	w.t.Helper()
	w.eventually(name+"'s port is written as its own", func() (bool, string) {
		var found map[string]any
		for _, port := range w.cloud.Ports() {
			if port["id"] == id {
				found = port
			}
		}
		tagged := strings.Contains(fmt.Sprint(found["tags"]), "raven:owner=pod:"+fmt.Sprint(found["device_id"]))
		return found["name"] == name && tagged, fmt.Sprint(found)
	})
}

// noWrites has Neutron refuse every change of ports.
func (w *world) noWrites() {
	w.t.Helper()
	rule := simcloud.Rule{
		Method: "write", Path: "/ports", Action: simcloud.ActionStatus, Status: http.StatusInternalServerError,
	}
	if _, err := w.cloud.AddFault(rule); err != nil {
		w.t.Fatal(err)
	}
}

// A pod's port is there though Neutron takes no change: all that is written of it follows when it does.
func TestAPodTakesAReadyPort(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	r := w.start(pools(3, nil))
	w.createNamespace("shop")
	r.awaitReady(3)
	w.noWrites()
	taken := map[string]string{}
	for i := range 3 {
		name := fmt.Sprint("web-", i)
		w.createPod("shop", name)
		id := w.awaitPort(name)
		if other := taken[id]; other != "" {
			t.Errorf("%s and %s have the same port", name, other)
		}
		taken[id] = name
	}
	patch := []byte(`{"metadata":{"labels":{"changed":"yes"}},"spec":{"nodeName":"node-2"}}`)
	if _, err := w.kube.Patch(pods(), "shop", "web-2", types.MergePatchType, patch); err != nil {
		t.Fatal(err)
	}
	w.eventually("the port of a pod that was scheduled says where", func() (bool, string) {
		host := w.annotation(pods(), "shop", "web-2", contract.Port)["binding:host_id"]
		return host == "node-2", fmt.Sprint(host)
	})
	if got := w.readyPorts(); got != 3 {
		t.Errorf("%d ports are still called ready though nothing could be written, not 3", got)
	}
	w.cloud.ClearFaults()
	for id, name := range taken {
		w.awaitWritten(name, id)
	}
	r.awaitReady(3)
	r.settled(5 + 3)
	if n := measured(t, r, "raven_drifted_resources_total"); n != 0 {
		t.Errorf("%d resources count as drifted", n)
	}
	w.delete(pods(), "shop", "web-0")
	w.eventually("the port goes with its pod", func() (bool, string) {
		for _, port := range w.cloud.Ports() {
			if taken[fmt.Sprint(port["id"])] == "web-0" {
				return false, "it is there"
			}
		}
		return true, ""
	})
	w.delete(pods(), "shop", "web-1")
	w.delete(pods(), "shop", "web-2")
	w.delete(namespaces(), "", "shop")
	w.eventually("nothing is left", func() (bool, string) {
		return len(w.named("network", "shop")) == 0, fmt.Sprint(len(w.inShop()), " ports")
	})
}

// Raven ends after the annotations and before anything was written: the next one gives each pod the port that its
// annotation names, and nobody else.
func TestTakenPortsOutliveACrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	quick := func(c *config) { c.Grace, c.AmbiguousWait = time.Millisecond, 300*time.Millisecond }
	r := w.start(pools(4, quick))
	w.createNamespace("shop")
	r.awaitReady(4)
	w.noWrites()
	had := map[string]string{}
	for i := range 3 {
		name := fmt.Sprint("web-", i)
		w.createPod("shop", name)
		had[name] = w.awaitPort(name)
	}
	r.stop()
	w.createPod("shop", "late")
	// An annotation that was copied proves nothing: it has another pod's UID.
	copied := podObject("shop", "thief")
	thief := w.annotation(pods(), "shop", "web-0", contract.Port)
	text, err := json.Marshal(thief)
	if err != nil {
		t.Fatal(err)
	}
	copied["metadata"].(map[string]any)["annotations"] = map[string]any{contract.Port: string(text)}
	w.create(pods(), copied)
	w.cloud.ClearFaults()
	r = w.start(pools(4, quick))
	r.settled(5 + 5)
	owners := map[string]string{}
	for _, name := range []string{"web-0", "web-1", "web-2", "late", "thief"} {
		w.eventually(name+" has a port of its own", func() (bool, string) {
			id := w.portOf(name)
			if owner, taken := owners[id]; taken && owner != name {
				return false, name + " has the port of " + owner
			}
			owners[id] = name
			return id != "" && (had[name] == "" || had[name] == id), fmt.Sprintf("%s, had %s", id, had[name])
		})
		w.awaitWritten(name, w.portOf(name))
	}
	r.awaitReady(4)
	if got, ready := len(w.inShop()), w.readyPorts(); got != 5+ready {
		t.Errorf("there are %d ports, %d of them ready, for 5 pods", got, ready)
	}
}

// Without pools in the configuration ready ports go, and not before it is known that nobody has them.
func TestPoolsAreSwitchedOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	r := w.start(pools(3, nil))
	w.createNamespace("shop")
	r.awaitReady(3)
	r.stop()
	off := setup{config: func(c *config) { c.AmbiguousWait = 300 * time.Millisecond }}
	w.start(off).settled(5)
	w.eventually("no ready port is left", func() (bool, string) { return w.readyPorts() == 0, fmt.Sprint(w.readyPorts()) })
}

// A pool gives way to a pod that lacks quota, and is not filled while pods wait.
func TestPoolsGiveWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	w.start(pools(5, nil))
	w.createNamespace("shop")
	all := func() int { return len(w.named("port", readyPort)) }
	w.eventually("all pools are full", func() (bool, string) { return all() == 3*5, fmt.Sprint(all()) })
	w.cloud.SetQuota(w.cloud.ProjectID(simcloud.ProjectKuryr), "port", w.cloud.Count("port"))
	other := ""
	for _, group := range w.cloud.SecurityGroups() {
		if group["name"] == "default" {
			other = fmt.Sprint(group["id"])
		}
	}
	labelled := podObject("shop", "other-groups")
	labelled["metadata"].(map[string]any)["labels"] = map[string]any{pod.SecurityGroupLabel: other}
	w.create(pods(), labelled)
	w.awaitPort("other-groups")
	if got := all(); got != 3*5-1 {
		t.Errorf("%d ports are ready, not 14", got)
	}
}

// A pod that a policy isolates has a ready port only once it is closed.
func TestIsolatedPodsTakeClosedPorts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	s := pools(2, nil)
	s.drivers["networkpolicy"] = networkpolicy.New()
	able(s.drivers, drivers.DriverCapability("networkpolicy"))
	r := w.start(s)
	w.createNamespace("shop")
	w.create(networkPolicies(), policyObject("closed", map[string]any{"podSelector": everyPod()}))
	w.eventually("the policy has its group", func() (bool, string) {
		for _, group := range w.cloud.SecurityGroups() {
			if group["name"] == "shop-closed" {
				return true, ""
			}
		}
		return false, "it has none"
	})
	r.awaitReady(2)
	w.createPod("shop", "web")
	id := w.awaitPort("web")
	if got := w.groupsOf("web"); got != "shop-closed shop-members shop-out" {
		t.Errorf("port %s is announced in the groups %s", id, got)
	}
}

// A ready port has what a namespace's ports have, whatever its network looks like. A pod on its host's network, and one
// that has completed, take none.
func TestPoolsOfOtherNetworks(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		values    map[string]any
		addresses int
	}{
		"dedicated":  {map[string]any{"topology": "dedicated"}, 1},
		"dual stack": {map[string]any{"ip_families": "dual"}, 2},
		"IPv6":       {map[string]any{"ip_families": "ipv6"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, simkube.Options{}, simcloud.Options{})
			s := pools(2, nil)
			s.values["namespace_subnet"] = tc.values
			r := w.start(s)
			w.createNamespace("shop")
			r.awaitReady(2)
			w.noWrites()
			onHost, completed := podObject("shop", "on-host"), podObject("shop", "completed")
			onHost["spec"].(map[string]any)["hostNetwork"] = true
			completed["status"].(map[string]any)["phase"] = "Succeeded"
			w.create(pods(), onHost)
			w.create(pods(), completed)
			w.createPod("shop", "web")
			id := w.awaitPort("web")
			addresses, _ := w.annotation(pods(), "shop", "web", contract.Port)["fixed_ips"].([]any)
			if len(addresses) != tc.addresses {
				t.Errorf("port %s has the addresses %v", id, addresses)
			}
			w.cloud.ClearFaults()
			w.awaitWritten("web", id)
			for _, name := range []string{"on-host", "completed"} {
				if got := w.portOf(name); got != "" {
					t.Errorf("%s has port %s", name, got)
				}
			}
		})
	}
}
