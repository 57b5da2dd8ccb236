// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Fault is a rule for requests that shall go wrong. The first rule that matches a request counts.
type Fault struct {
	// Method is the HTTP method; "" matches all. Path is a regular expression for path and query
	// ("/api/v1/pods?watch=true").
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`
	// Skip lets that many matching requests pass first; then Times requests are hit, 0 meaning all.
	Skip  int `json:"skip,omitempty"`
	Times int `json:"times,omitempty"`
	// Delay comes first, whatever follows.
	Delay Duration `json:"delay,omitempty"`
	// Apply handles the request before Status, Hang or Cut strike, so that its effect happens but its answer is lost.
	Apply bool `json:"apply,omitempty"`
	// Status answers with that code, with Body or a fitting Status object, and Retry-After in seconds where it is set.
	Status     int    `json:"status,omitempty"`
	Body       string `json:"body,omitempty"`
	RetryAfter int    `json:"retryAfter,omitempty"`
	// Hang never answers; Cut breaks the connection.
	Hang bool `json:"hang,omitempty"`
	Cut  bool `json:"cut,omitempty"`
}

// Duration is a time.Duration that reads and writes "50ms" in JSON.
type Duration time.Duration

// MarshalText writes the duration as time.Duration prints it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what time.ParseDuration reads.
func (d *Duration) UnmarshalText(b []byte) error {
	parsed, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("reading duration: %w", err)
	}
	*d = Duration(parsed)
	return nil
}

type faultRule struct {
	Fault
	path *regexp.Regexp
	hits int
	id   int
}

type faults struct {
	mu    sync.Mutex
	next  int
	rules []*faultRule
}

// Inject adds a rule and returns a function that removes it and says how many requests it has hit.
func (a *API) Inject(f Fault) (remove func() int, err error) {
	rule := &faultRule{Fault: f}
	if rule.path, err = regexp.Compile(f.Path); err != nil {
		return nil, fmt.Errorf("adding fault: %w", err)
	}
	a.faults.mu.Lock()
	defer a.faults.mu.Unlock()
	a.faults.next++
	rule.id = a.faults.next
	a.faults.rules = append(a.faults.rules, rule)
	return func() int {
		a.faults.mu.Lock()
		defer a.faults.mu.Unlock()
		for i, r := range a.faults.rules {
			if r == rule {
				a.faults.rules = append(a.faults.rules[:i:i], a.faults.rules[i+1:]...)
				break
			}
		}
		return max(0, rule.hits-rule.Skip)
	}, nil
}

// ClearFaults removes all rules.
func (a *API) ClearFaults() {
	a.faults.mu.Lock()
	defer a.faults.mu.Unlock()
	a.faults.rules = nil
}

// match finds the rule for a request and counts the hit.
func (f *faults) match(r *http.Request) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.rules) == 0 {
		return nil
	}
	target := r.URL.RequestURI()
	for _, rule := range f.rules {
		if rule.Method != "" && rule.Method != r.Method || !rule.path.MatchString(target) {
			continue
		}
		if rule.Times > 0 && rule.hits >= rule.Skip+rule.Times {
			continue
		}
		rule.hits++
		if rule.hits <= rule.Skip {
			continue
		}
		fault := rule.Fault
		return &fault
	}
	return nil
}

// around handles a request under the rules.
func (f *faults) around(a *API, w http.ResponseWriter, r *http.Request, handle func(http.ResponseWriter)) {
	fault := f.match(r)
	if fault == nil {
		handle(w)
		return
	}
	if fault.Delay > 0 {
		timer := a.options.Clock.NewTimer(time.Duration(fault.Delay))
		defer timer.Stop()
		select {
		case <-timer.C():
		case <-r.Context().Done():
			return
		case <-a.ctx.Done():
			return
		}
	}
	if !fault.Hang && !fault.Cut && fault.Status == 0 {
		handle(w)
		return
	}
	if fault.Apply {
		handle(httptest.NewRecorder())
	}
	switch {
	case fault.Hang:
		select {
		case <-r.Context().Done():
		case <-a.ctx.Done():
		}
		panic(http.ErrAbortHandler)
	case fault.Cut:
		panic(http.ErrAbortHandler)
	}
	fault.answer(w, r)
}

func (f *Fault) answer(w http.ResponseWriter, r *http.Request) {
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(f.RetryAfter))
	}
	if f.Body != "" {
		writeJSON(w, f.Status, []byte(f.Body))
		return
	}
	status := apierrors.NewGenericServerResponse(f.Status, r.Method, schema.GroupResource{}, "", "injected fault",
		f.RetryAfter, true).Status()
	status.Kind, status.APIVersion, status.Status = "Status", "v1", metav1.StatusFailure
	writeJSON(w, f.Status, encodeJSON(status))
}

// serveAdmin answers under /sim/: log, stats, dump, kubeconfig, and the orders faults, compact, expire, cut and
// bookmark.
func (a *API) serveAdmin(w http.ResponseWriter, r *http.Request) {
	resource := r.URL.Query().Get("resource")
	switch r.URL.Path {
	case "/sim/log":
		if r.Method == http.MethodDelete {
			a.ResetLog()
		}
		writeJSON(w, http.StatusOK, encodeJSON(a.Requests()))
	case "/sim/stats":
		writeJSON(w, http.StatusOK, encodeJSON(a.Stats()))
	case "/sim/dump":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write(
			[]byte(a.Dump(DumpOptions{Resources: r.URL.Query()["resource"], Versions: truthy(r.URL.Query().Get("versions"))})),
		)
	case "/sim/kubeconfig":
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(a.Kubeconfig())
	case "/sim/faults":
		a.serveFaults(w, r)
	case "/sim/compact", "/sim/expire", "/sim/cut", "/sim/bookmark":
		if r.Method != http.MethodPost {
			writeError(w, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: r.URL.Path}, r.Method))
			return
		}
		cut := 0
		switch r.URL.Path {
		case "/sim/compact":
			a.Compact()
		case "/sim/expire":
			a.Expire(resource)
		case "/sim/bookmark":
			a.Bookmark(resource)
		default:
			how := CleanEOF
			if r.URL.Query().Get("how") == "midline" {
				how = MidLine
			}
			cut = a.CutWatches(resource, how)
		}
		writeJSON(w, http.StatusOK, encodeJSON(map[string]any{"watches": cut}))
	default:
		writeError(w, notServed())
	}
}

func (a *API) serveFaults(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodPost:
		var f Fault
		decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
		decoder.DisallowUnknownFields() // a mistyped field would make a rule that hits everything
		if err := decoder.Decode(&f); err != nil {
			writeError(w, apierrors.NewBadRequest(err.Error()))
			return
		}
		if _, err := a.Inject(f); err != nil {
			writeError(w, apierrors.NewBadRequest(err.Error()))
			return
		}
	case http.MethodDelete:
		a.ClearFaults()
	}
	a.faults.mu.Lock()
	list := make([]Fault, 0, len(a.faults.rules))
	for _, rule := range a.faults.rules {
		list = append(list, rule.Fault)
	}
	a.faults.mu.Unlock()
	writeJSON(w, http.StatusOK, encodeJSON(list))
}
