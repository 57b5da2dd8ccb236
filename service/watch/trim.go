package watch

import "strings"

// alwaysKept are the fields that are there whatever a watch reads.
func alwaysKept() []string {
	return []string{
		"apiVersion", "kind", "metadata.name", "metadata.namespace", "metadata.uid", "metadata.deletionTimestamp",
	}
}

// trim returns a copy of the object with the given dotted paths only, or all of it without metadata.managedFields if there
// are none. What it holds is shared with the object.
func trim(object map[string]any, fields []string) map[string]any {
	out := map[string]any{}
	if len(fields) == 0 {
		for key, value := range object {
			out[key] = value
		}
		if metadata, ok := object["metadata"].(map[string]any); ok {
			kept := make(map[string]any, len(metadata))
			for key, value := range metadata {
				if key != "managedFields" {
					kept[key] = value
				}
			}
			out["metadata"] = kept
		}
		return out
	}
	for _, path := range alwaysKept() {
		copyPath(out, object, strings.Split(path, "."))
	}
	for _, path := range fields {
		copyPath(out, object, strings.Split(path, "."))
	}
	return out
}

func copyPath(to, from map[string]any, path []string) {
	value, ok := from[path[0]]
	if !ok {
		return
	}
	if len(path) == 1 {
		to[path[0]] = value
		return
	}
	below, ok := value.(map[string]any)
	if !ok {
		return
	}
	into, ok := to[path[0]].(map[string]any)
	if !ok {
		into = map[string]any{}
		to[path[0]] = into
	}
	copyPath(into, below, path[1:])
}
