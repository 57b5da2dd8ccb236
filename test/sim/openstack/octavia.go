// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// The statuses of Octavia.
const (
	pendingCreate = "PENDING_CREATE"
	pendingUpdate = "PENDING_UPDATE"
	pendingDelete = "PENDING_DELETE"
	statusActive  = "ACTIVE"
	statusError   = "ERROR"

	online    = "ONLINE"
	offline   = "OFFLINE"
	noMonitor = "NO_MONITOR"
)

// locateOctavia reads a path below Octavia's root: /v2.0/lbaas/pools/<id>/members/<id> and the like.
func (c *Cloud) locateOctavia(path string) target {
	t := target{octavia: true, path: path, label: "version"}
	rest, ok := strings.CutPrefix(path, "/v2.0/")
	if !ok {
		rest, ok = strings.CutPrefix(path, "/v2/")
	}
	if !ok {
		return t
	}
	parts := strings.SplitN(strings.TrimPrefix(rest, "lbaas/"), "/", 5)
	for len(parts) < 5 {
		parts = append(parts, "")
	}
	t.segment, t.id, t.sub, t.arg = parts[0], parts[1], parts[2], parts[3]
	t.kind = c.lbKinds[t.segment]
	if t.segment == "pools" && t.sub == "members" {
		t.segment, t.kind, t.parent, t.id, t.sub, t.arg = "members", c.lbKinds["members"], t.id, t.arg, parts[4], ""
	} else if t.segment == "members" {
		t.kind = nil // members are below their pools only
	}
	t.label = octaviaLabel(t)
	return t
}

func octaviaLabel(t target) string {
	switch {
	case t.segment == "quotas":
		return "lb_quota"
	case t.kind == nil:
		return strings.TrimSuffix(t.segment, "s")
	case t.sub == "status" || t.sub == "statuses":
		return t.kind.name + "_status"
	case t.sub != "":
		return t.kind.name + "_" + t.sub
	}
	return t.kind.name
}

// labelOf is Request.Kind once the method is known.
func (w target) labelOf(method string) string {
	if method == http.MethodPut && w.kind != nil && w.kind.name == "member" && w.id == "" {
		return "member_batch"
	}
	return w.label
}

// octaviaVersions answers what needs no token.
func (c *Cloud) octaviaVersions(r *http.Request, path string) (response, bool) {
	if c.noOctavia.Load() {
		return pathResponse("Not Found", ""), true
	}
	if r.Method != http.MethodGet || path != "" {
		return response{}, false
	}
	self := "http://" + r.Host + "/load-balancer/v2"
	most := 27 // those of the Zed release
	switch {
	case c.opts.NoAdditiveMembers:
		most = 11
	case slices.Contains(c.opts.NoProtocols, "PROXYV2"):
		most = 22
	case len(c.opts.NoProtocols) > 0:
		most = 23
	case c.opts.NoAdditionalVIPs:
		most = 26
	}
	versions := make([]any, 0, most)
	for i := range most {
		status := "SUPPORTED"
		if i == most-1 {
			status = "CURRENT"
		}
		versions = append(versions, map[string]any{
			"id": fmt.Sprintf("v2.%d", i), "status": status, "updated": "2022-08-29T00:00:00Z",
			"links": []any{map[string]any{"href": self, "rel": "self"}},
		})
	}
	return jsonResponse(http.StatusOK, map[string]any{"versions": versions}), true
}

// balancing answers a request to Octavia, with the lock held.
func (t *tx) balancing(r *http.Request, where target, in map[string]any) (response, error) {
	switch where.segment {
	case "quotas":
		return t.lbQuotas(r, where, in)
	case "providers":
		return t.providers(r, where)
	case "flavors":
		return t.flavors(r, where)
	case "availabilityzones":
		return t.availabilityZones(r, where)
	case "flavorprofiles", "availabilityzoneprofiles":
		return t.profiles(where)
	}
	k := where.kind
	if k == nil {
		return pathResponse("Not Found", ""), nil
	}
	if where.parent != "" {
		if _, ok := t.any("pool", where.parent); !ok { // Octavia fails while it reads the path, not for the resource
			return pathResponse("Bad Request", balancerMissing("pool", where.parent).message), nil
		}
		if _, err := t.balancer("pool", where.parent); err != nil {
			return response{}, err
		}
	}
	switch {
	case where.sub != "":
		return t.aspect(r, where)
	case where.label == "member_batch":
		return t.batch(r, where, in)
	case where.id != "":
		return t.balancerItem(r, where, in)
	case r.Method == http.MethodGet:
		return t.balancerList(r, where)
	case r.Method == http.MethodPost:
		return t.balancerCreate(where, in)
	}
	return response{}, octavia(http.StatusMethodNotAllowed, "MethodNotAllowed", "Method Not Allowed")
}

// aspect is what hangs below one resource: its status tree, its statistics, its failover.
func (t *tx) aspect(r *http.Request, where target) (response, error) {
	o, err := t.balancer(where.kind.name, where.id)
	if err != nil {
		return response{}, err
	}
	name := where.kind.name
	switch {
	case (where.sub == "status" || where.sub == "statuses") && name == "loadbalancer" && r.Method == http.MethodGet:
		return jsonResponse(http.StatusOK, map[string]any{"statuses": map[string]any{"loadbalancer": t.statusTree(o)}}), nil
	case where.sub == "stats" && (name == "loadbalancer" || name == "listener") && r.Method == http.MethodGet:
		return jsonResponse(http.StatusOK, map[string]any{"stats": map[string]any{
			"bytes_in": 0, "bytes_out": 0, "active_connections": 0, "total_connections": 0, "request_errors": 0,
		}}), nil
	case where.sub == "failover" && name == "loadbalancer" && r.Method == http.MethodPut:
		return t.failover(o)
	}
	return pathResponse("Not Found", ""), nil
}

// balancer finds a resource of Octavia. One of another project is refused, not hidden.
func (t *tx) balancer(kindName, id string) (*object, error) {
	o, ok := t.any(kindName, id)
	if !ok {
		return nil, balancerMissing(kindName, id)
	}
	if !t.who.admin && o.project != t.who.project {
		return nil, policyForbidden()
	}
	return o, nil
}

// balancerCreate is POST of one resource.
func (t *tx) balancerCreate(where target, in map[string]any) (response, error) {
	k := where.kind
	attrs, ok := in[k.name].(map[string]any)
	if !ok {
		return response{}, invalidField(k.name, "", "Mandatory field missing.")
	}
	if where.parent != "" {
		attrs["pool_id"] = where.parent
	}
	if err := t.c.unknownProtocol(attrs, k.name == "pool"); err != nil {
		return response{}, err
	}
	doc, err := lbForCreate(k, attrs)
	if err != nil {
		return response{}, err
	}
	o, err := k.create(t, doc)
	if err != nil {
		return response{}, err
	}
	out := jsonResponse(http.StatusCreated, map[string]any{k.name: t.c.lbView(o, k.name == "loadbalancer")})
	out.items = 1
	return out, nil
}

// balancerItem is GET, PUT or DELETE of one resource.
func (t *tx) balancerItem(r *http.Request, where target, in map[string]any) (response, error) {
	k := where.kind
	o, err := t.balancer(k.name, where.id)
	if err != nil {
		return response{}, err
	}
	if where.parent != "" && str(o.doc, "pool_id") != where.parent {
		return response{}, balancerMissing(k.name, where.id)
	}
	switch r.Method {
	case http.MethodGet:
		doc := t.c.lbView(o, false)
		return jsonResponse(http.StatusOK, map[string]any{k.name: onlyFields(doc, r.URL.Query()["fields"])}), nil
	case http.MethodPut:
		attrs, ok := in[k.name].(map[string]any)
		if !ok {
			return response{}, invalidField(k.name, "", "Mandatory field missing.")
		}
		attrs, err := lbForUpdate(k, attrs)
		if err != nil {
			return response{}, err
		}
		if err := k.update(t, o, attrs); err != nil {
			return response{}, err
		}
		return jsonResponse(http.StatusOK, map[string]any{k.name: t.c.lbView(o, false)}), nil
	case http.MethodDelete:
		if k.name == "loadbalancer" {
			err = t.removeLoadBalancer(o, pythonTruth(r.URL.Query().Get("cascade")))
		} else {
			err = k.remove(t, o)
		}
		if err != nil {
			return response{}, err
		}
		return response{status: http.StatusNoContent, items: 1}, nil
	}
	return response{}, octavia(http.StatusMethodNotAllowed, "MethodNotAllowed", "Method Not Allowed")
}

// pythonTruth is oslo's bool_from_string.
func pythonTruth(s string) bool {
	return slices.Contains([]string{"1", "t", "true", "on", "y", "yes"}, strings.ToLower(s))
}

// lbInsert adds a resource of Octavia, in PENDING_CREATE.
func (t *tx) lbInsert(k *kind, doc map[string]any) *object {
	c := t.c
	c.lastSeq++
	o := &object{
		kind: k, id: c.newID(), project: str(doc, "project_id"), seq: c.lastSeq, doc: doc, auto: map[string]bool{},
	}
	doc["id"], doc["created_at"], doc["updated_at"] = o.id, lbStamp(t.now), nil
	doc["provisioning_status"] = pendingCreate
	if doc["operating_status"] == nil {
		doc["operating_status"] = offline
	}
	t.enter(o)
	return o
}

// lbSet changes attributes of a resource of Octavia.
func (t *tx) lbSet(o *object, attrs map[string]any) {
	old := o.doc
	doc := cloneWith(old, attrs)
	doc["updated_at"] = lbStamp(t.now)
	t.replace(o, doc)
	t.onUndo(func() { t.replace(o, old) })
}

func (t *tx) setStatus(o *object, status string) {
	t.lbSet(o, map[string]any{"provisioning_status": status})
}

func lbStamp(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05") }

func lbStatus(o *object) string { return str(o.doc, "provisioning_status") }

// octavia makes an error with Octavia's exception name and text.
func octavia(status int, kind, format string, args ...any) *apiError {
	return &apiError{status: status, kind: kind, message: fmt.Sprintf(format, args...)}
}

func balancerMissing(kindName, id string) *apiError {
	return octavia(http.StatusNotFound, "NotFound", "%s %s not found.", humanName(kindName), id)
}

func humanName(kindName string) string {
	switch kindName {
	case "loadbalancer":
		return "Load Balancer"
	case "healthmonitor":
		return "Health Monitor"
	}
	return strings.ToUpper(kindName[:1]) + kindName[1:]
}

func policyForbidden() *apiError {
	return octavia(http.StatusForbidden, "PolicyForbidden", "Policy does not allow this request to be performed.")
}

// pathResponse is how Octavia says that a path leads nowhere.
func pathResponse(title, description string) response {
	r := jsonResponse(http.StatusNotFound,
		map[string]any{"code": http.StatusNotFound, "title": title, "description": description})
	r.error = "HTTPNotFound"
	return r
}

func invalidField(name string, value any, why string) *apiError {
	return octavia(http.StatusBadRequest, "InvalidInput", "Invalid input for field/attribute %s. Value: '%v'. %s", name,
		value, why)
}

func validation(format string, args ...any) *apiError {
	return octavia(http.StatusBadRequest, "ValidationException", "Validation failure: "+format, args...)
}

func noSubresource(resource, id string) *apiError {
	return octavia(http.StatusBadRequest, "InvalidSubresource", "%s %s not found.", resource, id)
}

func immutable(resource, id string) *apiError {
	return octavia(http.StatusConflict, "ImmutableObject", "%s %s is immutable and cannot be updated.", resource, id)
}

func quotaMet(resource string) *apiError {
	return octavia(http.StatusForbidden, "QuotaException", "Quota has been met for resources: %s", resource)
}

// faultResponse words err as Octavia does.
func faultResponse(err error) response {
	var e *apiError
	if !errors.As(err, &e) {
		e = octavia(http.StatusInternalServerError, "InternalServerError", "%v", err)
	}
	code := "Client"
	if e.status >= http.StatusInternalServerError {
		code = "Server"
	}
	r := jsonResponse(e.status, map[string]any{"faultcode": code, "faultstring": e.message, "debuginfo": nil})
	r.error = e.kind
	return r
}
