// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/kuryr/raven/drivers/contract"
	"github.com/kuryr/raven/test/sim/vswitch"
)

// TestPackets: with a real ovs-vswitchd, whose bridge forwards like a plain switch, pods and the node reach each other
// with large messages over TCP, so that checksums and MTU are right. After the switch was killed the node's own
// interface comes back.
func TestPackets(t *testing.T) {
	needNetns(t)
	if err := vswitch.VswitchdAvailable(); err != nil {
		t.Skip(err)
	}
	if users, err := os.ReadFile("/proc/self/uid_map"); err != nil || !strings.Contains(string(users), "4294967295") {
		t.Skip("ovs-vswitchd takes the machine's root, not that of a user namespace")
	}
	r := newRig(t, func(c *Config) { c.SouthboundCheck = checkNever })
	_, err := r.server.Transact(t.Context(), "Open_vSwitch", map[string]any{
		"op": "update", "table": "Bridge", "where": []any{[]any{"name", "==", "br-int"}},
		"row": map[string]any{"fail_mode": "standalone"},
	})
	r.must(err)
	v, err := r.server.Vswitchd(t.Context())
	r.must(err)
	t.Cleanup(func() {
		v.Kill()
		for _, name := range []string{"raven-node0", "br-int", "ovs-netdev"} { // they outlive a switch that was killed
			link, err := netlink.LinkByName(name)
			if err == nil {
				err = netlink.LinkDel(link)
			}
			if err != nil && !isGone(err) {
				t.Errorf("removing %s: %v", name, err)
			}
		}
	})
	r.start()
	self := func() object { o, _ := r.node.objects.self(); return o }
	r.until("the Node", func() bool { return self().UID != "" })
	annotations := portOf(9, self().UID)
	annotations[contract.PodCIDRs] = `["10.2.0.0/16"]`
	r.annotate(object{Name: nodeName}, annotations)
	var boxes []sandboxOfTest
	for i := range 2 {
		pod := r.pod(fmt.Sprintf("p%d", i), nil)
		r.attach(pod, i+1)
		boxes = append(boxes, r.box(pod.Name))
		r.add(boxes[i], pod)
		defer r.del(boxes[i], pod)
	}
	own, err := netns.Get()
	r.must(err)
	defer closeNetns(own)
	r.must(exchange(t.Context(), boxes[0].ns, boxes[1].ns, "10.1.0.12"))
	ownReady := func() bool { return hasAddress("raven-node0", "10.1.0.19/16") }
	r.until("the node's own interface", ownReady)
	r.must(exchange(t.Context(), own, boxes[0].ns, "10.1.0.11"))
	v.Kill()
	link, err := netlink.LinkByName("raven-node0") // it outlives a switch that was killed, and not one that was stopped
	r.must(err)
	r.must(netlink.LinkDel(link))
	v, err = r.server.Vswitchd(t.Context())
	r.must(err)
	r.until("the node's own interface to come back", ownReady)
	r.must(exchange(t.Context(), own, boxes[1].ns, "10.1.0.12"))
}

func hasAddress(name, address string) bool {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return false
	}
	defer h.Close()
	link, err := h.LinkByName(name)
	if err != nil || link.Attrs().Flags&net.FlagUp == 0 {
		return false
	}
	list, err := h.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return false
	}
	for _, one := range list {
		if one.IPNet.String() == address {
			return true
		}
	}
	return false
}

// exchange sends a megabyte from one network namespace to another, and back.
func exchange(ctx context.Context, from, to netns.NsHandle, address string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var listener net.Listener
	if err := inside(to, func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, "7"))
		return err
	}); err != nil {
		return err
	}
	defer listener.Close()
	echoed := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			_, err = io.Copy(conn, conn)
			_ = conn.Close()
		}
		echoed <- err
	}()
	var conn net.Conn
	if err := inside(from, func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", listener.Addr().String())
		return err
	}); err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	sent := []byte(strings.Repeat("0123456789abcdef", 1<<16))
	writing := make(chan error, 1)
	go func() {
		_, err := conn.Write(sent)
		writing <- err
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	got, err := io.ReadAll(conn)
	switch {
	case err != nil:
		return err
	case !bytes.Equal(got, sent):
		return fmt.Errorf("%d bytes came back of %d", len(got), len(sent))
	}
	if err := <-writing; err != nil {
		return err
	}
	return <-echoed
}
