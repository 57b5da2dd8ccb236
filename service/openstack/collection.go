// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// Collection is how a service speaks of one kind of resource.
type Collection struct {
	Kind      drivers.Kind
	Path      string // of the collection, below v2.0/
	One, Many string // the names in JSON bodies
	Polled    bool   // asked without a slot of the limiter: polls must not wait for what makes it busy
}

// The collections of the load balancing service beside the load balancers.
const (
	KindListener drivers.Kind = "listener"
	KindPool     drivers.Kind = "pool"
	KindMonitor  drivers.Kind = "healthmonitor"
	KindMember   drivers.Kind = "member"
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

// PathOf is the path of one resource.
func (c Collection) PathOf(id string) string { return c.Path + "/" + url.PathEscape(id) }

// metricKind is the value of the label kind in metrics: the kind as steps have it, or what the service itself calls one
// of what Raven only reads.
func (c Collection) metricKind() string {
	if c.Kind != "" {
		return string(c.Kind)
	}
	return c.One
}

// Single takes the one resource out of a response.
func (c Collection) Single(doc map[string]any) (map[string]any, error) {
	inner, ok := doc[c.One].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the response has no %q", c.One)
	}
	return inner, nil
}

// List takes the resources out of a response.
func (c Collection) List(doc map[string]any) ([]map[string]any, error) {
	inner, ok := doc[c.Many].([]any)
	if !ok {
		return nil, fmt.Errorf("the response has no list %q", c.Many)
	}
	docs := make([]map[string]any, 0, len(inner))
	for _, entry := range inner {
		resource, ok := entry.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("the list %q holds something that is no resource", c.Many)
		}
		docs = append(docs, resource)
	}
	return docs, nil
}

// Observed makes of a document what the plan compares.
func (c Collection) Observed(doc map[string]any) plan.Observed {
	text := func(name string) string { s, _ := doc[name].(string); return s }
	o := plan.Observed{
		Kind: c.Kind, ID: text("id"), Attrs: doc, Description: text("description"), CreatedAt: text("created_at"),
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
	return o
}
