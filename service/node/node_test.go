// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers/contract"
	"github.com/kuryr/raven/service/node/cniapi"
	"github.com/kuryr/raven/service/openvswitch"
	"github.com/kuryr/raven/test/sim/kube"
)

// codeOf is the code of a CNI error.
func codeOf(err error) uint {
	var coded *types.Error
	if errors.As(err, &coded) {
		return coded.Code
	}
	return 0
}

// TestAddAndDel: ADD makes a pair of links and a row, and gives the pod what its port has; DEL takes all of it away,
// and finds nothing the second time.
func TestAddAndDel(t *testing.T) {
	r := started(t)
	pod := r.pod("web-0", nil)
	r.attach(pod, 1)
	b := r.box("sandbox-1")
	result := r.add(b, pod)
	if len(result.Interfaces) != 2 || result.Interfaces[1].Sandbox != b.path || result.Interfaces[1].Mac != macOf(1) {
		t.Errorf("interfaces %+v", result.Interfaces)
	}
	text, err := json.Marshal(result)
	r.must(err)
	want := `{"cniVersion":"1.1.0","dns":{"nameservers":["10.9.9.9"]},"interfaces":[{"mtu":1400,"name":"` +
		hostName("sandbox-1", "eth0") + `"},{"mac":"` + macOf(1) + `","mtu":1400,"name":"eth0","sandbox":"` + b.path + `"}],` +
		`"ips":[{"address":"10.1.0.11/16","gateway":"10.1.0.1","interface":1}],` +
		`"routes":[{"dst":"10.7.0.0/16","gw":"10.1.0.2"},{"dst":"0.0.0.0/0","gw":"10.1.0.1"}]}`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("result: %s", diff)
	}
	row := r.rows()[portID(1)]
	if row.Name != hostName("sandbox-1", "eth0") || row.ExternalIDs[openvswitch.AttachedMAC] != macOf(1) ||
		row.ExternalIDs[openvswitch.Sandbox] != "sandbox-1" || row.ExternalIDs[openvswitch.Pod] != "default/web-0" ||
		row.ExternalIDs[openvswitch.PodUID] != pod.UID {
		t.Errorf("row %+v", row)
	}
	r.inside(b, func(h *netlink.Handle, link netlink.Link) {
		if attrs := link.Attrs(); attrs.MTU != 1400 || attrs.HardwareAddr.String() != macOf(1) ||
			attrs.Flags&net.FlagUp == 0 {
			t.Errorf("eth0: %+v", attrs)
		}
		if routes := routesOf(t, h, link); !strings.Contains(routes, "0.0.0.0/0 via 10.1.0.1") ||
			!strings.Contains(routes, "10.7.0.0/16 via 10.1.0.2") {
			t.Errorf("routes: %s", routes)
		}
	})
	if err := r.checkCall(b, pod, result); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	for range 2 {
		r.del(b, pod)
		if rows := r.rows(); len(rows) > 0 {
			t.Errorf("after DEL: %v", rows)
		}
	}
}

// inside looks at a sandbox's eth0.
func (r *rig) inside(b sandboxOfTest, look func(*netlink.Handle, netlink.Link)) {
	r.Helper()
	h, err := netlink.NewHandleAt(b.ns, unix.NETLINK_ROUTE)
	r.must(err)
	defer h.Close()
	link, err := h.LinkByName("eth0")
	r.must(err)
	look(h, link)
}

func routesOf(t *testing.T, h *netlink.Handle, link netlink.Link) string {
	t.Helper()
	list, err := h.RouteList(link, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, one := range list {
		text = append(text, fmt.Sprintf("%s via %s", destinationOf(one), one.Gw))
	}
	return strings.Join(text, "; ")
}

func addressesOf(t *testing.T, h *netlink.Handle, link netlink.Link) string {
	t.Helper()
	list, err := h.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, one := range list {
		if one.IP.IsLinkLocalUnicast() {
			continue
		}
		flag := ""
		if one.Flags&unix.IFA_F_TENTATIVE != 0 {
			flag = " tentative"
		}
		text = append(text, one.IPNet.String()+flag)
	}
	return strings.Join(text, "; ")
}

// checkCall is a CHECK after an ADD.
func (r *rig) checkCall(b sandboxOfTest, o object, result *types100.Result) error {
	r.Helper()
	request := b.request(cniapi.Check, o)
	previous, err := json.Marshal(result)
	r.must(err)
	request.Config = json.RawMessage(`{"cniVersion":"1.1.0","name":"raven","type":"raven-cni","prevResult":` +
		string(previous) + `}`)
	_, err = r.call(request)
	return err
}

// TestDualStack: several addresses of both families, usable at once.
func TestDualStack(t *testing.T) {
	r := started(t)
	pod := r.pod("six", nil)
	r.bind(1, pod.UID)
	annotations := portOf(1, pod.UID)
	annotations[contract.Port] = strings.Replace(annotations[contract.Port], `"fixed_ips":[`,
		`"fixed_ips":[{"subnet_id":"s6","ip_address":"fd00:1::5"},{"subnet_id":"s4","ip_address":"10.1.3.3"},`, 1)
	annotations[contract.Subnets] = `[` + annotations[contract.Subnet] +
		`,{"id":"s6","cidr":"fd00:1::/64","gateway_ip":"fd00:1::1","ip_version":6,"host_routes":[]}]`
	r.annotate(pod, annotations)
	b := r.box("s")
	result := r.add(b, pod)
	if len(result.IPs) != 3 || len(result.Routes) != 3 {
		t.Errorf("result %+v", result)
	}
	r.inside(b, func(h *netlink.Handle, link netlink.Link) {
		addresses, routes := addressesOf(t, h, link), routesOf(t, h, link)
		for _, want := range []string{"fd00:1::5/64", "10.1.3.3/16", "10.1.0.11/16"} {
			if !strings.Contains(addresses, want) {
				t.Errorf("no %s in %s", want, addresses)
			}
		}
		if strings.Contains(addresses, "tentative") {
			t.Errorf("addresses %s", addresses)
		}
		if !strings.Contains(routes, "::/0 via fd00:1::1") {
			t.Errorf("routes %s", routes)
		}
	})
	r.del(b, pod)
}

// TestAddWaits: an ADD that comes before all that it needs waits for each of them.
func TestAddWaits(t *testing.T) {
	r := started(t)
	r.controller.Pause()
	old := r.pod("late", nil)
	r.remove(old)
	pod := r.pod("late", nil)
	b := r.box("s")
	done := make(chan error, 1)
	go func() {
		_, err := r.call(b.request(cniapi.Add, pod))
		done <- err
	}()
	still := func(what string) {
		t.Helper()
		select {
		case err := <-done:
			t.Fatalf("%s: ADD has ended: %v", what, err)
		case <-time.After(50 * time.Millisecond): // it does not end
		}
	}
	still("no annotation")
	r.annotate(pod, portOf(1, "of another pod"))
	still("a copied annotation")
	other := portOf(1, pod.UID)
	other[contract.Port] = strings.Replace(other[contract.Port], "host-1", "host-2", 1)
	r.annotate(pod, other)
	still("another chassis")
	r.annotate(pod, portOf(1, pod.UID))
	still("not in the southbound database")
	r.bind(1, pod.UID)
	r.until("the row", func() bool { return len(r.rows()) == 1 })
	still("not installed")
	r.controller.Resume()
	r.must(<-done)
	r.del(b, pod)
}

// TestAddSaysWhatItWaitsFor: the error of an ADD whose time is over says for what, with Raven's words on the pod.
func TestAddSaysWhatItWaitsFor(t *testing.T) {
	r := started(t, func(c *Config) { c.AddTimeout = 300 * time.Millisecond })
	pod := r.pod("poor", nil)
	for i, said := range []string{"other", "raven"} {
		event := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Event", "metadata": map[string]any{"name": fmt.Sprintf("e%d", i)},
			"involvedObject": map[string]any{
				"kind": "Pod", "name": pod.Name, "namespace": pod.Namespace, "uid": pod.UID, "apiVersion": "v1",
			},
			"reason": "QuotaExceeded", "message": "says " + said, "source": map[string]any{"component": said},
			"lastTimestamp": "2026-01-01T00:00:00Z", "type": "Warning",
		}}
		_, err := r.clients.Dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "events"}).
			Namespace(pod.Namespace).Create(t.Context(), event, metav1.CreateOptions{})
		r.must(err)
	}
	b := r.box("s")
	expect := func(what string, code uint, parts ...string) {
		t.Helper()
		_, err := r.call(b.request(cniapi.Add, pod))
		for _, part := range parts {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: no %q in %v", what, part, err)
			}
		}
		if codeOf(err) != code {
			t.Errorf("%s: code %d, want %d", what, codeOf(err), code)
		}
	}
	expect("no port", 11, contract.Port, "add_timeout", "QuotaExceeded: says raven")
	version := portOf(1, pod.UID)
	version[contract.VersionKey] = "2"
	r.annotate(pod, version)
	seen := func(version string) {
		t.Helper()
		r.until("the annotation", func() bool {
			seen, _ := r.node.objects.pod(pod.Namespace, pod.Name)
			return seen.Annotations[contract.VersionKey] == version
		})
	}
	seen("2")
	expect("another version", codeRefused, contract.VersionKey, "raven-node")
	r.annotate(pod, portOf(1, pod.UID))
	seen("1")
	expect("unknown to OVN", 11, "southbound")
	r.bind(1, pod.UID)
	r.controller.Pause()
	r.until("an ADD that comes as far as ovn-controller in its time", func() bool {
		_, err := r.call(b.request(cniapi.Add, pod))
		return codeOf(err) == 11 && strings.Contains(err.Error(), "ovn-installed")
	})
	if rows := r.rows(); len(rows) > 0 {
		t.Errorf("an ADD that has failed has left %v", rows)
	}
	gone := pod
	gone.UID = "b0f8e1e1-0000-0000-0000-000000000000"
	_, err := r.call(b.request(cniapi.Add, gone))
	if codeOf(err) != 11 || !strings.Contains(err.Error(), gone.UID) {
		t.Errorf("another pod of that name: %v", err)
	}
}

// TestPodThatIsGone: an ADD for a pod that was deleted ends at once, also where another one has its name by now. Until
// then the kubelet would not let it go.
func TestPodThatIsGone(t *testing.T) {
	r := started(t)
	old := r.pod("p", nil)
	waiting := make(chan error, 1)
	b := r.box("s1")
	go func() {
		_, err := r.call(b.request(cniapi.Add, old))
		waiting <- err
	}()
	r.until("the ADD to wait", func() bool {
		r.node.turns.mu.Lock()
		defer r.node.turns.mu.Unlock()
		return len(r.node.turns.held) == 1
	})
	expect := func(err error) {
		t.Helper()
		if codeOf(err) != types.ErrTryAgainLater || !strings.Contains(err.Error(), "is not on node "+nodeName+" any more") {
			t.Errorf("ADD for a pod that is gone: %v", err)
		}
	}
	r.remove(old)
	expect(<-waiting)
	again := r.pod("p", nil)
	r.attach(again, 1)
	_, err := r.call(r.box("s2").request(cniapi.Add, old))
	expect(err)
	b = r.box("s3")
	r.add(b, again)
	r.del(b, again)
}

// TestPodThatGoesUnseen: an ADD ends soon also when the watch shows neither that its pod came nor that it went.
func TestPodThatGoesUnseen(t *testing.T) {
	r := started(t)
	if _, err := r.api.Inject(kube.Fault{Path: `^/api/v1/pods\?.*watch=true`, Hang: true}); err != nil {
		t.Fatal(err)
	}
	r.api.CutWatches("pods", kube.CleanEOF)
	pod := r.pod("p", nil)
	b := r.box("s")
	ended := make(chan error, 1)
	go func() {
		_, err := r.call(b.request(cniapi.Add, pod))
		ended <- err
	}()
	r.until("the API server to be asked for the pod", func() bool {
		return slices.ContainsFunc(r.api.Requests(), func(q kube.Request) bool {
			return q.Verb == "list" && strings.Contains(q.Query, "metadata.name") && q.Status == http.StatusOK
		})
	})
	r.remove(pod)
	if err := <-ended; codeOf(err) != types.ErrTryAgainLater || !strings.Contains(err.Error(), "says the API server") {
		t.Errorf("ADD for a pod that is gone: %v", err)
	}
}

// TestMovedMeanwhile: an ADD that waits for OVN ends at once when its pod has got another port, or is gone: what it
// waits for never comes. The next one plugs in the new port.
func TestMovedMeanwhile(t *testing.T) {
	r := started(t)
	r.controller.Pause()
	pod := r.pod("p", nil)
	r.attach(pod, 1)
	b := r.box("s")
	ended := make(chan error, 1)
	begin := func() {
		go func() {
			_, err := r.call(b.request(cniapi.Add, pod))
			ended <- err
		}()
	}
	begin()
	r.until("the row", func() bool { return r.rows()[portID(1)].Name != "" })
	r.annotate(pod, map[string]string{"x": "y"}) // is not about it
	r.attach(pod, 3)
	if err := <-ended; codeOf(err) != types.ErrTryAgainLater || !strings.Contains(err.Error(), portID(3)+" by now") {
		t.Errorf("with another port: %v", err)
	}
	if rows := r.rows(); len(rows) > 0 {
		t.Errorf("rows %v", rows)
	}
	begin()
	r.until("the row of the new port", func() bool { return r.rows()[portID(3)].Name != "" })
	r.remove(pod)
	if err := <-ended; codeOf(err) != types.ErrTryAgainLater || !strings.Contains(err.Error(), "any more") {
		t.Errorf("when it is gone: %v", err)
	}
	r.controller.Resume()
	again := r.pod("p", nil)
	r.attach(again, 4)
	b = r.box("t")
	r.add(b, again)
	r.del(b, again)
}

// TestPortOfAPool: a port that was taken from a pool a moment ago has no device_id in OVN yet. A pod does not wait for
// it, unless the check is always to be made.
func TestPortOfAPool(t *testing.T) {
	for check, waits := range map[string]bool{checkReachable: false, checkAlways: true} {
		t.Run(check, func(t *testing.T) {
			r := started(t, func(c *Config) { c.SouthboundCheck = check })
			pod := r.pod("quick", nil)
			r.bind(1, "")
			r.annotate(pod, portOf(1, pod.UID))
			b := r.box("s")
			done := make(chan error, 1)
			go func() {
				_, err := r.call(b.request(cniapi.Add, pod))
				done <- err
			}()
			if waits {
				select {
				case err := <-done:
					t.Fatalf("ADD has ended: %v", err)
				case <-time.After(50 * time.Millisecond): // it does not end
				}
				r.must(r.south.Own(t.Context(), portID(1), pod.UID))
			}
			r.must(<-done)
			if rows := r.rows(); len(rows) != 1 {
				t.Errorf("the rows are %v", rows)
			}
			r.del(b, pod)
		})
	}
}

// TestHostileAnnotation: who may patch pods cannot have another one's port.
func TestHostileAnnotation(t *testing.T) {
	r := started(t)
	victim, thief := r.pod("victim", nil), r.pod("thief", nil)
	r.attach(victim, 1)
	r.annotate(thief, portOf(1, thief.UID)) // device_id is made up
	b := r.box("s")
	_, err := r.call(b.request(cniapi.Add, thief))
	if codeOf(err) != codeRefused || !strings.Contains(err.Error(), victim.UID) {
		t.Errorf("the thief: %v", err)
	}
	if rows := r.rows(); len(rows) > 0 {
		t.Errorf("rows %v", rows)
	}
}

// TestOldSandbox: a pod gets a new sandbox while the old one is there. The new one has the port from then on, and the
// DEL of the old one takes nothing from it.
func TestOldSandbox(t *testing.T) {
	r := started(t)
	pod := r.pod("again", nil)
	r.attach(pod, 1)
	old, fresh := r.box("old"), r.box("fresh")
	r.add(old, pod)
	result := r.add(fresh, pod)
	if rows := r.rows(); len(rows) != 1 || rows[portID(1)].ExternalIDs[openvswitch.Sandbox] != "fresh" {
		t.Errorf("rows %v", rows)
	}
	r.annotate(pod, map[string]string{"x": "y"}) // and a look at all changes nothing
	r.node.pass(t.Context())
	r.del(old, pod)
	r.must(r.checkCall(fresh, pod, result))
	r.add(fresh, pod) // the runtime may ask twice
	r.del(fresh, pod)
}

// TestForeignRow: an interface that Raven has not made is never touched, also where it has the port.
func TestForeignRow(t *testing.T) {
	r := started(t)
	pod := r.pod("p", nil)
	r.attach(pod, 1)
	_, err := r.server.Transact(t.Context(), "Open_vSwitch",
		map[string]any{"op": "insert", "table": "Interface", "uuid-name": "i", "row": map[string]any{
			"name": "tap7", "external_ids": []any{"map", []any{[]any{"iface-id", portID(1)}}},
		}},
		map[string]any{"op": "insert", "table": "Port", "uuid-name": "p", "row": map[string]any{
			"name": "tap7", "interfaces": []any{"named-uuid", "i"},
		}},
		map[string]any{"op": "mutate", "table": "Bridge", "where": []any{[]any{"name", "==", "br-int"}}, "mutations": []any{
			[]any{"ports", "insert", []any{"set", []any{[]any{"named-uuid", "p"}}}},
		}})
	r.must(err)
	r.until("the row", func() bool {
		view, _, err := r.node.ovs.View()
		return err == nil && view.Interfaces["tap7"].Name != ""
	})
	b := r.box("s")
	if _, err := r.call(b.request(cniapi.Add, pod)); err == nil || !strings.Contains(err.Error(), "tap7") {
		t.Errorf("ADD: %v", err)
	}
	gc := b.request(cniapi.GC, pod)
	gc.Config = json.RawMessage(`{"cniVersion":"1.1.0","name":"raven","cni.dev/valid-attachments":[]}`)
	_, err = r.call(gc)
	r.must(err)
	view, _, err := r.node.ovs.View()
	r.must(err)
	if view.Interfaces["tap7"].Name == "" {
		t.Error("tap7 is gone")
	}
}

// TestCheck: CHECK says what is not as it was.
func TestCheck(t *testing.T) {
	r := started(t)
	pod := r.pod("p", nil)
	r.attach(pod, 1)
	b := r.box("s")
	result := r.add(b, pod)
	r.must(r.checkCall(b, pod, result))
	if _, err := r.call(b.request(cniapi.Check, pod)); codeOf(err) != types.ErrInvalidNetworkConfig {
		t.Errorf("without prevResult: %v", err)
	}
	r.inside(b, func(h *netlink.Handle, link netlink.Link) {
		list, err := h.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{LinkIndex: link.Attrs().Index},
			netlink.RT_FILTER_OIF)
		r.must(err)
		for _, one := range list {
			if destinationOf(one) == "0.0.0.0/0" {
				r.must(h.RouteDel(&one))
			}
		}
	})
	if err := r.checkCall(b, pod, result); codeOf(err) != codeChanged || !strings.Contains(err.Error(), "0.0.0.0/0") {
		t.Errorf("without the default route: %v", err)
	}
	r.inside(b, func(h *netlink.Handle, link netlink.Link) {
		list, err := h.AddrList(link, netlink.FAMILY_V4)
		r.must(err)
		r.must(h.AddrDel(link, &list[0]))
	})
	if err := r.checkCall(b, pod, result); codeOf(err) != codeChanged || !strings.Contains(err.Error(), "10.1.0.11") {
		t.Errorf("without the address: %v", err)
	}
	r.must(r.node.links.remove(hostName("s", "eth0")))
	if err := r.checkCall(b, pod, result); codeOf(err) != codeChanged {
		t.Errorf("without the link: %v", err)
	}
	r.del(b, pod)
	if err := r.checkCall(b, pod, result); codeOf(err) != codeChanged {
		t.Errorf("after DEL: %v", err)
	}
}

// TestStaticPod: CNI has the kubelet's own UID of a static pod, and its port is that of the mirror pod.
func TestStaticPod(t *testing.T) {
	r := started(t)
	const hash = "4d1b8c7dffe52b2f0b8c2c3c4e8f9a10"
	mirror := r.pod("static", map[string]string{hashAnnotation: hash, mirrorAnnotation: hash})
	r.attach(mirror, 1)
	b := r.box("s")
	asked := mirror
	asked.UID = hash
	r.add(b, asked)
	r.node.pass(t.Context())
	if rows := r.rows(); len(rows) != 1 {
		t.Errorf("rows %v", rows)
	}
	r.remove(mirror) // a mirror pod that was deleted comes again, with another UID, while the static pod runs on
	r.until("the row to go", func() bool { return len(r.rows()) == 0 })
	again := r.pod("static", map[string]string{hashAnnotation: hash, mirrorAnnotation: hash})
	r.attach(again, 2)
	r.until("a row of the new port", func() bool { return r.rows()[portID(2)].Name != "" })
	r.del(b, asked)
}

// TestFalseMirror: who makes a pod and calls it the mirror of another pod's UID gets nothing of that one, and gives it
// nothing.
func TestFalseMirror(t *testing.T) {
	r := started(t)
	victim := r.pod("victim", nil)
	r.attach(victim, 1)
	b := r.box("s")
	result := r.add(b, victim)
	r.stop(r.node)
	for i := range 5 { // the order in which pods are looked at is not known
		thief := r.pod(fmt.Sprintf("thief-%d", i), map[string]string{
			hashAnnotation: victim.UID, mirrorAnnotation: victim.UID,
		})
		r.attach(thief, i+2)
	}
	r.start()
	r.until("all pods to be known", func() bool {
		pods, complete := r.node.objects.all()
		return complete && len(pods) == 6
	})
	if !r.node.pass(t.Context()) {
		t.Error("what is wrong?")
	}
	r.must(r.checkCall(b, victim, result))
	if rows := r.rows(); len(rows) != 1 {
		t.Errorf("rows %v", rows)
	}
	r.remove(victim)
	r.until("the victim's row to go with it", func() bool { return len(r.rows()) == 0 })
	r.del(b, victim)
}
