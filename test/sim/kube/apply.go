// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/yaml"
)

const beforeFirstApply = "before-first-apply"

func (a *API) serveApply(c *call, body []byte) error {
	config, err := decodeApply(body)
	if err != nil {
		return err
	}
	o := c.writeOptions()
	if o.manager = c.query.Get("fieldManager"); o.manager == "" {
		return invalid(c.view.res, c.name, "fieldManager", "Required value: is required for apply patch")
	}
	if text(config, "apiVersion") == "" || text(config, "kind") == "" {
		return apierrors.NewBadRequest("apiVersion and kind must be set in an apply patch")
	}
	if err := c.checkType(config); err != nil {
		return err
	}
	it, created, err := a.apply(c.view, c.namespace, c.name, config, truthy(c.query.Get("force")), o)
	if err != nil {
		return err
	}
	code := http.StatusOK
	if created {
		code = http.StatusCreated
	}
	c.answer(code, it)
	return nil
}

func decodeApply(body []byte) (config map[string]any, err error) {
	if trimmed := strings.TrimSpace(string(body)); !strings.HasPrefix(trimmed, "{") {
		if body, err = yaml.YAMLToJSON(body); err != nil {
			return nil, apierrors.NewBadRequest("error decoding YAML: " + err.Error())
		}
	}
	if err := utiljson.Unmarshal(body, &config); err != nil {
		return nil, apierrors.NewBadRequest("error decoding apply patch: " + err.Error())
	}
	if _, ok := metadata(config)["managedFields"]; ok {
		return nil, apierrors.NewBadRequest("metadata.managedFields must be nil")
	}
	return config, nil
}

// apply is server-side apply. The configuration is the store's from now on.
func (a *API) apply(
	v *view, namespace, name string, config map[string]any, force bool, o writeOptions,
) (it *item, created bool, err error) {
	config = v.take(config)
	meta := metadata(config)
	if given := text(config, "metadata", "name"); given != "" && given != name {
		return nil, false,
			apierrors.NewBadRequest(
				fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", given, name),
			)
	}
	meta["name"] = name
	if v.kind.Namespaced {
		meta["namespace"] = namespace
	}
	uid := text(config, "metadata", "uid")
	if err := a.validate(v.res, config, o); err != nil {
		return nil, false, err
	}
	it, _, err = a.mutate(v.res, namespace, name, o.dry, func(current *item) (*change, error) {
		if current == nil {
			if uid != "" {
				return nil, apierrors.NewConflict(v.res.kind.Resource(), name,
					fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
			}
			created = true
			return a.applyNew(v.res, config, o)
		}
		created = false
		return a.applyOver(v.res, current, config, force, o)
	})
	return it, created && err == nil, err
}

func (a *API) applyNew(res *resource, config map[string]any, o writeOptions) (*change, error) {
	object := a.prepareNew(res, writable(config), o)
	set, err := ownedBy(a.types.of(res.kind), config)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	m := &managed{full: true, sets: fieldpath.ManagedFields{}, times: map[string]string{}}
	key := managerKey{o.manager, metav1.ManagedFieldsOperationApply, text(config, "apiVersion"), o.subresource}.String()
	m.sets[key] = fieldpath.NewVersionedSet(set, fieldpath.APIVersion(text(config, "apiVersion")), true)
	m.times[key] = a.now()
	return &change{object: object, managed: m}, nil
}

func (a *API) applyOver(
	res *resource, current *item, config map[string]any, force bool, o writeOptions,
) (*change, error) {
	if uid := text(config, "metadata", "uid"); uid != "" && uid != current.uid {
		return nil, uidFixed(res, current.name, uid)
	}
	if version := text(config, "metadata", "resourceVersion"); version != "" &&
		version != strconv.FormatUint(current.version, 10) {
		return nil, apierrors.NewConflict(res.kind.Resource(), current.name,
			fmt.Errorf("the object has been modified; please apply your changes to the latest version and try again"))
	}
	version := text(config, "apiVersion")
	key := managerKey{o.manager, metav1.ManagedFieldsOperationApply, version, o.subresource}.String()
	live := current.object
	m := current.managed.clone()
	narrow := metadataOnly(config) && m.metadataOnly(key)
	parse, liveValue, configValue := a.types.narrow(), labelsAndAnnotations(live), labelsAndAnnotations(config)
	var err error
	switch {
	case !narrow:
		parse, liveValue, configValue = a.types.of(res.kind, live), live, withoutSystem(config)
		err = m.complete(parse, live, a.now())
	case len(m.sets) == 0:
		err = m.claimRest(parse, liveValue, a.now())
	}
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	merged, sets, err := mergeApply(parse, liveValue, configValue, m.sets, key, version, force)
	if err != nil {
		return nil, applyError(res, current.name, err)
	}
	m.sets = sets
	strip(m.sets, key)
	object := writable(live)
	switch {
	case merged == nil:
	case narrow:
		meta := metadata(object)
		for _, part := range []string{"labels", "annotations"} {
			if value, ok := metadata(merged)[part]; ok {
				meta[part] = value
			} else {
				delete(meta, part)
			}
		}
	default:
		object = merged
	}
	return a.applied(res, current, object, m, key, o)
}

// applied finishes an apply: the write is skipped where neither the object nor who owns what has changed.
func (a *API) applied(
	res *resource, current *item, object map[string]any, m *managed, key string, o writeOptions,
) (*change, error) {
	o2 := o
	o2.manager = "" // the fields are tracked already
	c, err := a.replace(res, &item{
		namespace: current.namespace, name: current.name, uid: current.uid, version: current.version,
		object: current.object, managed: current.managed,
	}, writable(object), o2)
	if err != nil {
		return nil, err
	}
	if c == nil {
		if m.equals(current.managed) {
			return nil, nil //nolint:nilnil // no change is an answer of its own
		}
		c = &change{object: writable(current.object)}
	}
	m.times[key] = a.now()
	c.managed = m
	return c, nil
}

// mergeApply runs the library on two values of one type. A nil object means that nothing changes.
func mergeApply(
	parse parser, live, config map[string]any, sets fieldpath.ManagedFields, manager, version string, force bool,
) (map[string]any, fieldpath.ManagedFields, error) {
	liveTyped, err := parse(live, typed.AllowDuplicates)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the live object: %w", err)
	}
	configTyped, err := parse(config)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the applied object: %w", err)
	}
	updater := (&merge.UpdaterBuilder{Converter: sameVersion{}}).BuildUpdater()
	out, sets, err := updater.Apply(liveTyped, configTyped, fieldpath.APIVersion(version), sets, manager, force)
	if err != nil || out == nil {
		return nil, sets, err
	}
	object, ok := out.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, nil, fmt.Errorf("the applied object is no object")
	}
	return object, sets, nil
}

// labelsAndAnnotations is the part of an object that a metadata-only apply can touch, and its name, so that it is
// never empty.
func labelsAndAnnotations(object map[string]any) map[string]any {
	meta := map[string]any{}
	for _, part := range []string{"name", "labels", "annotations"} {
		if value, ok := metadata(object)[part]; ok {
			meta[part] = value
		}
	}
	return map[string]any{"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": meta}
}

// metadataOnly says whether a configuration names nothing but labels and annotations beside its identity.
func metadataOnly(config map[string]any) bool {
	for key := range config {
		if key != "apiVersion" && key != "kind" && key != "metadata" {
			return false
		}
	}
	for key := range metadata(config) {
		switch key {
		case "name", "namespace", "uid", "resourceVersion", "labels", "annotations":
		default:
			return false
		}
	}
	return true
}

// withoutSystem drops what no client manages by applying: what the server sets.
func withoutSystem(object map[string]any) map[string]any {
	object = maps.Clone(object)
	meta := maps.Clone(metadata(object))
	for _, key := range []string{
		"uid", "resourceVersion", "generation", "creationTimestamp", "selfLink", "managedFields", "deletionTimestamp",
		"deletionGracePeriodSeconds", "generateName",
	} {
		delete(meta, key)
	}
	object["metadata"] = meta
	return object
}

// sameVersion converts nothing: all versions of a kind are alike here.
type sameVersion struct{}

func (sameVersion) Convert(object *typed.TypedValue, _ fieldpath.APIVersion) (*typed.TypedValue, error) {
	return object, nil
}

func (sameVersion) IsMissingVersionError(error) bool { return false }

// equalSets compares who owns what.
func equalSets(x, y fieldpath.ManagedFields) bool {
	return len(x) == len(y) && (reflect.DeepEqual(x, y) || x.Equals(y))
}

// applyError turns the library's errors into the server's.
func applyError(res *resource, name string, err error) error {
	var conflicts merge.Conflicts
	if errors.As(err, &conflicts) {
		causes, message := conflictMessages(conflicts)
		return apierrors.NewApplyConflict(causes, message)
	}
	return invalid(res, name, "", err.Error())
}
