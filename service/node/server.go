// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/kuryr/raven/service"
	"github.com/kuryr/raven/service/node/cniapi"
)

var errStopping = errors.New("the daemon is stopping")

// listen opens the socket, which only this user may use. One that a daemon before this one has left is replaced.
func (n *Node) listen(ctx context.Context) (net.Listener, error) {
	path := n.config.Socket
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("[node] socket: %w", err)
	}
	if conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("[node] socket: another daemon answers at %s already: stop it, or give each its own socket",
			path)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != os.ModeSocket {
		return nil, fmt.Errorf("[node] socket = %s is there already, and no socket: give the daemon a path of its own", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("[node] socket: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("[node] socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("[node] socket: %w", err), listener.Close())
	}
	return listener, nil
}

// handler answers raven-cni.
func (n *Node) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+cniapi.Path, func(w http.ResponseWriter, r *http.Request) {
		if !n.admit() {
			answer(w, nil, failure(types.ErrTryAgainLater, "%v", errStopping))
			return
		}
		defer n.requests.Done()
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, cniapi.MaxBody))
		var request cniapi.Request
		if err == nil {
			err = json.Unmarshal(body, &request)
		}
		if err != nil {
			answer(w, nil, failure(types.ErrDecodingFailure, "the request of the plugin cannot be read: %v", err))
			return
		}
		result, err := n.serve(r.Context(), request)
		answer(w, result, err)
	})
	return mux
}

// admit counts a request, whose end the daemon then waits for; false: the daemon has stopped to do so.
func (n *Node) admit() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.requests.Add(1)
	return true
}

// drain lets no request in any more, and waits for those that are under way.
func (n *Node) drain() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.requests.Wait()
}

func answer(w http.ResponseWriter, result any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(http.StatusUnprocessableEntity)
		result = err
	}
	_ = json.NewEncoder(w).Encode(result) // that the plugin has ended is no error: its sandbox gets a DEL
}

// serve does what a request asks for. Its error is a *types.Error.
func (n *Node) serve(ctx context.Context, r cniapi.Request) (result any, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(n.serving, func() { cancel(errStopping) }) //nolint:contextcheck // a stop ends requests, too
	defer stop()
	err = service.Guard(func() error {
		var err error
		result, err = n.command(ctx, r)
		return err
	})
	n.metrics.count(r.Command, err)
	if err == nil {
		return result, nil
	}
	coded := asCNI(err)
	n.log.Warn("CNI request refused", "command", r.Command, "sandbox", r.ContainerID, "args", r.Args, "code", coded.Code,
		"error", coded.Msg)
	return nil, coded
}

func (n *Node) command(ctx context.Context, r cniapi.Request) (any, error) {
	switch r.Command {
	case cniapi.Add:
		return n.add(ctx, r)
	case cniapi.Del:
		return struct{}{}, n.del(ctx, r)
	case cniapi.Check:
		return struct{}{}, n.check(ctx, r)
	case cniapi.GC:
		return struct{}{}, n.gc(ctx, r)
	case cniapi.Status:
		return struct{}{}, n.status()
	}
	return nil, failure(types.ErrInvalidEnvironmentVariables, "CNI_COMMAND %q is not known", short(r.Command))
}
