// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"maps"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validate checks what every object must satisfy: its kind, name, labels and annotations.
func (a *API) validate(res *resource, object map[string]any, o writeOptions) error {
	name, prefix := text(object, "metadata", "name"), text(object, "metadata", "generateName")
	if name == "" && prefix == "" {
		return invalid(res, "", "metadata.name", "Required value: name or generateName is required")
	}
	if name != "" {
		if problems := nameProblems(res, name); len(problems) > 0 {
			return invalid(res, name, "metadata.name", fmt.Sprintf("Invalid value: %q: %s", name, strings.Join(problems, ", ")))
		}
	}
	if o.asIs {
		return nil
	}
	if err := validateKind(res, object); err != nil {
		return err
	}
	for _, key := range []string{"labels", "annotations"} {
		values, err := stringMap(metadata(object)[key])
		if err != nil {
			return apierrors.NewBadRequest(
				fmt.Sprintf("json: cannot unmarshal %v into Go struct field ObjectMeta.metadata.%s of type string", err, key),
			)
		}
		var problems field.ErrorList
		if key == "labels" {
			problems = metav1validation.ValidateLabels(values, field.NewPath("metadata", key))
		} else {
			for k := range values {
				for _, problem := range validation.IsQualifiedName(strings.ToLower(k)) {
					problems = append(problems, field.Invalid(field.NewPath("metadata", key), k, problem))
				}
			}
		}
		if len(problems) > 0 {
			return apierrors.NewInvalid(schema.GroupKind{Group: res.kind.Group, Kind: res.kind.Kind}, name, problems)
		}
	}
	return nil
}

// validateKind checks of a few kinds what leader election and Events would otherwise be allowed.
func validateKind(res *resource, object map[string]any) error {
	name := text(object, "metadata", "name")
	switch res.kind.Resource() {
	case leases():
		spec, _ := object["spec"].(map[string]any)
		if seconds, given := spec["leaseDurationSeconds"].(int64); given && seconds <= 0 {
			return invalid(res, name, "spec.leaseDurationSeconds",
				fmt.Sprintf("Invalid value: %d: must be greater than 0", seconds))
		}
	case schema.GroupResource{Resource: "events"}:
		in, of := text(object, "metadata", "namespace"), text(object, "involvedObject", "namespace")
		if in != of && (of != "" || in != metav1.NamespaceDefault) {
			return invalid(res, name, "involvedObject.namespace",
				fmt.Sprintf("Invalid value: %q: does not match event.namespace", of))
		}
	}
	return nil
}

func leases() schema.GroupResource {
	return schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
}

func nameProblems(res *resource, name string) []string {
	switch res.kind.Resource() {
	case namespaces():
		return validation.IsDNS1123Label(name)
	case schema.GroupResource{Resource: "services"}:
		return validation.IsDNS1035Label(name)
	}
	return validation.IsDNS1123Subdomain(name)
}

// stringMap reads labels or annotations; the error names the JSON type that is in the way.
func stringMap(value any) (map[string]string, error) {
	if value == nil {
		return nil, nil
	}
	values, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s", jsonType(value))
	}
	out := make(map[string]string, len(values))
	for k, v := range values {
		s, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("%s", jsonType(v))
		}
		out[k] = s
	}
	return out, nil
}

func jsonType(value any) string {
	switch value.(type) {
	case map[string]any:
		return "object"
	case []any:
		return "array"
	case bool:
		return "bool"
	case nil:
		return "null"
	case string:
		return "string"
	}
	return "number"
}

// section returns a map below an object, made when it is missing, private to the object.
func section(object map[string]any, key string) map[string]any {
	old, _ := object[key].(map[string]any)
	fresh := make(map[string]any, len(old)+2)
	for k, v := range old {
		fresh[k] = v
	}
	object[key] = fresh
	return fresh
}

func setDefault(m map[string]any, key string, value any) {
	if _, ok := m[key]; !ok {
		m[key] = value
	}
}

// defaults fills in what the server adds to a new object of a known kind, as far as clients of the simulation read
// it.
func (a *API) defaults(res *resource, object map[string]any) {
	switch res.kind.Resource() {
	case namespaces():
		section(object, "spec")["finalizers"] = []any{"kubernetes"}
		setDefault(section(object, "status"), "phase", "Active")
		meta := metadata(object)
		section(meta, "labels")["kubernetes.io/metadata.name"] = meta["name"]
	case schema.GroupResource{Resource: "pods"}:
		spec := section(object, "spec")
		setDefault(spec, "restartPolicy", "Always")
		setDefault(spec, "dnsPolicy", "ClusterFirst")
		setDefault(spec, "schedulerName", "default-scheduler")
		setDefault(spec, "terminationGracePeriodSeconds", int64(30))
		setDefault(section(object, "status"), "phase", "Pending")
	case schema.GroupResource{Resource: "services"}:
		a.defaultService(object)
	case slicesGVR().GroupResource():
		defaultSlice(object)
	}
}

// defaultSlice names the protocol of an EndpointSlice's ports.
func defaultSlice(object map[string]any) {
	ports, _ := object["ports"].([]any)
	if len(ports) == 0 {
		return
	}
	out := make([]any, 0, len(ports))
	for _, p := range ports {
		port, _ := p.(map[string]any)
		port = maps.Clone(port)
		setDefault(port, "name", "")
		setDefault(port, "protocol", "TCP")
		out = append(out, port)
	}
	object["ports"] = out
}

// keepImmutable carries over fields that a client may leave out of an update but the server never drops.
func (a *API) keepImmutable(res *resource, old, object map[string]any) {
	keep := func(keys ...string) {
		from, _ := old["spec"].(map[string]any)
		if _, ok := object["spec"].(map[string]any); !ok {
			return
		}
		to := section(object, "spec")
		for _, key := range keys {
			if value, ok := from[key]; ok {
				setDefault(to, key, value)
			}
		}
	}
	switch res.kind.Resource() {
	case schema.GroupResource{Resource: "services"}:
		keep("ipFamilyPolicy", "type", "sessionAffinity", "internalTrafficPolicy")
		if spec, ok := object["spec"].(map[string]any); ok && spec["type"] != "ExternalName" {
			if had, now := text(old, "spec", "clusterIP"), text(spec, "clusterIP"); had != "" && now != "" && had != now {
				delete(section(object, "spec"), "clusterIPs") // of the two the one that was changed is meant
			} else {
				keep("clusterIP", "clusterIPs", "ipFamilies")
			}
		}
		a.defaultService(object)
	case slicesGVR().GroupResource():
		defaultSlice(object)
	case schema.GroupResource{Resource: "pods"}:
		keep("nodeName", "restartPolicy", "dnsPolicy", "schedulerName", "terminationGracePeriodSeconds")
	}
}
