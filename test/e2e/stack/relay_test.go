// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// The API server and the hosts of the cluster are in different network namespaces, and reach each other.
func TestRelayConnectsTwoNetworkNamespaces(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: network namespaces cannot be made")
	}
	space := fmt.Sprintf("rvtest-%d", os.Getpid())
	ip(t, "netns", "add", space)
	t.Cleanup(func() { _ = exec.CommandContext(context.Background(), "ip", "netns", "del", space).Run() })
	ip(t, "-n", space, "link", "set", "lo", "up")
	api := answering(t, "", "the API server")
	host := answering(t, space, "a host")
	free := answering(t, space, "none")
	free.Close() // its port is free
	r := Relay{
		Space: space, Listen: free.Addr().String(), To: api.Addr().String(),
		Egress: filepath.Join(t.TempDir(), "egress.sock"),
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
	var said string
	await(t, "the relay leads to the API server", func() bool {
		connection, err := DialIn(t.Context(), space, r.Listen)
		if err != nil {
			return false
		}
		defer func() { _ = connection.Close() }()
		content, err := io.ReadAll(connection)
		said = string(content)
		return err == nil
	})
	if said != "the API server" {
		t.Errorf("in the namespace %q answers", said)
	}
	for address, want := range map[string]int{
		host.Addr().String(): http.StatusOK, free.Addr().String() + "0": http.StatusBadGateway,
	} {
		connection, err := net.DialTimeout("unix", r.Egress, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = connection.Close() }()
		fmt.Fprintf(connection, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", address, address)
		reader := bufio.NewReader(connection)
		response, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
		if err != nil {
			t.Fatalf("CONNECT %s: %v", address, err)
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != want {
			t.Fatalf("CONNECT %s: %s", address, response.Status)
		}
		if want != http.StatusOK {
			continue
		}
		if content, err := io.ReadAll(reader); err != nil || string(content) != "a host" {
			t.Errorf("from the API server %q answers (%v)", content, err)
		}
	}
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v: %s", args, err, out)
	}
}

// answering is a server that says a text to each that connects, and closes.
func answering(t *testing.T, space, text string) net.Listener {
	t.Helper()
	listen := func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }
	if space != "" {
		listen = func() (net.Listener, error) { return ListenIn(t.Context(), space, "127.0.0.1:0") }
	}
	listener, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(connection, text)
			_ = connection.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	return listener
}
