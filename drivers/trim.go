// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"maps"
	"strings"
)

// Trim returns a copy of an object, decoded from JSON, with nothing but the given fields and what every object keeps:
// apiVersion, kind and metadata.{name,namespace,uid,deletionTimestamp}. See Watch.Fields for the form of fields. No
// fields mean the whole object without metadata.managedFields. A path keeps everything below it; one that leads
// nowhere in this object is left out. A path that meets a list goes on in each of its elements. The copy shares what
// it keeps with the original: neither may be changed afterwards.
func Trim(object map[string]any, fields []string) map[string]any {
	if len(fields) == 0 {
		return trimManaged(object)
	}
	want := tree{}
	for _, path := range always() {
		want.add(path)
	}
	for _, field := range fields {
		want.add(SplitField(field))
	}
	out, _ := want.keep(object).(map[string]any)
	return out
}

// SplitField splits a dotted path of Watch.Fields into its keys. A key with dots stands in brackets and quotes:
// metadata.annotations['kuryr.org/neutron-port'].
func SplitField(field string) []string {
	var keys []string
	for field != "" {
		if rest, found := strings.CutPrefix(field, "['"); found {
			key, after, _ := strings.Cut(rest, "']")
			keys, field = append(keys, key), strings.TrimPrefix(after, ".")
			continue
		}
		end := strings.IndexAny(field, ".[")
		if end < 0 {
			return append(keys, field)
		}
		if end > 0 {
			keys = append(keys, field[:end])
		}
		if field = field[end:]; field[0] == '.' || !strings.HasPrefix(field, "['") {
			field = field[1:]
		}
	}
	return keys
}

func always() [][]string {
	return [][]string{
		{"apiVersion"},
		{"kind"},
		{"metadata", "name"},
		{"metadata", "namespace"},
		{"metadata", "uid"},
		{"metadata", "deletionTimestamp"},
	}
}

func trimManaged(object map[string]any) map[string]any {
	out := maps.Clone(object)
	if metadata, ok := object["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		delete(metadata, "managedFields")
		out["metadata"] = metadata
	}
	return out
}

// tree is a set of paths by their keys; an empty tree keeps everything below.
type tree map[string]tree

func (t tree) add(path []string) {
	for i, key := range path {
		next, known := t[key]
		if known && len(next) == 0 {
			return // all of it is kept already
		}
		if i == len(path)-1 {
			t[key] = tree{}
			return
		}
		if !known {
			next = tree{}
			t[key] = next
		}
		t = next
	}
}

func (t tree) keep(value any) any {
	if len(t) == 0 {
		return value
	}
	switch value := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(t))
		for key, below := range t {
			if child, ok := value[key]; ok {
				if kept := below.keep(child); kept != nil || child == nil {
					out[key] = kept
				}
			}
		}
		return out
	case []any:
		out := make([]any, 0, len(value))
		for _, element := range value {
			out = append(out, t.keep(element))
		}
		return out
	default:
		return nil // a path that goes on below a scalar
	}
}
