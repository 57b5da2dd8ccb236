// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// connection speaks JSON-RPC, as RFC 7047 has it. It is not libovsdb's client since that one cannot be left: what it
// sends has no deadline, and while it sends it can neither be asked nor closed. Nothing here waits longer than its
// context, or the connection.
type connection struct {
	conn      net.Conn      // closing it ends all
	stream    net.Conn      // what is spoken over: conn, or TLS on it
	writing   chan struct{} // holds one thing while something is being written
	notice    func(method string, params json.RawMessage) error
	ended     chan struct{} // closed when nothing is read any more
	work      sync.WaitGroup
	bytesRead atomic.Int64
	taking    atomic.Bool // something that was read is being taken over

	mu      sync.Mutex // guards what follows
	pending map[uint64]*call
	last    uint64
	err     error // why it has ended
}

// call is a request that waits for its answer.
type call struct {
	take func(result json.RawMessage) error // called by who reads, before anything else is read
	done chan error                         // gets no more than one
}

// message is a request, a notice or an answer.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"`
}

// replyWithin bounds the answer to what a server asks.
const replyWithin = 10 * time.Second

// dial connects to a server, an address in OVSDB's notation. What the server sends by itself goes to notice, one
// after another; its error ends the connection.
func dial(
	ctx context.Context, endpoint string, settings *tls.Config, notice func(string, json.RawMessage) error,
) (*connection, error) {
	scheme, address, _ := strings.Cut(endpoint, ":")
	network := "tcp"
	if scheme == "unix" {
		network = "unix"
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says all
	}
	w := &connection{
		conn: conn, stream: conn, writing: make(chan struct{}, 1), notice: notice, ended: make(chan struct{}),
		pending: map[uint64]*call{},
	}
	if settings != nil {
		secure := tls.Client(conn, settings)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, err //nolint:wrapcheck // it says all
		}
		w.stream = secure
	}
	w.work.Go(w.read)
	return w, nil
}

// close ends the connection, whatever is under way. It does not wait.
func (w *connection) close() { _ = w.conn.Close() }

// wait waits until nothing of a closed connection runs any more.
func (w *connection) wait() { w.work.Wait() }

// call asks the server for something. take gets the result before anything that the server sends afterwards is looked
// at; it may be nil.
func (w *connection) call(ctx context.Context, method string, params any, take func(json.RawMessage) error) error {
	text, err := json.Marshal(params)
	if err != nil {
		return fmt.Errorf("writing the request %s: %w", method, err)
	}
	c := &call{take: take, done: make(chan error, 1)}
	w.mu.Lock()
	w.last++
	id := w.last
	w.pending[id] = c
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.pending, id)
	}()
	if err := w.send(ctx, message{ID: fmt.Append(nil, id), Method: method, Params: text}); err != nil {
		return err
	}
	select {
	case err := <-c.done:
		return err
	default:
	}
	select {
	case err := <-c.done:
		return err
	case <-w.ended:
		return w.why()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// send writes a message. One that is written in part would make all that follows unreadable: it ends the connection.
func (w *connection) send(ctx context.Context, m message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("writing a message: %w", err)
	}
	select {
	case w.writing <- struct{}{}:
	case <-w.ended:
		return w.why()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-w.writing }()
	stop := context.AfterFunc(ctx, w.close)
	_, err = w.stream.Write(text)
	if !stop() {
		return context.Cause(ctx)
	}
	if err != nil {
		w.close()
		return fmt.Errorf("sending: %w", err)
	}
	return nil
}

func (w *connection) why() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// read takes what the server sends until the connection ends.
func (w *connection) read() {
	decoder := json.NewDecoder(listener{w})
	for {
		var m message
		err := decoder.Decode(&m)
		if err == nil {
			w.taking.Store(true)
			err = w.received(m)
			w.taking.Store(false)
		}
		if err == nil {
			continue
		}
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
			err = errors.New("the connection was lost")
		}
		w.mu.Lock()
		w.err = err
		w.mu.Unlock()
		close(w.ended)
		w.close()
		return
	}
}

// listener reads what the server sends, and counts it.
type listener struct{ w *connection }

func (l listener) Read(p []byte) (int, error) {
	n, err := l.w.stream.Read(p)
	l.w.bytesRead.Add(int64(n))
	return n, err //nolint:wrapcheck // it is a reader
}

// attentive returns a context that ends once the server has said nothing for that long, or at most twice as long:
// what it sends may take longer, for a large database does. The caller ends it.
func (w *connection) attentive(
	ctx context.Context, clk clock.Clock, silence time.Duration, option string,
) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		before := w.bytesRead.Load()
		for {
			timer := clk.NewTimer(silence)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C():
			}
			now := w.bytesRead.Load()
			if now == before && !w.taking.Load() {
				cancel(unresponsiveError{silence, option})
				return
			}
			before = now
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-done
	}
}

// unresponsiveError says that a server takes a connection, and says nothing.
type unresponsiveError struct {
	silence time.Duration
	option  string // bounds it
}

func (s unresponsiveError) Error() string {
	return fmt.Sprintf("it has sent nothing for %s: see %s", s.silence, s.option)
}

// received deals with one message. Its error ends the connection.
func (w *connection) received(m message) error {
	switch m.Method {
	case "":
		return w.answered(m)
	case "echo":
		w.reply(m.ID, m.Params)
		return nil
	}
	err := w.notice(m.Method, m.Params)
	if len(m.ID) > 0 && string(m.ID) != "null" {
		w.reply(m.ID, json.RawMessage("[]"))
	}
	return err
}

// reply answers the server, who may wait for us to read before it reads: it is not waited for.
func (w *connection) reply(id, result json.RawMessage) {
	w.work.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), replyWithin)
		defer cancel()
		// where it fails the connection has ended
		_ = w.send(ctx, message{ID: id, Result: result, Error: json.RawMessage("null")})
	})
}

// answered hands an answer to the caller that waits for it, if one still does.
func (w *connection) answered(m message) error {
	var id uint64
	if err := json.Unmarshal(m.ID, &id); err != nil {
		return fmt.Errorf("the server has answered %s, which was not asked", m.ID)
	}
	w.mu.Lock()
	c := w.pending[id]
	delete(w.pending, id)
	w.mu.Unlock()
	if c == nil {
		return nil
	}
	var err error
	switch {
	case len(m.Error) > 0 && string(m.Error) != "null":
		err = serverError(m.Error)
	case c.take != nil:
		err = c.take(m.Result)
	}
	c.done <- err
	return nil
}

// serverError is what a server says of a request as a whole.
func serverError(text json.RawMessage) error {
	var doc struct {
		Error   string `json:"error"`
		Details string `json:"details"`
	}
	if json.Unmarshal(text, &doc) == nil && doc.Error != "" {
		return fmt.Errorf("the server says: %s: %s", doc.Error, doc.Details)
	}
	return fmt.Errorf("the server says: %s", text)
}
