// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// selector says which objects of a resource a list or watch is about.
type selector struct {
	namespace, name string
	labels          labels.Selector
	fields          fields.Selector
}

func selectorOf(v *view, namespace, name string, query url.Values) (selector, error) {
	s := selector{namespace: namespace, name: name, labels: labels.Everything(), fields: fields.Everything()}
	var err error
	if expression := query.Get("labelSelector"); expression != "" {
		if s.labels, err = labels.Parse(expression); err != nil {
			return s, apierrors.NewBadRequest(fmt.Sprintf("unable to parse requirement: %v", err))
		}
	}
	if expression := query.Get("fieldSelector"); expression != "" {
		if s.fields, err = fields.ParseSelector(expression); err != nil {
			return s, apierrors.NewBadRequest(err.Error())
		}
		for _, requirement := range s.fields.Requirements() {
			if !selectable(v, requirement.Field) {
				return s, apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", requirement.Field))
			}
		}
	}
	return s, nil
}

func (s selector) everything() bool {
	return s.name == "" && s.labels.Empty() && s.fields.Empty()
}

func (s selector) matches(it *item) bool {
	if it == nil || s.namespace != "" && it.namespace != s.namespace || s.name != "" && it.name != s.name {
		return false
	}
	return (s.labels.Empty() || s.labels.Matches(labelSet{it})) && (s.fields.Empty() || s.fields.Matches(fieldSet{it}))
}

// labelSet reads an item's labels without copying them.
type labelSet struct{ *item }

func (l labelSet) Has(key string) bool { _, ok := l.Lookup(key); return ok }

func (l labelSet) Get(key string) string { value, _ := l.Lookup(key); return value }

func (l labelSet) Lookup(key string) (string, bool) {
	all, _ := metadata(l.object)["labels"].(map[string]any)
	value, ok := all[key].(string)
	return value, ok
}

// fieldSet reads an item's fields by dotted path.
type fieldSet struct{ *item }

func (f fieldSet) Has(path string) bool { return true }

func (f fieldSet) Get(path string) string {
	var value any = f.object
	for _, step := range strings.Split(path, ".") {
		m, ok := value.(map[string]any)
		if !ok {
			return ""
		}
		value = m[step]
	}
	if path == "source" { // of an Event
		if component := text(f.object, "source", "component"); component != "" {
			return component
		}
		return text(f.object, "reportingComponent")
	}
	if value == nil {
		if path == "spec.hostNetwork" || path == "spec.unschedulable" {
			return "false"
		}
		return ""
	}
	return fmt.Sprint(value)
}

// selectable says which fields a kind can be selected by, as the real server's field label conversions do.
func selectable(v *view, path string) bool {
	if path == "metadata.name" || path == "metadata.namespace" && v.kind.Namespaced {
		return true
	}
	switch v.kind.Kind {
	case "Pod":
		return slices.Contains([]string{
			"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
			"spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName",
		}, path)
	case "Namespace":
		return path == "status.phase"
	case "Service":
		return path == "spec.clusterIP" || path == "spec.type"
	case "Node":
		return path == "spec.unschedulable"
	case "Secret":
		return path == "type"
	case "Event":
		return strings.HasPrefix(path, "involvedObject.") ||
			slices.Contains([]string{"reason", "reportingComponent", "source", "type"}, path)
	case "ReplicaSet":
		return path == "status.replicas"
	}
	return v.kind.Custom && slices.Contains(v.kind.Selectable, path)
}

// page is what a continue token says.
type page struct {
	Version uint64 `json:"rv"`
	Start   string `json:"start"` // the last key given out
}

// listing is a list's answer before it is encoded.
type listing struct {
	items     []*item
	version   uint64
	next      string
	remaining int
}

func (a *API) serveList(c *call) error {
	selector, err := selectorOf(c.view, c.namespace, c.name, c.query)
	if err != nil {
		return err
	}
	if truthy(c.query.Get("sendInitialEvents")) {
		return apierrors.NewBadRequest("sendInitialEvents is forbidden for list")
	}
	result, err := a.list(c.view, selector, c.query)
	if err != nil {
		return err
	}
	writeJSON(c, http.StatusOK, c.format.list(result, selector.everything()))
	return nil
}

func (a *API) list(v *view, s selector, query url.Values) (listing, error) {
	var result listing
	limit, _ := strconv.Atoi(query.Get("limit"))
	from, at, err := a.listVersion(v, query, limit)
	if err != nil {
		return result, err
	}
	a.mu.RLock()
	result.version = a.version
	items, ok := v.res.snapshotLocked(s.namespace, at)
	a.mu.RUnlock()
	if !ok {
		return result,
			apierrors.NewResourceExpired(
				"The provided continue parameter or resourceVersion is too old to display a consistent list result. You can " +
					"start a new list without it.",
			)
	}
	if at != 0 {
		result.version = at
	}
	for i, it := range items {
		if from != "" && it.sortKey() <= from || !s.matches(it) {
			continue
		}
		if limit > 0 && len(result.items) == limit {
			last := result.items[limit-1].sortKey()
			result.next = base64.RawURLEncoding.EncodeToString(encodeJSON(page{Version: result.version, Start: last}))
			result.remaining = len(items) - i
			break
		}
		result.items = append(result.items, it)
	}
	return result, nil
}

func (it *item) sortKey() string { return it.namespace + "\x00" + it.name }

// listVersion works out where a list starts and which version it shows; 0 is the present.
func (a *API) listVersion(v *view, query url.Values, limit int) (from string, at uint64, err error) {
	version, match := query.Get("resourceVersion"), query.Get("resourceVersionMatch")
	if token := query.Get("continue"); token != "" {
		var p page
		raw, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil || json.Unmarshal(raw, &p) != nil {
			return "", 0, apierrors.NewBadRequest("continue key is not valid")
		}
		if version != "" && version != "0" {
			return "", 0, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
		return p.Start, p.Version, nil
	}
	if version == "" {
		if match != "" {
			return "", 0,
				invalid(v.res, "", "resourceVersionMatch",
					"Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided")
		}
		return "", 0, nil
	}
	at, err = parseVersion(version)
	if err != nil {
		return "", 0, err
	}
	if at == 0 {
		if match == string(metav1.ResourceVersionMatchExact) {
			return "", 0,
				invalid(v.res, "", "resourceVersionMatch",
					`Forbidden: resourceVersionMatch "Exact" is forbidden for resourceVersion "0"`)
		}
		return "", 0, nil
	}
	a.mu.RLock()
	current := a.version
	a.mu.RUnlock()
	if at > current {
		return "", 0, tooLarge(at, current)
	}
	if match == string(metav1.ResourceVersionMatchExact) || match == "" && limit > 0 {
		return "", at, nil
	}
	return "", 0, nil
}

func parseVersion(version string) (uint64, error) {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("Invalid value: %q: invalid resource version", version))
	}
	return n, nil
}

func tooLarge(at, current uint64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", at, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{
		{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"},
	}
	return err
}

func expired(at, floor uint64) *apierrors.StatusError {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", at, floor))
}

// list encodes a list in the format.
func (f format) list(l listing, exact bool) []byte {
	meta := map[string]any{"resourceVersion": strconv.FormatUint(l.version, 10)}
	if l.next != "" {
		meta["continue"] = l.next
		if exact {
			meta["remainingItemCount"] = l.remaining
		}
	}
	if f.mode == asTable {
		return encodeJSON(f.table(l.items, meta, true))
	}
	kind, version := f.view.kind.Kind+"List", f.view.GroupVersion.String()
	if f.mode == asPartial {
		kind, version = "PartialObjectMetadataList", "meta.k8s.io/v1"
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, `{"kind":%q,"apiVersion":%q,"metadata":%s,"items":[`, kind, version, encodeJSON(meta))
	for i, it := range l.items {
		if i > 0 {
			out.WriteByte(',')
		}
		out.Write(f.object(it))
	}
	out.WriteString("]}")
	return out.Bytes()
}
