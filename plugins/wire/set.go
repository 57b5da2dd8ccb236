// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"

	"github.com/kuryr/raven/drivers"
	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
)

// SetToProto turns a Set into its message. A Set that has no form on the wire, such as an output with two values, is
// an error that names the part.
func SetToProto(set drivers.Set) (*ravenv1.Set, error) {
	message := &ravenv1.Set{Undecided: set.Undecided}
	for _, resource := range set.Resources {
		out, err := resourceToProto(resource)
		if err != nil {
			return nil, fmt.Errorf("resource %q: %w", resource.Name, err)
		}
		message.Resources = append(message.Resources, out)
	}
	for _, contribution := range set.Contributions {
		out, err := contributionToProto(contribution)
		if err != nil {
			return nil, fmt.Errorf("contribution %q: %w", contribution.Name, err)
		}
		message.Contributions = append(message.Contributions, out)
	}
	for _, output := range set.Outputs {
		out, err := outputToProto(output)
		if err != nil {
			return nil, fmt.Errorf("output %q: %w", output.Key, err)
		}
		message.Outputs = append(message.Outputs, out)
	}
	for _, diagnostic := range set.Diagnostics {
		severity, err := toEnum(severities(), diagnostic.Severity, "severity")
		if err != nil {
			return nil, fmt.Errorf("diagnostic %q: %w", diagnostic.Reason, err)
		}
		message.Diagnostics = append(message.Diagnostics, &ravenv1.Diagnostic{
			Severity: severity, Reason: diagnostic.Reason, Message: diagnostic.Message, Resource: diagnostic.Resource,
		})
	}
	return message, nil
}

// SetFromProto turns a message into the Set. A resource without a spec of a known kind is an error.
func SetFromProto(message *ravenv1.Set) (drivers.Set, error) {
	set := drivers.Set{Undecided: message.GetUndecided()}
	for _, resource := range message.GetResources() {
		out, err := resourceFromProto(resource)
		if err != nil {
			return drivers.Set{}, fmt.Errorf("resource %q: %w", resource.GetName(), err)
		}
		set.Resources = append(set.Resources, out)
	}
	for _, contribution := range message.GetContributions() {
		out, err := contributionFromProto(contribution)
		if err != nil {
			return drivers.Set{}, fmt.Errorf("contribution %q: %w", contribution.GetName(), err)
		}
		set.Contributions = append(set.Contributions, out)
	}
	for _, output := range message.GetOutputs() {
		out, err := outputFromProto(output)
		if err != nil {
			return drivers.Set{}, fmt.Errorf("output %q: %w", output.GetKey(), err)
		}
		set.Outputs = append(set.Outputs, out)
	}
	for _, diagnostic := range message.GetDiagnostics() {
		severity := drivers.Error
		if known, err := fromEnum(severities(), diagnostic.GetSeverity(), "severity"); err == nil {
			severity = known
		}
		set.Diagnostics = append(set.Diagnostics, drivers.Diagnostic{
			Severity: severity, Reason: diagnostic.GetReason(), Message: diagnostic.GetMessage(),
			Resource: diagnostic.GetResource(),
		})
	}
	return set, nil
}

func resourceToProto(resource drivers.Resource) (*ravenv1.Resource, error) {
	policy, err := toEnum(policies(), resource.OnDelete, "policy")
	if err != nil {
		return nil, err
	}
	if int(int32(resource.Expand)) != resource.Expand { // the conversion is the check
		return nil, fmt.Errorf("expand %d is out of range", resource.Expand)
	}
	out := &ravenv1.Resource{
		Name: resource.Name, Exports: resource.Exports, Claim: resource.Claim, OnDelete: policy,
		Expand: int32(resource.Expand), // checked above
	}
	for _, ref := range resource.After {
		after, err := refToProto(ref)
		if err != nil {
			return nil, fmt.Errorf("after: %w", err)
		}
		out.After = append(out.After, after)
	}
	return out, specToProto(resource.Spec, out)
}

func resourceFromProto(message *ravenv1.Resource) (drivers.Resource, error) {
	policy, err := fromEnum(policies(), message.GetOnDelete(), "policy")
	if err != nil {
		return drivers.Resource{}, err
	}
	out := drivers.Resource{
		Name: message.GetName(), Exports: message.GetExports(), Claim: message.GetClaim(), OnDelete: policy,
		Expand: int(message.GetExpand()),
	}
	for _, ref := range message.GetAfter() {
		out.After = append(out.After, refFromProto(ref))
	}
	out.Spec, err = specFromProto(message)
	return out, err
}

func refToProto(ref drivers.Ref) (*ravenv1.Ref, error) {
	out := &ravenv1.Ref{Attribute: ref.Attribute, Soft: ref.Soft}
	switch {
	case ref.Role != nil && ref.Name != "":
		return nil, errors.New("a ref has both a name and a role")
	case ref.Role != nil:
		out.Target = &ravenv1.Ref_Role{Role: roleToProto(*ref.Role)}
	case ref.Name != "":
		out.Target = &ravenv1.Ref_Name{Name: ref.Name}
	}
	return out, nil
}

func refFromProto(message *ravenv1.Ref) drivers.Ref {
	out := drivers.Ref{Name: message.GetName(), Attribute: message.GetAttribute(), Soft: message.GetSoft()}
	if message.GetRole() != nil {
		role := roleFromProto(message.GetRole())
		out.Role = &role
	}
	return out
}

func roleToProto(role drivers.Role) *ravenv1.Role {
	return &ravenv1.Role{Kind: role.Kind, Namespace: role.Namespace, Name: role.Name, Role: role.Role}
}

func roleFromProto(message *ravenv1.Role) drivers.Role {
	return drivers.Role{
		Kind: message.GetKind(), Namespace: message.GetNamespace(), Name: message.GetName(), Role: message.GetRole(),
	}
}

func valueToProto(value drivers.Value) (*ravenv1.Value, error) {
	out := &ravenv1.Value{}
	return out, setValue(value, out)
}

func setValue(value drivers.Value, into *ravenv1.Value) error {
	switch {
	case value.IsZero(): // an element of a list that is not set
		return nil
	case value.Empty && (value.Ref != nil || value.Literal != ""):
		return errors.New("a value is both empty and not")
	case value.Ref == nil:
		into.Kind = &ravenv1.Value_Literal{Literal: value.Literal}
		return nil
	case value.Literal != "":
		return errors.New("a value is both a text and a ref")
	}
	ref, err := refToProto(*value.Ref)
	into.Kind = &ravenv1.Value_Ref{Ref: ref}
	return err
}

func valueFromProto(message *ravenv1.Value) drivers.Value {
	if message.GetRef() == nil {
		_, literal := message.GetKind().(*ravenv1.Value_Literal)
		return drivers.Value{Literal: message.GetLiteral(), Empty: literal && message.GetLiteral() == ""}
	}
	ref := refFromProto(message.GetRef())
	return drivers.Value{Ref: &ref}
}

func contributionToProto(contribution drivers.Contribution) (*ravenv1.Contribution, error) {
	mode, err := toEnum(modes(), contribution.Mode, "mode")
	if err != nil {
		return nil, err
	}
	out := &ravenv1.Contribution{
		Name: contribution.Name, Target: roleToProto(contribution.Target), Attribute: contribution.Attribute, Mode: mode,
	}
	elements := 0
	if !contribution.SecurityGroup.IsZero() {
		value, err := valueToProto(contribution.SecurityGroup)
		if err != nil {
			return nil, err
		}
		out.Element, elements = &ravenv1.Contribution_SecurityGroup{SecurityGroup: value}, elements+1
	}
	if pair := contribution.AddressPair; pair != nil {
		out.Element = &ravenv1.Contribution_AddressPair{
			AddressPair: &ravenv1.AddressPair{IpAddress: pair.IPAddress, MacAddress: pair.MACAddress},
		}
		elements++
	}
	if route := contribution.Route; route != nil {
		out.Element = &ravenv1.Contribution_Route{
			Route: &ravenv1.Route{Destination: route.Destination, Nexthop: route.NextHop},
		}
		elements++
	}
	if !contribution.Resource.IsZero() {
		value, err := valueToProto(contribution.Resource)
		if err != nil {
			return nil, err
		}
		out.Element, elements = &ravenv1.Contribution_Resource{Resource: value}, elements+1
	}
	if elements > 1 {
		return nil, errors.New("has more than one element")
	}
	return out, nil
}

func contributionFromProto(message *ravenv1.Contribution) (drivers.Contribution, error) {
	mode, err := fromEnum(modes(), message.GetMode(), "mode")
	out := drivers.Contribution{
		Name: message.GetName(), Target: roleFromProto(message.GetTarget()), Attribute: message.GetAttribute(), Mode: mode,
	}
	switch element := message.GetElement().(type) {
	case *ravenv1.Contribution_SecurityGroup:
		out.SecurityGroup = valueFromProto(element.SecurityGroup)
	case *ravenv1.Contribution_AddressPair:
		out.AddressPair = &drivers.AddressPair{
			IPAddress: element.AddressPair.GetIpAddress(), MACAddress: element.AddressPair.GetMacAddress(),
		}
	case *ravenv1.Contribution_Resource:
		out.Resource = valueFromProto(element.Resource)
	case *ravenv1.Contribution_Route:
		out.Route = &drivers.Route{Destination: element.Route.GetDestination(), NextHop: element.Route.GetNexthop()}
	}
	return out, err
}

func outputToProto(output drivers.Output) (*ravenv1.Output, error) {
	kind, err := toEnum(outputKinds(), output.Kind, "kind")
	if err != nil {
		return nil, err
	}
	out := &ravenv1.Output{Kind: kind, Key: output.Key}
	switch {
	case output.Document != nil && !output.Text.IsZero():
		return nil, errors.New("has both a text and a document")
	case output.Document != nil:
		ref, err := refToProto(*output.Document)
		out.Value = &ravenv1.Output_Document{Document: ref}
		return out, err
	case !output.Text.IsZero():
		value, err := valueToProto(output.Text)
		out.Value = &ravenv1.Output_Text{Text: value}
		return out, err
	}
	return out, nil
}

func outputFromProto(message *ravenv1.Output) (drivers.Output, error) {
	kind, err := fromEnum(outputKinds(), message.GetKind(), "kind")
	out := drivers.Output{Kind: kind, Key: message.GetKey()}
	switch value := message.GetValue().(type) {
	case *ravenv1.Output_Text:
		out.Text = valueFromProto(value.Text)
	case *ravenv1.Output_Document:
		ref := refFromProto(value.Document)
		out.Document = &ref
	}
	return out, err
}
