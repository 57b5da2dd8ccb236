// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Deny forbids something to a user. Empty fields and "*" match everything.
type Deny struct {
	User  string   `json:"user,omitempty"`
	Verbs []string `json:"verbs,omitempty"`
	// Groups are API groups; write the core group as "core", since an empty list matches every group.
	Groups []string `json:"groups,omitempty"`
	// Resources are plural names, with a subresource as "pods/status"; "pods" alone does not cover its subresources.
	Resources  []string `json:"resources,omitempty"`
	Namespaces []string `json:"namespaces,omitempty"`
}

// attributes is what is asked for.
type attributes struct {
	user, verb, group, resource, subresource, namespace, name string
}

func (d Deny) matches(r attributes) bool {
	in := func(list []string, value string) bool {
		return len(list) == 0 || slices.Contains(list, "*") || slices.Contains(list, value)
	}
	resource, group := r.resource, r.group
	if r.subresource != "" {
		resource += "/" + r.subresource
	}
	if group == "" {
		group = "core"
	}
	return (d.User == "" || d.User == "*" || d.User == r.user) &&
		in(d.Verbs, r.verb) && in(d.Groups, group) && in(d.Resources, resource) && in(d.Namespaces, r.namespace)
}

// access knows users and what they may not do.
type access struct {
	mu        sync.RWMutex
	tokens    map[string]string
	deny      []Deny
	onRequest func(Request)
}

func (x *access) init(o Options) {
	x.tokens, x.deny, x.onRequest = o.Tokens, o.Deny, o.OnRequest
}

// SetDeny replaces what is forbidden.
func (a *API) SetDeny(rules ...Deny) {
	a.access.mu.Lock()
	defer a.access.mu.Unlock()
	a.access.deny = rules
}

// SetTokens replaces the bearer tokens; an empty map opens the API to everybody.
func (a *API) SetTokens(tokens map[string]string) {
	a.access.mu.Lock()
	defer a.access.mu.Unlock()
	a.access.tokens = tokens
}

// OnRequest sets the function that is called before each request is handled; nil sets none.
func (a *API) OnRequest(f func(Request)) {
	a.access.mu.Lock()
	defer a.access.mu.Unlock()
	a.access.onRequest = f
}

func (x *access) hook(r Request) {
	x.mu.RLock()
	f := x.onRequest
	x.mu.RUnlock()
	if f != nil {
		f(r)
	}
}

// user finds out who asks; known is false for a missing or unknown token.
func (x *access) user(r *http.Request) (name string, known bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if len(x.tokens) == 0 {
		return "system:admin", true
	}
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	name, known = x.tokens[token]
	if !bearer || !known {
		return "system:anonymous", false
	}
	return name, true
}

// firstToken is the token that Kubeconfig carries.
func (x *access) firstToken() string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	tokens := make([]string, 0, len(x.tokens))
	for token := range x.tokens {
		tokens = append(tokens, token)
	}
	sort.Strings(tokens)
	if len(tokens) == 0 {
		return ""
	}
	return tokens[0]
}

func (x *access) allowed(r attributes) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return !slices.ContainsFunc(x.deny, func(d Deny) bool { return d.matches(r) })
}

func (x *access) authorize(c *call) error {
	r := attributes{c.user, c.verb, c.view.Group, c.view.kind.Plural, c.subresource, c.namespace, c.name}
	if x.allowed(r) {
		return nil
	}
	resource := r.resource
	if r.subresource != "" {
		resource += "/" + r.subresource
	}
	where := "at the cluster scope"
	if r.namespace != "" {
		where = fmt.Sprintf("in the namespace %q", r.namespace)
	}
	//nolint:staticcheck // the real server's words
	reason := fmt.Errorf("User %q cannot %s resource %q in API group %q %s", r.user, r.verb, resource, r.group, where)
	return apierrors.NewForbidden(schema.GroupResource{Group: r.group, Resource: resource}, r.name, reason)
}

// serveReview answers a SelfSubjectAccessReview.
func (a *API) serveReview(w http.ResponseWriter, r *http.Request, user string) {
	var review authorizationv1.SelfSubjectAccessReview
	body, err := readAll(&call{ResponseWriter: w, request: r})
	if err == nil {
		var object map[string]any
		if object, err = decodeObject(body, r.Header.Get("Content-Type")); err == nil {
			err = json.Unmarshal(encodeJSON(object), &review)
		}
	}
	if err != nil {
		var known *apierrors.StatusError
		if !errors.As(err, &known) {
			err = apierrors.NewBadRequest(err.Error())
		}
		writeError(w, err)
		return
	}
	review.Kind, review.APIVersion = "SelfSubjectAccessReview", "authorization.k8s.io/v1"
	review.Status.Allowed = true
	if asked := review.Spec.ResourceAttributes; asked != nil {
		review.Status.Allowed = a.access.allowed(attributes{
			user, asked.Verb, asked.Group, asked.Resource, asked.Subresource, asked.Namespace, asked.Name,
		})
	}
	if !review.Status.Allowed {
		review.Status.Reason = "forbidden by a rule of the simulation"
	}
	writeJSON(w, http.StatusCreated, encodeJSON(review))
}
