// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
)

// choosePorts takes ports that are free now. All are held until the last is chosen, so that they differ, and against
// the stacks that come up beside this one until release.
func (b *builder) choosePorts() error {
	b.ports = map[string]int{}
	for _, name := range []string{
		"etcd", "etcd-peer", "apiserver", "controller-manager", "scheduler", "kwok",
		"memcached", "keystone", "neutron", "octavia", "epmd", "rabbitmq", "rabbitmq-dist",
	} {
		listener, held, err := b.choosePort()
		if err != nil {
			return fmt.Errorf("looking for a free port: %w", err)
		}
		defer listener.Close()
		b.ports[name] = listener.Addr().(*net.TCPAddr).Port
		b.holds = append(b.holds, held)
	}
	b.state.Endpoints = Endpoints{
		Kubernetes: "https://127.0.0.1:" + b.Port("apiserver"), Etcd: "http://127.0.0.1:" + b.Port("etcd"),
		Keystone: "http://127.0.0.1:" + b.Port("keystone") + "/v3",
		Neutron:  "http://127.0.0.1:" + b.Port("neutron"), Octavia: "http://127.0.0.1:" + b.Port("octavia"),
	}
	b.state.Network.APIServer = "https://" + controlHost + ":" + b.Port("apiserver")
	return nil
}

// choosePort takes a port that no other stack is about to take.
func (b *builder) choosePort() (net.Listener, io.Closer, error) {
	var errs []error
	for range 100 {
		listener, err := listen()
		if err != nil {
			return nil, nil, err
		}
		held, err := hold(listener.Addr().(*net.TCPAddr).Port)
		if err == nil {
			return listener, held, nil
		}
		errs = append(errs, err, listener.Close())
	}
	return nil, nil, errors.Join(errs...)
}

// hold keeps other stacks from choosing the port in the time until the server that it is for listens. It is a socket
// without a file, so that it ends with its process.
func hold(port int) (io.Closer, error) {
	return (&net.ListenConfig{}).Listen(context.Background(), "unix", "@raven-e2e-port-"+strconv.Itoa(port))
}

// release lets go of the ports: their servers listen by now, or never will.
func (b *builder) release() {
	for _, held := range b.holds {
		_ = held.Close() // it is only a name
	}
	b.holds = nil
}

// lowestPort is where ports are looked for, up to those that the kernel gives to connections.
const lowestPort = 12000

// FreePort is a port of loopback that nobody listens on, and that no connection gets by itself (see listen): a server
// may go away and come back to it.
func FreePort() (int, error) {
	listener, err := listen()
	if err != nil {
		return 0, fmt.Errorf("looking for a free port: %w", err)
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}

// listen takes a port that no connection gets by itself: while a server is away, those who call it could be given its
// port for their own end, and it could not be started again.
func listen() (net.Listener, error) {
	first := 0
	if content, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		_, _ = fmt.Sscan(string(content), &first)
	}
	config := &net.ListenConfig{}
	for range 100 {
		if first <= lowestPort {
			break
		}
		listener, err := config.Listen(context.Background(), "tcp4",
			"127.0.0.1:"+strconv.Itoa(lowestPort+rand.IntN(first-lowestPort)))
		if err == nil {
			return listener, nil
		}
	}
	return config.Listen(context.Background(), "tcp4", "127.0.0.1:0")
}
