// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
)

func (a *API) servePatch(c *call) error {
	body, err := readAll(c)
	if err != nil {
		return err
	}
	media, _, err := mime.ParseMediaType(c.request.Header.Get("Content-Type"))
	if err != nil {
		media = c.request.Header.Get("Content-Type")
	}
	kind := types.PatchType(media)
	if kind == types.ApplyYAMLPatchType {
		return a.serveApply(c, body)
	}
	it, err := a.patch(c.view, c.namespace, c.name, kind, body, c.writeOptions())
	if err != nil {
		return err
	}
	c.answer(http.StatusOK, it)
	return nil
}

// patch changes an object by a merge, strategic merge or JSON patch.
func (a *API) patch(v *view, namespace, name string, kind types.PatchType, body []byte, o writeOptions) (*item, error) {
	apply, err := patcher(v, kind, body)
	if err != nil {
		return nil, err
	}
	it, _, err := a.mutate(v.res, namespace, name, o.dry, func(current *item) (*change, error) {
		if current == nil {
			return nil, apierrors.NewNotFound(v.res.kind.Resource(), name)
		}
		object, err := apply(v.show(current.object))
		if err != nil {
			return nil, err
		}
		if object["metadata"] == nil {
			return nil, invalid(v.res, name, "metadata", "Required value")
		}
		if given := text(object, "metadata", "name"); given != name {
			return nil,
				apierrors.NewBadRequest(
					fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", given, name),
				)
		}
		object = v.take(writable(object))
		if err := a.validate(v.res, object, o); err != nil {
			return nil, err
		}
		return a.replace(v.res, current, object, o)
	})
	return it, err
}

// patcher decodes a patch once and returns what applies it. What it returns shares what it did not change with its
// input.
func patcher(v *view, kind types.PatchType, body []byte) (func(map[string]any) (map[string]any, error), error) {
	switch kind {
	case types.JSONPatchType:
		return jsonPatcher(body)
	case types.MergePatchType, types.StrategicMergePatchType:
	case types.ApplyYAMLPatchType, types.ApplyCBORPatchType:
		fallthrough
	default:
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
			Message: fmt.Sprintf("the body of the request was in an unknown format - accepted media types include: %s, %s, "+
				"%s, %s",
				types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType),
		}}
	}
	var patch map[string]any
	if err := utiljson.Unmarshal(body, &patch); err != nil {
		return nil, apierrors.NewBadRequest("decoding patch: " + err.Error())
	}
	if kind == types.StrategicMergePatchType {
		if v.kind.Custom {
			return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType,
				Reason:  metav1.StatusReasonUnsupportedMediaType,
				Message: "strategic merge patch is not supported for custom resources",
			}}
		}
		if !plainStrategic(patch) {
			return strategicPatcher(v, patch)
		}
	}
	return func(object map[string]any) (map[string]any, error) {
		return mergePatch(object, patch), nil
	}, nil
}

// plainStrategic says whether a strategic merge patch means the same as a merge patch: no lists and no directives.
func plainStrategic(patch map[string]any) bool {
	for key, value := range patch {
		if len(key) > 0 && key[0] == '$' {
			return false
		}
		switch value := value.(type) {
		case []any:
			return false
		case map[string]any:
			if !plainStrategic(value) {
				return false
			}
		}
	}
	return true
}

func strategicPatcher(v *view, patch map[string]any) (func(map[string]any) (map[string]any, error), error) {
	typed, err := scheme.Scheme.New(schema.GroupVersionKind{Group: v.Group, Version: v.Version, Kind: v.kind.Kind})
	if err != nil {
		//nolint:nilerr // no type, no strategy
		return func(object map[string]any) (map[string]any, error) { return mergePatch(object, patch), nil }, nil
	}
	meta, err := strategicpatch.NewPatchMetaFromStruct(typed)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return func(object map[string]any) (map[string]any, error) {
		out, err := strategicpatch.StrategicMergeMapPatchUsingLookupPatchMeta(runtime.DeepCopyJSON(object),
			runtime.DeepCopyJSON(patch), meta)
		if err != nil {
			return nil, apierrors.NewBadRequest("applying strategic merge patch: " + err.Error())
		}
		return out, nil
	}, nil
}

// mergePatch is RFC 7386 without copying what the patch does not touch.
func mergePatch(object, patch map[string]any) map[string]any {
	out := make(map[string]any, len(object)+len(patch))
	for key, value := range object {
		out[key] = value
	}
	for key, value := range patch {
		switch value := value.(type) {
		case nil:
			delete(out, key)
		case map[string]any:
			old, _ := out[key].(map[string]any)
			out[key] = mergePatch(old, value)
		default:
			out[key] = value
		}
	}
	return out
}

func jsonPatcher(body []byte) (func(map[string]any) (map[string]any, error), error) {
	patch, err := jsonpatch.DecodePatch(body)
	if err != nil {
		return nil, apierrors.NewBadRequest("decoding patch: " + err.Error())
	}
	return func(object map[string]any) (map[string]any, error) {
		before, err := json.Marshal(object)
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		after, err := patch.Apply(before)
		if err != nil {
			return nil,
				apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0,
					false)
		}
		var out map[string]any
		if err := utiljson.Unmarshal(after, &out); err != nil {
			return nil, apierrors.NewBadRequest("the patched object is no object: " + err.Error())
		}
		return out, nil
	}, nil
}
