// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// recorder stands before Neutron and writes down what is asked of it.
type recorder struct {
	url string

	mu       sync.Mutex
	log      io.Writer
	requests []request
}

// request is one that was answered.
type request struct {
	At     time.Time     `json:"at"`
	Method string        `json:"method"`
	Path   string        `json:"path"`
	Items  int           `json:"items,omitempty"` // of a bulk create
	Status int           `json:"status"`
	Took   time.Duration `json:"took"`
	Token  string        `json:"token"` // its end: enough to tell two apart
}

// record starts a recorder for the length of the test. Its log is among the artifacts.
func record(t *testing.T) *recorder {
	t.Helper()
	target, err := url.Parse(strings.TrimSuffix(world.cloud.client.Endpoint, "/"))
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(world.artifacts, t.Name())
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(folder, "requests.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{log: log}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(target)
		p.Out.Host = p.In.Host // of the links in the answers
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { r.pass(proxy, w, q) }))
	r.url = server.URL
	t.Cleanup(func() {
		server.CloseClientConnections() // a raven that still runs would keep them
		server.Close()
		transport.CloseIdleConnections()
		_ = log.Close()
	})
	return r
}

// answer keeps the status of what is written through it.
type answer struct {
	http.ResponseWriter
	status int
}

func (a *answer) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

func (r *recorder) pass(proxy http.Handler, w http.ResponseWriter, q *http.Request) {
	entry := request{At: time.Now(), Method: q.Method, Path: q.URL.RequestURI()}
	if token := q.Header.Get("X-Auth-Token"); len(token) > 8 {
		entry.Token = token[len(token)-8:]
	}
	if q.Method == http.MethodPost {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		q.Body = io.NopCloser(bytes.NewReader(body))
		var bulk struct{ Ports []any }
		if json.Unmarshal(body, &bulk) == nil {
			entry.Items = len(bulk.Ports)
		}
	}
	a := &answer{ResponseWriter: w, status: http.StatusOK}
	proxy.ServeHTTP(a, q)
	entry.Status, entry.Took = a.status, time.Since(entry.At)
	line, _ := json.Marshal(entry)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, entry)
	_, _ = fmt.Fprintf(r.log, "%s\n", line)
}

// since returns what was answered after a moment.
func (r *recorder) since(moment time.Time) []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.requests), func(q request) bool { return q.At.Before(moment) })
}

// tally is how many requests there were, by method and kind.
func tally(requests []request) string {
	count := map[string]int{}
	for _, q := range requests {
		path, _, _ := strings.Cut(strings.TrimPrefix(q.Path, "/v2.0/"), "?")
		kind, _, _ := strings.Cut(path, "/")
		count[q.Method+" "+kind]++
	}
	var out []string
	for _, what := range slices.Sorted(maps.Keys(count)) {
		out = append(out, fmt.Sprintf("%d %s", count[what], what))
	}
	return strings.Join(out, ", ")
}
