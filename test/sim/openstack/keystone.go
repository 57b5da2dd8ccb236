// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// token is an issued token.
type token struct {
	id      string
	user    *user
	project string // id; "" unscoped
	methods []string
	appCred bool
	issued  time.Time
	expires time.Time
}

// scope is whom a request is made for.
type scope struct {
	project string
	user    string
	admin   bool
}

// ExpireTokens makes every token that was issued so far invalid.
func (c *Cloud) ExpireTokens() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.tokens)
}

// authenticate finds the scope of a request's token.
func (c *Cloud) authenticate(r *http.Request) (scope, bool) {
	t, ok := c.tokens[r.Header.Get("X-Auth-Token")]
	if !ok || !c.clock.Now().Before(t.expires) {
		return scope{}, false
	}
	return scope{project: t.project, user: t.user.id, admin: t.user.admin}, true
}

type authRequest struct {
	Auth struct {
		Identity struct {
			Methods  []string `json:"methods"`
			Password struct {
				User authUser `json:"user"`
			} `json:"password"`
			Token struct {
				ID string `json:"id"`
			} `json:"token"`
			AppCred struct {
				ID     string   `json:"id"`
				Name   string   `json:"name"`
				Secret string   `json:"secret"`
				User   authUser `json:"user"`
			} `json:"application_credential"`
		} `json:"identity"`
		Scope json.RawMessage `json:"scope"`
	} `json:"auth"`
}

type authUser struct {
	ID       string     `json:"id"`
	Name     string     `json:"name"`
	Domain   authDomain `json:"domain"`
	Password string     `json:"password"`
}

type authDomain struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

func (d authDomain) is() bool {
	return d.ID == domainID || (d.ID == "" && strings.EqualFold(d.Name, domainName))
}

type authScope struct {
	Project *struct {
		ID     string     `json:"id"`
		Name   string     `json:"name"`
		Domain authDomain `json:"domain"`
	} `json:"project"`
}

// issueToken is POST /v3/auth/tokens.
func (c *Cloud) issueToken(body []byte) response {
	var in authRequest
	if err := json.Unmarshal(body, &in); err != nil {
		return keystoneError(http.StatusBadRequest,
			"Expecting to find valid JSON in request body. The server could not comply with the request since it is either "+
				"malformed or otherwise incorrect. The client is assumed to be in error.")
	}
	if len(in.Auth.Identity.Methods) == 0 {
		return keystoneError(http.StatusBadRequest, "Invalid input for field 'identity': 'methods' is a required property")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	u, fixed, ok := c.identify(&in)
	if !ok {
		return unauthorized(c.base + "/v3")
	}
	project, ok := c.scopeOf(in.Auth.Scope, u, fixed)
	if !ok {
		return unauthorized(c.base + "/v3")
	}
	now := c.clock.Now()
	t := &token{
		id: "gAAAAA" + strings.ReplaceAll(c.newID()+c.newID(), "-", ""), user: u, project: project,
		methods: in.Auth.Identity.Methods,
		appCred: fixed != "", issued: now, expires: now.Add(c.opts.TokenTTL),
	}
	c.tokens[t.id] = t
	r := jsonResponse(http.StatusCreated, c.tokenDocument(t))
	r.header = http.Header{"X-Subject-Token": {t.id}, "Vary": {"X-Auth-Token"}}
	return r
}

// identify finds the user. fixed is the project that an application credential is bound to.
func (c *Cloud) identify(in *authRequest) (u *user, fixed string, ok bool) {
	id := in.Auth.Identity
	switch {
	case slices.Contains(id.Methods, "password"):
		u = c.findUser(id.Password.User)
		return u, "", u != nil && u.password == id.Password.User.Password
	case slices.Contains(id.Methods, "application_credential"):
		for _, ac := range c.accounts.appCreds {
			byName := id.AppCred.Name == ac.name && c.findUser(id.AppCred.User) == c.accounts.users[ac.user]
			if (id.AppCred.ID == ac.id || id.AppCred.ID == "" && byName) && id.AppCred.Secret == ac.secret {
				return c.accounts.users[ac.user], c.accounts.projects[ac.project], true
			}
		}
	case slices.Contains(id.Methods, "token"):
		t, found := c.tokens[id.Token.ID]
		if found && c.clock.Now().Before(t.expires) && !t.appCred {
			return t.user, "", true
		}
	}
	return nil, "", false
}

func (c *Cloud) findUser(who authUser) *user {
	for _, u := range c.accounts.users {
		if who.ID == u.id || (who.ID == "" && who.Name == u.name && who.Domain.is()) {
			return u
		}
	}
	return nil
}

// scopeOf returns the project that is asked for, if the user has a role in it.
func (c *Cloud) scopeOf(raw json.RawMessage, u *user, fixed string) (string, bool) {
	if fixed != "" {
		return fixed, true
	}
	var in authScope
	if len(raw) == 0 || json.Unmarshal(raw, &in) != nil { // "unscoped" is a string
		return "", true
	}
	if in.Project == nil {
		return "", false
	}
	for name, id := range c.accounts.projects {
		if in.Project.ID == id || (in.Project.ID == "" && in.Project.Name == name && in.Project.Domain.is()) {
			return id, slices.Contains(u.projects, name)
		}
	}
	return "", false
}

func (c *Cloud) tokenDocument(t *token) map[string]any {
	domain := map[string]any{"id": domainID, "name": domainName}
	doc := map[string]any{
		"methods": t.methods, "issued_at": stampMicro(t.issued), "expires_at": stampMicro(t.expires),
		"audit_ids": []string{t.id[6:28]}, "is_domain": false,
		"user": map[string]any{"id": t.user.id, "name": t.user.name, "domain": domain, "password_expires_at": nil},
	}
	if t.project != "" {
		name, _ := c.accounts.projectName(t.project)
		roles := []any{
			map[string]any{"id": "role-member", "name": "member"}, map[string]any{"id": "role-reader", "name": "reader"},
		}
		if t.user.admin {
			roles = append(roles, map[string]any{"id": "role-admin", "name": "admin"})
		}
		doc["project"] = map[string]any{"id": t.project, "name": name, "domain": domain}
		doc["roles"] = roles
		doc["catalog"] = c.catalog()
	}
	return map[string]any{"token": doc}
}

func stampMicro(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

func (c *Cloud) catalog() []any {
	service := func(name, kind, url string) map[string]any {
		var endpoints []any
		for _, face := range []string{"public", "internal", "admin"} {
			endpoints = append(endpoints, map[string]any{
				"id": name + "-" + face, "interface": face, "region": Region, "region_id": Region, "url": url,
			})
		}
		return map[string]any{"id": name, "name": name, "type": kind, "endpoints": endpoints}
	}
	all := []any{service("keystone", "identity", c.base+"/v3"), service("neutron", "network", c.base+"/networking")}
	if !c.noOctavia.Load() {
		all = append(all, service("octavia", "load-balancer", c.base+"/load-balancer"))
	}
	return all
}

// checkToken is GET, HEAD and DELETE /v3/auth/tokens.
func (c *Cloud) checkToken(r *http.Request) response {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.authenticate(r); !ok {
		return unauthorized(c.base + "/v3")
	}
	id := r.Header.Get("X-Subject-Token")
	t, ok := c.tokens[id]
	if !ok || !c.clock.Now().Before(t.expires) {
		return keystoneError(http.StatusNotFound, fmt.Sprintf("Could not find token: %s.", id))
	}
	if r.Method == http.MethodDelete {
		delete(c.tokens, id)
		return response{status: http.StatusNoContent}
	}
	out := jsonResponse(http.StatusOK, c.tokenDocument(t))
	out.header = http.Header{"X-Subject-Token": {id}}
	return out
}

func (c *Cloud) identityVersion() map[string]any {
	return map[string]any{
		"id": "v3.14", "status": "stable", "updated": "2020-04-07T00:00:00Z",
		"links": []any{map[string]any{"rel": "self", "href": c.base + "/v3/"}},
		"media-types": []any{
			map[string]any{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"},
		},
	}
}

// keystone answers what is not Neutron's.
func (c *Cloud) keystone(r *http.Request, path string, body []byte) response {
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case path == "" && read:
		c.mu.Lock()
		defer c.mu.Unlock()
		return jsonResponse(http.StatusMultipleChoices,
			map[string]any{"versions": map[string]any{"values": []any{c.identityVersion()}}})
	case path == "/v3" && read:
		c.mu.Lock()
		defer c.mu.Unlock()
		return jsonResponse(http.StatusOK, map[string]any{"version": c.identityVersion()})
	case path == "/v3/auth/tokens" && r.Method == http.MethodPost:
		return c.issueToken(body)
	case path == "/v3/auth/tokens" && (read || r.Method == http.MethodDelete):
		return c.checkToken(r)
	case path == "/v3/auth/catalog" && read:
		c.mu.Lock()
		defer c.mu.Unlock()
		if _, ok := c.authenticate(r); !ok {
			return unauthorized(c.base + "/v3")
		}
		return jsonResponse(http.StatusOK, map[string]any{"catalog": c.catalog()})
	case path == "/v3/auth/tokens":
		return keystoneError(http.StatusMethodNotAllowed, "The method is not allowed for the requested URL.")
	}
	return keystoneError(http.StatusNotFound, "The resource could not be found.")
}
