// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"fmt"
	"maps"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kuryr/raven/drivers"
)

// render writes the outcome of a translation as YAML: unset parts are left out, empty attributes of a spec are shown,
// refs are maps with "ref" or "role".
func render(set drivers.Set, needs []drivers.Need, err error) string {
	out := map[string]any{}
	var asked []any
	for _, need := range needs {
		asked = append(asked, need.String())
	}
	if len(asked) > 0 {
		out["needs"] = asked
	}
	if err != nil {
		out["error"] = err.Error()
		return toYAML(out)
	}
	maps.Copy(out, set.Render())
	return toYAML(out)
}

func toYAML(value any) string {
	out, err := yaml.Marshal(value)
	if err != nil {
		return fmt.Sprintf("error: %s\n", quote(err.Error()))
	}
	return string(out)
}

func quote(text string) string {
	out, err := yaml.Marshal(text)
	if err != nil {
		return fmt.Sprintf("%q", text)
	}
	return strings.TrimSuffix(string(out), "\n")
}
