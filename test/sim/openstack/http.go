// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
)

// target is what a request's path names.
type target struct {
	neutron bool
	octavia bool
	path    string // below the service's root: "/v2.0/ports/<id>/tags"
	kind    *kind
	id, sub string
	arg     string // the tag
	parent  string // the pool, of a member
	segment string // Octavia's collection
	label   string // Request.Kind
	outcome Action // of the provider's work, where a fault rule names one
}

func (c *Cloud) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/sim/", c.serveAdmin)
	mux.HandleFunc("/", c.serveAPI)
	return mux
}

// ServeHTTP implements http.Handler. After Close it cuts the connection.
func (c *Cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !c.enter() {
		panic(http.ErrAbortHandler)
	}
	defer c.jobs.Done()
	c.handler.ServeHTTP(w, r)
}

// enter counts a job that Close waits for. The caller calls c.jobs.Done if it returned true.
func (c *Cloud) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.jobs.Add(1)
	return true
}

// locate reads a path.
func (c *Cloud) locate(path string) target {
	path = strings.TrimRight(path, "/")
	t := target{path: path, label: "version"}
	if rest, ok := strings.CutPrefix(path, "/load-balancer"); ok {
		return c.locateOctavia(rest)
	}
	if rest, ok := strings.CutPrefix(path, "/networking"); ok {
		t.neutron, t.path = true, rest
	} else if path == "/v2.0" || strings.HasPrefix(path, "/v2.0/") {
		t.neutron = true
	}
	if !t.neutron {
		if strings.HasPrefix(path, "/v3/auth/tokens") {
			t.label = "token"
		}
		return t
	}
	rest, ok := strings.CutPrefix(strings.TrimSuffix(t.path, ".json"), "/v2.0/")
	if !ok {
		return t
	}
	parts := strings.SplitN(rest, "/", 4)
	for len(parts) < 4 {
		parts = append(parts, "")
	}
	t.id, t.sub, t.arg = parts[1], parts[2], parts[3]
	t.label = strings.TrimSuffix(parts[0], "s")
	if k, ok := c.kinds[parts[0]]; ok {
		t.kind, t.label = k, k.name
	}
	switch t.sub {
	case "tags":
		t.label = "tag"
	case "add_router_interface", "remove_router_interface":
		t.label = t.sub
	case "add_extraroutes", "remove_extraroutes":
		t.label = "router_route"
	}
	return t
}

func isWrite(method, label string) bool {
	return label != "token" && method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

// serveAPI is the way of every request to Keystone and Neutron.
func (c *Cloud) serveAPI(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the client disconnected
	}
	where := c.locate(r.URL.Path)
	where.label = where.labelOf(r.Method)
	req := c.begin(Request{
		Method: r.Method, Path: where.path, Query: r.URL.RawQuery, Kind: where.label, Items: countItems(where, body),
		Body: string(body),
	}, isWrite(r.Method, where.label))
	f := c.matchFault(&req, where.path)
	out, fate := c.answer(r, where, &req, body, f)
	req.Status, req.Error, req.Fault = out.status, out.error, f.name()
	if out.items > 0 {
		req.Items = out.items
	}
	if fate == cutAll {
		req.Status = 0
	}
	c.finish(req)
	send(w, r, out, fate)
}

// How an answer goes to the client.
type fate int

const (
	whole fate = iota
	cutAll
	cutHalf
)

// answer applies the request, or does what the fault rule says instead.
func (c *Cloud) answer(r *http.Request, where target, req *Request, body []byte, f *fault) (response, fate) {
	ctx := r.Context()
	if f == nil {
		return c.process(r, where, req, body), whole
	}
	switch f.rule.Action {
	case ActionStatus:
		return f.response(where), whole
	case ActionTimeout:
		select {
		case <-ctx.Done():
		case <-c.done:
		}
		return response{}, cutAll
	case ActionCut:
		return response{}, cutAll
	case ActionDelay:
		if !c.wait(ctx, f.rule.Delay.Duration()) {
			return response{}, cutAll
		}
		return c.process(r, where, req, body), whole
	case ActionApplyCut:
		return c.process(r, where, req, body), cutAll
	case ActionApplyStatus:
		c.process(r, where, req, body)
		return f.response(where), whole
	case ActionProviderError, ActionProviderStall:
		where.outcome = f.rule.Action
		return c.process(r, where, req, body), whole
	case ActionApplyLate:
		if c.enter() {
			late := *req
			copied := r.Clone(context.WithoutCancel(ctx)) // it outlives the request on purpose
			go func() {
				defer c.jobs.Done()
				if c.wait(context.Background(), f.rule.Delay.Duration()) {
					c.process(copied, where, &late, body)
				}
			}()
		}
		return response{}, cutAll
	case ActionTruncate:
		return c.process(r, where, req, body), cutHalf
	}
	return c.process(r, where, req, body), whole
}

// process pays for a request and applies it. As in a real server it goes on when the client has gone.
func (c *Cloud) process(r *http.Request, where target, req *Request, body []byte) response {
	release, ok := c.workers.acquire(c.done)
	if !ok {
		return response{} // closed: no request is answered any more
	}
	defer release()
	ctx := context.WithoutCancel(r.Context())
	if isWrite(req.Method, req.Kind) || req.Kind == "token" {
		if !c.wait(ctx, c.profile.cost(req.Method, req.Kind, req.Items, false, c.workers.busyOthers())) {
			return response{} // closed: no request is answered any more
		}
		return c.apply(r, where, req, body)
	}
	out := c.apply(r, where, req, body)
	narrow := strings.Contains(r.URL.RawQuery, "fields=")
	c.wait(ctx, c.profile.cost(req.Method, req.Kind, out.items, narrow, c.workers.busyOthers()))
	return out
}

// apply lets the services answer.
func (c *Cloud) apply(r *http.Request, where target, req *Request, body []byte) response {
	if !where.neutron && !where.octavia {
		return c.keystone(r, where.path, body)
	}
	var in map[string]any
	if len(body) > 0 {
		dec := json.NewDecoder(bytes.NewReader(body))
		dec.UseNumber()
		if err := dec.Decode(&in); err != nil {
			return where.refusal(
				badRequest("The server could not comply with the request since it is either malformed or otherwise incorrect."),
			)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if out, ok := c.discover(r, where); ok {
		return out
	}
	who, ok := c.authenticate(r)
	if !ok || who.project == "" {
		return unauthorized(c.base + "/v3")
	}
	req.Project = who.project
	return c.serveAs(r, who, where, in)
}

// serveAs answers a request of an account, with the lock held.
func (c *Cloud) serveAs(r *http.Request, who scope, where target, in map[string]any) response {
	c.settle()
	t := &tx{c: c, who: who, now: c.clock.Now(), outcome: where.outcome}
	serve := t.serve
	if where.octavia {
		serve = t.balancing
	}
	out, err := serve(r, where, in)
	if err != nil {
		t.rollback()
		return where.refusal(err)
	}
	return out
}

// refusal words an error as the service does that was asked.
func (w target) refusal(err error) response {
	if w.octavia {
		return faultResponse(err)
	}
	return errorResponse(err)
}

func (c *Cloud) discover(r *http.Request, where target) (response, bool) {
	if where.octavia {
		return c.octaviaVersions(r, where.path)
	}
	return c.discovery(r, where.path)
}

// discovery answers what needs no token.
func (c *Cloud) discovery(r *http.Request, path string) (response, bool) {
	if r.Method != http.MethodGet {
		return response{}, false
	}
	self := "http://" + r.Host + "/networking/v2.0"
	switch path {
	case "":
		return jsonResponse(http.StatusOK, map[string]any{"versions": []any{map[string]any{
			"id": "v2.0", "status": "CURRENT", "links": []any{map[string]any{"rel": "self", "href": self + "/"}},
		}}}), true
	case "/v2.0":
		var resources []any
		for _, k := range c.kinds {
			resources = append(resources, map[string]any{
				"name": k.name, "collection": k.plural, "links": []any{map[string]any{"rel": "self", "href": self + "/" + k.path}},
			})
		}
		return jsonResponse(http.StatusOK, map[string]any{"resources": resources}), true
	}
	return response{}, false
}

// countItems returns how many resources a create is about.
func countItems(where target, body []byte) int {
	if where.kind == nil || where.id != "" || len(body) == 0 || (where.octavia && where.label != "member_batch") {
		return 1
	}
	var in map[string]json.RawMessage
	var many []json.RawMessage
	if json.Unmarshal(body, &in) != nil || json.Unmarshal(in[where.kind.plural], &many) != nil || len(many) == 0 {
		return 1
	}
	return len(many)
}

// send writes an answer, or as much of it as its fate allows.
func send(w http.ResponseWriter, r *http.Request, out response, how fate) {
	if how == cutAll || out.status == 0 {
		panic(http.ErrAbortHandler)
	}
	h := w.Header()
	if len(out.body) > 0 {
		h.Set("Content-Type", "application/json")
	}
	maps.Copy(h, out.header)
	if out.status != http.StatusNoContent {
		h.Set("Content-Length", strconv.Itoa(len(out.body)))
	}
	w.WriteHeader(out.status)
	body := out.body
	if r.Method == http.MethodHead {
		body = nil
	}
	if how == cutHalf {
		body = body[:len(body)/2]
	}
	if _, err := w.Write(body); err != nil {
		return // the client has gone
	}
	if how == cutHalf {
		if fl, ok := w.(http.Flusher); ok {
			fl.Flush()
		}
		panic(http.ErrAbortHandler)
	}
}

// begin numbers a request and tells the hooks.
func (c *Cloud) begin(req Request, write bool) Request {
	c.mu.Lock()
	req.At = c.clock.Now()
	c.log.total++
	req.N = c.log.total
	if write {
		c.log.writes++
		req.WriteN = c.log.writes
	}
	hooks := c.hooks
	c.mu.Unlock()
	for _, h := range hooks {
		h(req.N, req)
	}
	return req
}

// finish logs a request and tells the hooks.
func (c *Cloud) finish(req Request) {
	c.mu.Lock()
	req.After = true
	req.Duration = c.clock.Now().Sub(req.At)
	c.log.add(req)
	hooks := c.hooks
	c.mu.Unlock()
	for _, h := range hooks {
		h(req.N, req)
	}
}

// OnRequest adds a hook that is called with every request's number twice, without the lock: before it is applied, and
// after it was applied but before it is answered (Request.After). A hook that blocks, blocks that request.
func (c *Cloud) OnRequest(hook func(n int, r Request)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hooks = append(c.hooks[:len(c.hooks):len(c.hooks)], hook)
}

// String names the cloud in logs.
func (c *Cloud) String() string { return fmt.Sprintf("simulated cloud at %s", c.BaseURL()) }
