// SPDX-License-Identifier: Apache-2.0

package drivers

import "strings"

// Render returns the Set as plain maps, lists and texts, for people and for goldens: unset parts are left out, empty
// attributes of a spec are shown, refs are maps with "ref" or "role".
func (s Set) Render() map[string]any {
	out := map[string]any{}
	var resources, contributions, outputs, diagnostics, undecided []any
	for _, resource := range s.Resources {
		resources = append(resources, renderResource(resource))
	}
	for _, contribution := range s.Contributions {
		contributions = append(contributions, renderContribution(contribution))
	}
	for _, output := range s.Outputs {
		outputs = append(outputs, renderOutput(output))
	}
	for _, diagnostic := range s.Diagnostics {
		item := map[string]any{
			"severity": string(diagnostic.Severity), "reason": diagnostic.Reason, "message": diagnostic.Message,
		}
		put(item, "resource", diagnostic.Resource)
		diagnostics = append(diagnostics, item)
	}
	for _, name := range s.Undecided {
		undecided = append(undecided, name)
	}
	put(out, "resources", resources)
	put(out, "contributions", contributions)
	put(out, "outputs", outputs)
	put(out, "diagnostics", diagnostics)
	put(out, "undecided", undecided)
	return out
}

func renderResource(resource Resource) map[string]any {
	item := map[string]any{"name": resource.Name}
	if resource.Spec != nil {
		item["kind"] = string(resource.Spec.Kind())
		item["spec"] = renderAttribute(Attributes(resource.Spec))
	}
	put(item, "claim", resource.Claim)
	put(item, "onDelete", string(resource.OnDelete))
	if resource.Expand != 0 {
		item["expand"] = resource.Expand
	}
	var exports, after []any
	for _, export := range resource.Exports {
		exports = append(exports, export)
	}
	for _, ref := range resource.After {
		after = append(after, renderRef(ref))
	}
	put(item, "exports", exports)
	put(item, "after", after)
	return item
}

func renderContribution(contribution Contribution) map[string]any {
	item := map[string]any{
		"name": contribution.Name, "target": renderRole(contribution.Target), "attribute": contribution.Attribute,
	}
	put(item, "mode", string(contribution.Mode))
	if !contribution.SecurityGroup.IsZero() {
		item["securityGroup"] = renderValue(contribution.SecurityGroup)
	}
	if pair := contribution.AddressPair; pair != nil {
		item["addressPair"] = map[string]any{"ip_address": pair.IPAddress, "mac_address": pair.MACAddress}
	}
	if route := contribution.Route; route != nil {
		item["route"] = map[string]any{"destination": route.Destination, "nexthop": route.NextHop}
	}
	if !contribution.Resource.IsZero() {
		item["resource"] = renderValue(contribution.Resource)
	}
	return item
}

func renderOutput(output Output) map[string]any {
	item := map[string]any{string(output.Kind): output.Key}
	if !output.Text.IsZero() {
		item["text"] = renderValue(output.Text)
	}
	if output.Document != nil {
		item["document"] = renderRef(*output.Document)
	}
	return item
}

func renderAttribute(value any) any {
	switch value := value.(type) {
	case Ref:
		return renderRef(value)
	case *Ref:
		return renderRef(*value)
	case map[string]any:
		out := make(map[string]any, len(value))
		for key, element := range value {
			out[key] = renderAttribute(element)
		}
		return out
	case []any:
		out := make([]any, 0, len(value))
		for _, element := range value {
			out = append(out, renderAttribute(element))
		}
		return out
	default:
		return value
	}
}

func renderValue(value Value) any {
	if value.Ref != nil {
		return renderRef(*value.Ref)
	}
	return value.Literal
}

func renderRef(ref Ref) map[string]any {
	item := map[string]any{}
	put(item, "ref", ref.Name)
	if ref.Role != nil {
		for key, value := range renderRole(*ref.Role) {
			item[key] = value
		}
	}
	put(item, "attribute", ref.Attribute)
	if ref.Soft {
		item["soft"] = true
	}
	return item
}

// renderRole gives the role and, unless it is the cluster's, whose it is: "Namespace default" or "Pod default/web".
func renderRole(role Role) map[string]any {
	item := map[string]any{"role": role.Role}
	if role.Kind != "" {
		item["of"] = role.Kind + " " + strings.TrimPrefix(role.Namespace+"/"+role.Name, "/")
	}
	return item
}

// put sets what is not empty.
func put[T string | []any](item map[string]any, key string, value T) {
	if len(value) > 0 {
		item[key] = value
	}
}
