// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const maxBody = 3 << 20

// call is one parsed request for objects.
type call struct {
	http.ResponseWriter
	request                            *http.Request
	query                              url.Values
	view                               *view
	namespace, name, subresource, verb string
	user                               string
	format                             format
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !a.enter() {
		panic(http.ErrAbortHandler)
	}
	defer a.serving.Done()
	if strings.HasPrefix(r.URL.Path, "/sim/") {
		a.serveAdmin(w, r)
		return
	}
	user, known := a.access.user(r)
	c := a.parse(w, r)
	c.user = user
	entry := a.log.begin(a, c)
	recorder := &recorder{ResponseWriter: w}
	c.ResponseWriter = recorder
	defer func() { a.log.end(a, entry, recorder.status) }()
	a.access.hook(entry)
	a.faults.around(a, recorder, r, func(w http.ResponseWriter) {
		c.ResponseWriter = w
		switch {
		case !known:
			writeError(w, apierrors.NewUnauthorized("Unauthorized"))
		case c.view == nil:
			a.serveDiscovery(w, r, user)
		default:
			a.serveObjects(c)
		}
	})
}

// enter counts a request in, unless the API is being closed.
func (a *API) enter() bool {
	a.gate.Lock()
	defer a.gate.Unlock()
	if a.closed {
		return false
	}
	a.serving.Add(1)
	return true
}

// parse finds out what the request is about. The view stays nil where it is not about objects.
func (a *API) parse(w http.ResponseWriter, r *http.Request) *call {
	c := &call{ResponseWriter: w, request: r, query: r.URL.Query()}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	gvr := schema.GroupVersionResource{}
	switch {
	case len(parts) > 2 && parts[0] == "api":
		gvr.Version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		gvr.Group, gvr.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return c
	}
	if parts[0] == "namespaces" && len(parts) > 1 {
		if len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
			c.namespace, parts = parts[1], parts[2:]
		}
	}
	gvr.Resource = parts[0]
	if len(parts) > 1 {
		c.name = parts[1]
	}
	if len(parts) > 2 {
		c.subresource = strings.Join(parts[2:], "/")
	}
	c.view = a.view(gvr)
	if c.view != nil {
		c.format = format{view: c.view, mode: formatOf(r.Header.Get("Accept")), includeObject: c.query.Get("includeObject")}
	}
	c.verb = verbOf(c)
	return c
}

func verbOf(c *call) string {
	switch c.request.Method {
	case http.MethodGet, http.MethodHead:
		switch {
		case truthy(c.query.Get("watch")):
			return "watch"
		case c.name == "":
			return "list"
		}
		return "get"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if c.name == "" {
			return "deletecollection"
		}
		return "delete"
	}
	return strings.ToLower(c.request.Method)
}

func truthy(s string) bool { return s == "true" || s == "1" }

// serveObjects authorises and answers a request for objects.
func (a *API) serveObjects(c *call) {
	if err := a.access.authorize(c); err != nil {
		writeError(c, err)
		return
	}
	if c.view.kind.Namespaced && c.namespace == "" && (c.name != "" || c.verb == "create") {
		writeError(c, notServed())
		return
	}
	if !c.view.kind.Namespaced && c.namespace != "" {
		writeError(c, notServed())
		return
	}
	if err := a.serveVerb(c); err != nil {
		writeError(c, err)
	}
}

func (a *API) serveVerb(c *call) error {
	if c.subresource != "" && !c.view.hasSubresource(c.subresource) {
		return notServed()
	}
	switch c.verb {
	case "get":
		return a.serveGet(c)
	case "list":
		return a.serveList(c)
	case "watch":
		return a.serveWatch(c)
	case "create":
		return a.serveCreate(c)
	case "update":
		return a.serveUpdate(c)
	case "patch":
		return a.servePatch(c)
	case "delete":
		return a.serveDelete(c)
	case "deletecollection":
		return a.serveDeleteCollection(c)
	}
	return apierrors.NewMethodNotSupported(c.view.groupResource(), c.verb)
}

// hasSubresource says which subresources a kind has.
func (v *view) hasSubresource(name string) bool {
	switch name {
	case "status":
		return v.kind.Status
	case "finalize":
		return v.kind.Group == "" && v.kind.Plural == "namespaces"
	case "binding", "eviction":
		return v.kind.Group == "" && v.kind.Plural == "pods"
	}
	return false
}

func notServed() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{},
	}}
}

// readBody reads and decodes an object of the request; nil where the body is empty.
func readBody(c *call) (map[string]any, error) {
	body, err := readAll(c)
	if err != nil || len(body) == 0 {
		return nil, err
	}
	return decodeObject(body, c.request.Header.Get("Content-Type"))
}

func readAll(c *call) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, c.request.Body, maxBody))
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	}
	if err != nil {
		return nil, apierrors.NewBadRequest("reading the request's body: " + err.Error())
	}
	return body, nil
}

// writeError answers with a Status object.
func writeError(w http.ResponseWriter, err error) {
	status := statusOf(err)
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(status.Details.RetryAfterSeconds))
	}
	writeJSON(w, int(status.Code), encodeJSON(status))
}

func statusOf(err error) metav1.Status {
	var known apierrors.APIStatus
	status := apierrors.NewInternalError(err).Status()
	if errors.As(err, &known) {
		status = known.Status()
	}
	status.Kind, status.APIVersion = "Status", "v1"
	return status
}

func writeJSON(w http.ResponseWriter, code int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body)
	_, _ = w.Write([]byte("\n"))
}

// recorder remembers the status of an answer.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(code int) {
	if r.status == 0 {
		r.status = code
	}
	r.ResponseWriter.WriteHeader(code)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// quietLog drops the HTTP server's own lines: connections are cut here on purpose.
func quietLog() *log.Logger { return log.New(io.Discard, "", 0) }
