// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// writeOptions are what a request says beside its object.
type writeOptions struct {
	manager     string // field manager; "" writes without tracking
	subresource string // "", "status", "finalize"
	dry         bool
	// asIs keeps status and skips defaults: writes of the simulation itself and of tests.
	asIs bool
}

func namespaces() schema.GroupResource { return schema.GroupResource{Resource: "namespaces"} }

func terminating(gr schema.GroupResource, namespace, name string) error {
	err := apierrors.NewForbidden(gr, name,
		fmt.Errorf("unable to create new content in namespace %s because it is being terminated", namespace))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: "NamespaceTerminating", Field: "metadata.namespace",
		Message: fmt.Sprintf("namespace %s is being terminated", namespace),
	}}
	return err
}

// create stores a new object. The object becomes the store's.
func (a *API) create(res *resource, namespace string, object map[string]any, o writeOptions) (*item, error) {
	meta := metadata(object)
	if res.kind.Namespaced {
		meta["namespace"] = namespace
	} else {
		delete(meta, "namespace")
	}
	if err := a.validate(res, object, o); err != nil {
		return nil, err
	}
	prefix := text(object, "metadata", "generateName")
	generate := text(object, "metadata", "name") == ""
	for try := 0; ; try++ {
		if generate {
			meta["name"] = prefix + rand.String(5)
		}
		name := text(object, "metadata", "name")
		it, _, err := a.mutate(res, namespace, name, o.dry, func(current *item) (*change, error) {
			if current != nil {
				return nil, apierrors.NewAlreadyExists(res.kind.Resource(), name)
			}
			fresh := a.prepareNew(res, object, o)
			if !o.asIs {
				if err := a.serviceConflict(res, nil, fresh); err != nil {
					return nil, err
				}
			}
			return &change{object: fresh}, nil
		})
		if err != nil && generate && apierrors.IsAlreadyExists(err) && try < 8 {
			continue
		}
		return it, err
	}
}

// prepareNew fills in what the server sets on a new object.
func (a *API) prepareNew(res *resource, object map[string]any, o writeOptions) map[string]any {
	meta := metadata(object)
	if !o.asIs || meta["uid"] == nil {
		meta["uid"] = string(uuid.NewUUID())
	}
	if !o.asIs || meta["creationTimestamp"] == nil {
		meta["creationTimestamp"] = a.now()
	}
	for _, key := range []string{
		"resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields",
	} {
		delete(meta, key)
	}
	delete(meta, "generation")
	if res.kind.Generation {
		meta["generation"] = int64(1)
	}
	if !o.asIs && res.kind.Status {
		delete(object, "status")
	}
	a.defaults(res, object)
	return object
}

// update replaces an object, or its status alone.
func (a *API) update(res *resource, namespace, name string, object map[string]any, o writeOptions) (*item, error) {
	meta := metadata(object)
	if given := text(object, "metadata", "name"); given != name {
		if given != "" || !o.asIs {
			return nil,
				apierrors.NewBadRequest(
					fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", given, name),
				)
		}
		meta["name"] = name
	}
	if res.kind.Namespaced {
		if given := text(object, "metadata", "namespace"); given != "" && given != namespace {
			return nil,
				apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
		}
		meta["namespace"] = namespace
	}
	if err := a.validate(res, object, o); err != nil {
		return nil, err
	}
	it, _, err := a.mutate(res, namespace, name, o.dry, func(current *item) (*change, error) {
		if current == nil {
			return nil, apierrors.NewNotFound(res.kind.Resource(), name)
		}
		if (res.kind.Custom || res.kind.Resource() == leases()) && !o.asIs && meta["resourceVersion"] == nil {
			return nil, invalid(res, name, "metadata.resourceVersion", "Invalid value: 0x0: must be specified for an update")
		}
		if uid, _ := meta["uid"].(string); uid != "" && uid != current.uid {
			return nil, uidConflict(res, current.name, uid, current.uid)
		}
		return a.replace(res, current, writable(object), o)
	})
	return it, err
}

// replace decides what a full new state makes of the present one. object is private to it, down to metadata.
func (a *API) replace(res *resource, current *item, object map[string]any, o writeOptions) (*change, error) {
	meta, old := metadata(object), metadata(current.object)
	if uid, _ := meta["uid"].(string); uid != "" && uid != current.uid {
		return nil, uidFixed(res, current.name, uid)
	}
	if version, ok := meta["resourceVersion"].(string); ok && version != "" && version != "0" &&
		version != strconv.FormatUint(current.version, 10) {
		return nil, apierrors.NewConflict(res.kind.Resource(), current.name,
			fmt.Errorf("the object has been modified; please apply your changes to the latest version and try again"))
	}
	for _, key := range []string{
		"uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "generation",
		"selfLink", "generateName", "name", "namespace",
	} {
		if value, ok := old[key]; ok {
			meta[key] = value
		} else {
			delete(meta, key)
		}
	}
	reset := isReset(meta["managedFields"])
	delete(meta, "managedFields")
	object = subresourceParts(res, current.object, object, o)
	if !o.asIs {
		if err := serviceStatus(res, object, o); err != nil {
			return nil, err
		}
		a.keepImmutable(res, current.object, object)
		if err := a.serviceConflict(res, current.object, object); err != nil {
			return nil, err
		}
	}
	meta = metadata(object)
	m := current.managed
	if reset {
		m = nil
	}
	if res.kind.Generation && !sameSpec(current.object, object) {
		generation, _ := old["generation"].(int64)
		meta["generation"] = generation + 1
	}
	if !reset && reflect.DeepEqual(current.object, object) {
		return nil, nil //nolint:nilnil // no change is an answer of its own
	}
	if m != nil && o.manager != "" {
		m = a.trackUpdate(res, m, current.object, object, o)
	}
	return &change{object: object, managed: m, remove: finished(res, object)}, nil
}

// subresourceParts keeps the parts of an object that a write through this endpoint does not reach.
func subresourceParts(res *resource, old, object map[string]any, o writeOptions) map[string]any {
	keep := func(from, to map[string]any, key string) {
		if value, ok := from[key]; ok {
			to[key] = value
		} else {
			delete(to, key)
		}
	}
	switch {
	case o.asIs:
	case o.subresource == "status":
		out := maps.Clone(old)
		keep(object, out, "status")
		meta := maps.Clone(metadata(old))
		keep(metadata(object), meta, "annotations")
		keep(metadata(object), meta, "labels")
		out["metadata"] = meta
		return out
	case res.kind.Status && o.subresource == "":
		keep(old, object, "status")
		if res.kind.Resource() == namespaces() {
			keep(old, object, "spec")
		}
	}
	return object
}

// sameSpec compares everything but metadata and status.
func sameSpec(x, y map[string]any) bool {
	count := func(m map[string]any) (n int) {
		for key := range m {
			if key != "metadata" && key != "status" {
				n++
			}
		}
		return n
	}
	if count(x) != count(y) {
		return false
	}
	for key, value := range x {
		if key != "metadata" && key != "status" && !reflect.DeepEqual(value, y[key]) {
			return false
		}
	}
	return true
}

// finished says whether an object that is being deleted has nothing left to wait for.
func finished(res *resource, object map[string]any) bool {
	meta := metadata(object)
	if meta["deletionTimestamp"] == nil || hasItems(meta["finalizers"]) {
		return false
	}
	if res.kind.Resource() == namespaces() {
		spec, _ := object["spec"].(map[string]any)
		return !hasItems(spec["finalizers"])
	}
	grace, _ := meta["deletionGracePeriodSeconds"].(int64)
	return grace == 0
}

func hasItems(value any) bool {
	list, _ := value.([]any)
	return len(list) > 0
}

// remove deletes an object or marks it as being deleted. It returns the object's last or present state.
func (a *API) remove(
	res *resource, namespace, name string, o metav1.DeleteOptions, dry bool,
) (it *item, gone bool, err error) {
	it, gone, err = a.mutate(res, namespace, name, dry, func(current *item) (*change, error) {
		if current == nil {
			return nil, apierrors.NewNotFound(res.kind.Resource(), name)
		}
		if err := preconditions(res, current, o.Preconditions); err != nil {
			return nil, err
		}
		if res.kind.Resource() == namespaces() && lasting(name) {
			return nil, apierrors.NewForbidden(namespaces(), name, errors.New("this namespace may not be deleted"))
		}
		object := writable(current.object)
		meta := metadata(object)
		grace := a.gracePeriod(res, object, o)
		if meta["deletionTimestamp"] != nil {
			if finished(res, object) || (grace == 0 && shorten(object)) {
				return &change{object: object, managed: current.managed, remove: finished(res, object)}, nil
			}
			return nil, nil //nolint:nilnil // being deleted already
		}
		meta["deletionTimestamp"] = a.now()
		meta["deletionGracePeriodSeconds"] = grace
		if generation, ok := meta["generation"].(int64); ok {
			meta["generation"] = generation + 1
		}
		remove := finished(res, object)
		if remove {
			// what vanishes at once is shown in its last state, as a real server does
			object = writable(current.object)
		}
		if res.kind.Resource() == namespaces() {
			object["status"] = map[string]any{"phase": "Terminating"}
		}
		return &change{object: object, managed: current.managed, remove: remove}, nil
	})
	return it, gone, err
}

// lasting says whether a namespace may never be deleted.
func lasting(namespace string) bool {
	return namespace == "default" || namespace == "kube-system" || namespace == "kube-public"
}

// shorten ends an object's grace period; false where there is none.
func shorten(object map[string]any) bool {
	meta := metadata(object)
	grace, _ := meta["deletionGracePeriodSeconds"].(int64)
	meta["deletionGracePeriodSeconds"] = int64(0)
	return grace > 0
}

// gracePeriod is in seconds; only pods have one, where the options ask for graceful deletion.
func (a *API) gracePeriod(res *resource, object map[string]any, o metav1.DeleteOptions) int64 {
	if a.options.PodGrace <= 0 || res.kind.Resource() != (schema.GroupResource{Resource: "pods"}) {
		return 0
	}
	if o.GracePeriodSeconds != nil && *o.GracePeriodSeconds == 0 {
		return 0
	}
	return max(1, int64(a.options.PodGrace.Seconds()))
}

func preconditions(res *resource, current *item, p *metav1.Preconditions) error {
	if p == nil {
		return nil
	}
	if p.UID != nil && *p.UID != types.UID(current.uid) {
		return uidConflict(res, current.name, string(*p.UID), current.uid)
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != strconv.FormatUint(current.version, 10) {
		return apierrors.NewConflict(res.kind.Resource(), current.name, fmt.Errorf(
			"the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%d). The object "+
				"might have been modified",
			*p.ResourceVersion, current.version))
	}
	return nil
}

// uidFixed refuses a patch or an apply that names another UID: unlike in an update, it is a change of an immutable
// field.
func uidFixed(res *resource, name, given string) error {
	return invalid(res, name, "metadata.uid", fmt.Sprintf("Invalid value: %q: field is immutable", given))
}

func uidConflict(res *resource, name, given, present string) error {
	//nolint:staticcheck // the real server's words
	return apierrors.NewConflict(res.kind.Resource(), name,
		fmt.Errorf("Precondition failed: UID in precondition: %s, UID in object meta: %s", given, present))
}

func invalid(res *resource, name, field, message string) error {
	gk := schema.GroupKind{Group: res.kind.Group, Kind: res.kind.Kind}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Message: fmt.Sprintf("%s %q is invalid: %s: %s", gk.String(), name, field, message),
		Details: &metav1.StatusDetails{Group: gk.Group, Kind: gk.Kind, Name: name, Causes: []metav1.StatusCause{
			{Type: metav1.CauseTypeFieldValueInvalid, Field: field, Message: message},
		}},
	}}
}
