// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// apiError is an error as an OpenStack service words it.
type apiError struct {
	status  int
	kind    string // the name of Neutron's exception
	message string
}

// Error implements error.
func (e *apiError) Error() string { return e.kind + ": " + e.message }

// neutron makes an error with Neutron's exception name and text.
func neutron(status int, kind, format string, args ...any) *apiError {
	return &apiError{status: status, kind: kind, message: fmt.Sprintf(format, args...)}
}

func conflict(kind, format string, args ...any) *apiError {
	return neutron(http.StatusConflict, kind, format, args...)
}

func notFound(kind, format string, args ...any) *apiError {
	return neutron(http.StatusNotFound, kind, format, args...)
}

func badRequest(format string, args ...any) *apiError {
	return neutron(http.StatusBadRequest, "HTTPBadRequest", format, args...)
}

func invalidInput(format string, args ...any) *apiError {
	return neutron(http.StatusBadRequest, "InvalidInput", "Invalid input for operation: "+format+".", args...)
}

// badResource is Neutron's generic BadRequest, which names the resource.
func badResource(resource, format string, args ...any) *apiError {
	return neutron(http.StatusBadRequest, "BadRequest", "Bad "+resource+" request: "+format+".", args...)
}

func forbidden(rule string) *apiError {
	return neutron(http.StatusForbidden, "PolicyNotAuthorized", "%s is disallowed by policy", rule)
}

func noSuchResource() *apiError {
	return notFound("HTTPNotFound", "The resource could not be found.")
}

// response is what a request came to.
type response struct {
	status int
	header http.Header
	body   []byte
	error  string // the exception's name, for the log
	items  int    // resources in the answer or written by the request
}

// jsonResponse encodes v. It panics on what can not be encoded: everything answered is made of JSON types.
func jsonResponse(status int, v any) response {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encoding an answer: %v", err))
	}
	return response{status: status, body: b}
}

// errorResponse words err as Neutron does.
func errorResponse(err error) response {
	var e *apiError
	if !errors.As(err, &e) {
		e = neutron(http.StatusInternalServerError, "HTTPInternalServerError",
			"Request Failed: internal server error while processing your request.")
	}
	r := jsonResponse(e.status, map[string]any{
		"NeutronError": map[string]any{"type": e.kind, "message": e.message, "detail": ""},
	})
	r.error = e.kind
	return r
}

// keystoneError words an error as Keystone and its middleware do.
func keystoneError(status int, message string) response {
	return jsonResponse(status, map[string]any{
		"error": map[string]any{"code": status, "title": http.StatusText(status), "message": message},
	})
}

func unauthorized(authURL string) response {
	r := keystoneError(http.StatusUnauthorized, "The request you have made requires authentication.")
	r.header = http.Header{"Www-Authenticate": {`Keystone uri="` + authURL + `"`}}
	return r
}
