// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// Relay connects the API server, which listens on the machine's loopback, with a network namespace: that of the control
// plane's host.
type Relay struct {
	Space  string // the network namespace
	Listen string // an address in it that leads to the API server
	To     string // the API server's own address
	Egress string // the path of the Unix socket by which the API server connects into the namespace (HTTP CONNECT)
}

// Serve relays until ctx ends, and returns when no connection is left.
func (r Relay) Serve(ctx context.Context) error {
	inward, err := ListenIn(ctx, r.Space, r.Listen)
	if err != nil {
		return err
	}
	defer inward.Close()
	if err := os.Remove(r.Egress); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	outward, err := (&net.ListenConfig{}).Listen(ctx, "unix", r.Egress)
	if err != nil {
		return err
	}
	var work sync.WaitGroup
	defer work.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			r.connect(ctx, &work, w, request)
		}),
	}
	defer func() { _ = server.Close() }() // with its listener
	ended := make(chan error, 2)
	work.Go(func() { ended <- server.Serve(outward) })
	work.Go(func() { ended <- r.accept(ctx, &work, inward) })
	select {
	case <-ctx.Done():
		err = nil
	case err = <-ended:
	}
	return errors.Join(err, inward.Close())
}

// accept leads what connects in the namespace to the API server.
func (r Relay) accept(ctx context.Context, work *sync.WaitGroup, listener net.Listener) error {
	for {
		client, err := listener.Accept()
		if err != nil {
			return err
		}
		work.Go(func() {
			server, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.To)
			if err != nil {
				_ = client.Close() // the client sees that the API server is away
				return
			}
			join(ctx, client, server)
		})
	}
}

// connect answers the API server that wants to connect into the namespace.
func (r Relay) connect(ctx context.Context, work *sync.WaitGroup, w http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodConnect {
		http.Error(w, "only CONNECT is served", http.StatusMethodNotAllowed)
		return
	}
	far, err := DialIn(request.Context(), r.Space, request.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	near, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = far.Close() // the caller is gone
		return
	}
	if _, err := io.WriteString(near, "HTTP/1.1 200 Connection Established\r\n\r\n"); err != nil {
		_, _ = near.Close(), far.Close() // the caller is gone
		return
	}
	work.Go(func() { join(ctx, near, far) })
}

// join passes on what either end sends until both have ended, or ctx ends.
func join(ctx context.Context, a, b net.Conn) {
	shut := func() { _, _ = a.Close(), b.Close() } // what was under way is lost, as with any end of a connection
	stop := context.AfterFunc(ctx, shut)
	defer stop()
	defer shut()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			if _, err := io.Copy(way[1], way[0]); err != nil {
				shut()
				return
			}
			if half, ok := way[1].(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite() // closed already: the same
			}
		})
	}
	both.Wait()
}
