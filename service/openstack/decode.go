package openstack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// decode reads a JSON document with whole numbers as int64 and others as float64.
func decode(body []byte) (map[string]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var doc map[string]any
	if err := decoder.Decode(&doc); err != nil {
		return nil, fmt.Errorf("decoding the response: %w", err)
	}
	for key, value := range doc {
		doc[key] = numbers(value)
	}
	return doc, nil
}

func numbers(value any) any {
	switch v := value.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		f, err := v.Float64()
		if err != nil {
			return v.String()
		}
		return f
	case map[string]any:
		for key, inner := range v {
			v[key] = numbers(inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = numbers(inner)
		}
	}
	return value
}

// single takes the one resource out of a response.
func (k kind) single(doc map[string]any) (map[string]any, error) {
	inner, ok := doc[k.one].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the response has no %q", k.one)
	}
	return inner, nil
}

// list takes the resources out of a response.
func (k kind) list(doc map[string]any) ([]map[string]any, error) {
	inner, ok := doc[k.many].([]any)
	if !ok {
		return nil, fmt.Errorf("the response has no list %q", k.many)
	}
	docs := make([]map[string]any, 0, len(inner))
	for _, entry := range inner {
		resource, ok := entry.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("the list %q holds something that is no resource", k.many)
		}
		docs = append(docs, resource)
	}
	return docs, nil
}

// observed makes of a Neutron document what the plan compares.
func (k kind) observed(doc map[string]any) plan.Observed {
	text := func(name string) string { s, _ := doc[name].(string); return s }
	o := plan.Observed{
		Kind: k.name, ID: text("id"), Attrs: doc, Description: text("description"), CreatedAt: text("created_at"),
		Status: text("status"),
	}
	if o.Status == "" {
		o.Status = text("provisioning_status")
	}
	o.Revision, _ = doc["revision_number"].(int64)
	if tags, ok := doc["tags"].([]any); ok {
		for _, tag := range tags {
			if s, ok := tag.(string); ok {
				o.Tags = append(o.Tags, s)
			}
		}
	}
	o.Identity, o.Managed = plan.Parse(o.Tags, o.Description)
	if !k.taggable && !k.tagged && o.Managed {
		// The cloud keeps no tags of this kind, so none are missing.
		o.Tags = o.Identity.Tags()
	}
	if k.path == "ports" {
		o.Kind = drivers.KindPort
		if isInterface(doc, o) {
			o.Kind = drivers.KindRouterInterface
			interfaceAttrs(doc)
		}
	}
	return o
}

// isInterface says whether a port is a router's interface, or was made to become one.
func isInterface(doc map[string]any, o plan.Observed) bool {
	return attached(doc) || (o.Managed && strings.HasPrefix(o.Identity.Name, "rif."))
}

func attached(doc map[string]any) bool {
	owner, _ := doc["device_owner"].(string)
	return strings.HasPrefix(owner, "network:router_interface") || owner == "network:ha_router_replicated_interface"
}

// interfaceAttrs adds to a port's document the attributes of a router interface. router_id is only there once attached.
func interfaceAttrs(doc map[string]any) {
	if attached(doc) {
		doc["router_id"] = doc["device_id"]
	}
	fixed, _ := doc["fixed_ips"].([]any)
	if len(fixed) == 0 {
		return
	}
	if first, ok := fixed[0].(map[string]any); ok {
		doc["subnet_id"] = first["subnet_id"]
		doc["ip_address"] = first["ip_address"]
	}
}
