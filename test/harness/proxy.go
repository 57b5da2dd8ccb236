// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"net"
	"sync"
	"time"
)

// Proxy is a TCP proxy that can be cut: then nothing comes through any more, and neither end is told.
type Proxy struct {
	listener net.Listener
	to       string
	work     sync.WaitGroup

	mu     sync.Mutex
	whole  chan struct{} // closed while it is not cut
	conns  map[net.Conn]bool
	closed bool
}

// NewProxy begins at a port of its own on the loopback and leads to an address, such as 127.0.0.1:6443.
func NewProxy(to string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // at once
	if err != nil {
		return nil, err
	}
	return NewProxyAt(listener, to), nil
}

// NewProxyAt begins at a listener, which it closes.
func NewProxyAt(listener net.Listener, to string) *Proxy {
	p := &Proxy{listener: listener, to: to, whole: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(p.whole)
	p.work.Go(p.accept)
	return p
}

// Address is where the proxy begins.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Close closes every connection, and returns when nothing of the proxy runs any more.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Restore()
	p.work.Wait()
}

// Cut cuts the proxy: open connections stay open, and carry nothing.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.whole = make(chan struct{})
}

// Restore breaks what stands open, as after a partition that lasted, and lets new connections through.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns { // first: what was read since the cut must not come through
		_ = conn.Close()
	}
	select {
	case <-p.whole:
	default:
		close(p.whole)
	}
}

func (p *Proxy) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.serve(in) })
	}
}

func (p *Proxy) serve(in net.Conn) {
	if !p.keep(in) {
		return
	}
	defer p.forget(in)
	p.wait()
	out, err := net.DialTimeout("tcp", p.to, 10*time.Second) //nolint:noctx // bounded by itself
	if err != nil || !p.keep(out) {
		return
	}
	defer p.forget(out)
	var both sync.WaitGroup
	both.Go(func() { p.copy(out, in) })
	p.copy(in, out)
	both.Wait()
}

// copy passes on what comes while the proxy is not cut.
func (p *Proxy) copy(to, from net.Conn) {
	defer func() { _ = to.Close() }()
	defer func() { _ = from.Close() }()
	for buffer := make([]byte, 32<<10); ; {
		n, err := from.Read(buffer)
		p.wait()
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// wait returns when the proxy is not cut.
func (p *Proxy) wait() {
	p.mu.Lock()
	whole := p.whole
	p.mu.Unlock()
	<-whole
}

func (p *Proxy) keep(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = conn.Close()
		return false
	}
	p.conns[conn] = true
	return true
}

func (p *Proxy) forget(conn net.Conn) {
	_ = conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
}
