// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// decodeObject reads an object as JSON, YAML or, for built-in kinds, protobuf. Whole numbers become int64.
func decodeObject(body []byte, contentType string) (map[string]any, error) {
	if strings.HasPrefix(contentType, runtime.ContentTypeProtobuf) {
		typed, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			return nil, apierrors.NewBadRequest("decoding protobuf: " + err.Error())
		}
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		if err != nil {
			return nil, apierrors.NewBadRequest("decoding protobuf: " + err.Error())
		}
		return object, nil
	}
	if strings.Contains(contentType, "cbor") {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
			Message: "the body of the request was in an unknown format - accepted media types include: application/json, " +
				"application/yaml",
		}}
	}
	if strings.Contains(contentType, "yaml") {
		var err error
		if body, err = yaml.YAMLToJSON(body); err != nil {
			return nil, apierrors.NewBadRequest("decoding yaml: " + err.Error())
		}
	}
	var object map[string]any
	if err := utiljson.Unmarshal(body, &object); err != nil {
		return nil, apierrors.NewBadRequest("decoding json: " + err.Error())
	}
	return object, nil
}

func (c *call) writeOptions() writeOptions {
	manager := c.query.Get("fieldManager")
	if manager == "" {
		manager, _, _ = strings.Cut(c.request.UserAgent(), "/")
	}
	if manager == "" {
		manager = "unknown"
	}
	return writeOptions{manager: manager, subresource: c.subresource, dry: c.query.Get("dryRun") == "All"}
}

// checkType refuses an object of another kind than the URL's.
func (c *call) checkType(object map[string]any) error {
	kind, version := text(object, "kind"), text(object, "apiVersion")
	if kind != "" && kind != c.view.kind.Kind || version != "" && version != c.view.GroupVersion.String() {
		return apierrors.NewBadRequest("the object provided is unrecognized or of another kind: " + version + ", Kind=" +
			kind +
			", expected " + c.view.GroupVersion.String() + ", Kind=" + c.view.kind.Kind)
	}
	return nil
}

func (c *call) answer(code int, it *item) {
	writeJSON(c, code, c.format.object(it))
}

func (a *API) serveGet(c *call) error {
	it, err := a.read(c.view.res, c.namespace, c.name)
	if err != nil {
		return err
	}
	c.answer(http.StatusOK, it)
	return nil
}

func (a *API) read(res *resource, namespace, name string) (*item, error) {
	a.mu.RLock()
	it := res.objects[objectKey(namespace, name)]
	a.mu.RUnlock()
	if it == nil {
		return nil, apierrors.NewNotFound(res.kind.Resource(), name)
	}
	return it, nil
}

func (a *API) serveCreate(c *call) error {
	object, err := readBody(c)
	if err != nil {
		return err
	}
	if object == nil {
		return apierrors.NewBadRequest("the request has no body")
	}
	switch c.subresource {
	case "binding":
		return a.serveBinding(c, object)
	case "eviction":
		return a.serveEviction(c)
	}
	if err := c.checkType(object); err != nil {
		return err
	}
	if given := text(object, "metadata", "namespace"); c.view.kind.Namespaced && given != "" && given != c.namespace {
		return apierrors.NewBadRequest(
			"the namespace of the provided object does not match the namespace sent on the request",
		)
	}
	it, err := a.create(c.view.res, c.namespace, c.view.take(object), c.writeOptions())
	if err != nil {
		return err
	}
	c.answer(http.StatusCreated, it)
	return nil
}

// serveBinding puts a pod on a node, as a scheduler does.
func (a *API) serveBinding(c *call, binding map[string]any) error {
	if err := a.bind(c.namespace, c.name, text(binding, "target", "name")); err != nil {
		return err
	}
	writeJSON(c, http.StatusCreated,
		encodeJSON(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: http.StatusCreated,
		}))
	return nil
}

func (a *API) serveEviction(c *call) error {
	if _, _, err := a.remove(c.view.res, c.namespace, c.name, metav1.DeleteOptions{}, false); err != nil {
		return err
	}
	writeJSON(c, http.StatusCreated,
		encodeJSON(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: http.StatusCreated,
		}))
	return nil
}

func (a *API) serveUpdate(c *call) error {
	object, err := readBody(c)
	if err != nil {
		return err
	}
	if object == nil {
		return apierrors.NewBadRequest("the request has no body")
	}
	if err := c.checkType(object); err != nil {
		return err
	}
	it, err := a.update(c.view.res, c.namespace, c.name, c.view.take(object), c.writeOptions())
	if err != nil {
		return err
	}
	c.answer(http.StatusOK, it)
	return nil
}

// deleteOptions reads the options of a deletion from body and query.
func (c *call) deleteOptions() (o metav1.DeleteOptions, err error) {
	body, err := readAll(c)
	if err != nil {
		return o, err
	}
	if len(body) > 0 {
		object, err := decodeObject(body, c.request.Header.Get("Content-Type"))
		if err != nil {
			return o, err
		}
		if err := json.Unmarshal(encodeJSON(object), &o); err != nil {
			return o, apierrors.NewBadRequest("decoding delete options: " + err.Error())
		}
	}
	if c.query.Get("gracePeriodSeconds") == "0" {
		o.GracePeriodSeconds = new(int64)
	}
	if c.query.Get("dryRun") == "All" {
		o.DryRun = []string{metav1.DryRunAll}
	}
	return o, nil
}

func (a *API) serveDelete(c *call) error {
	o, err := c.deleteOptions()
	if err != nil {
		return err
	}
	it, gone, err := a.remove(c.view.res, c.namespace, c.name, o, len(o.DryRun) > 0)
	if err != nil {
		return err
	}
	if !gone || c.view.kind.Plural == "pods" {
		c.answer(http.StatusOK, it)
		return nil
	}
	writeJSON(c, http.StatusOK, encodeJSON(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: it.name, Group: c.view.Group, Kind: c.view.kind.Plural, UID: types.UID(it.uid)},
	}))
	return nil
}

func (a *API) serveDeleteCollection(c *call) error {
	o, err := c.deleteOptions()
	if err != nil {
		return err
	}
	selector, err := selectorOf(c.view, c.namespace, c.name, c.query)
	if err != nil {
		return err
	}
	a.mu.RLock()
	items, _ := c.view.res.snapshotLocked(c.namespace, 0)
	a.mu.RUnlock()
	for _, it := range items {
		if !selector.matches(it) {
			continue
		}
		if _, _, err := a.remove(c.view.res, it.namespace, it.name, o, len(o.DryRun) > 0); err != nil &&
			!apierrors.IsNotFound(err) {
			return err
		}
	}
	writeJSON(c, http.StatusOK, encodeJSON(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Group: c.view.Group, Kind: c.view.kind.Plural},
	}))
	return nil
}
