// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"fmt"
	"os"
	"testing"
)

// While a server is away nobody's connection may get its port.
func TestPortsAreNoneThatConnectionsGet(t *testing.T) {
	var first, last int
	content, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Skip("the range of this machine's connections is not known:", err)
	}
	if _, err := fmt.Sscan(string(content), &first, &last); err != nil {
		t.Fatal(err)
	}
	if first <= lowestPort {
		t.Skipf("connections of this machine get any port from %d on", first)
	}
	b := &builder{Stack: &Stack{}}
	defer b.release()
	if err := b.choosePorts(); err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for name, port := range b.ports {
		if port >= first && port <= last || seen[port] {
			t.Errorf("%s has port %d; of connections are %d to %d", name, port, first, last)
		}
		seen[port] = true
	}
	if port, err := FreePort(); err != nil || port >= first && port <= last {
		t.Errorf("a free port is %d (%v); of connections are %d to %d", port, err, first, last)
	}
}

// Two stacks that come up at once choose their ports before their servers listen.
func TestPortsAreHeldUntilTheServersListen(t *testing.T) {
	b := &builder{Stack: &Stack{}}
	defer b.release()
	if err := b.choosePorts(); err != nil {
		t.Fatal(err)
	}
	for name, port := range b.ports {
		if other, err := hold(port); err == nil {
			_ = other.Close()
			t.Errorf("another stack gets the port of %s", name)
		}
	}
	b.release()
	other, err := hold(b.ports["etcd"])
	if err != nil {
		t.Fatalf("a port that was let go: %v", err)
	}
	_ = other.Close()
}
