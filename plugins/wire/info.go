// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
)

// InfoToProto turns an Info into the answer of GetInfo.
func InfoToProto(info drivers.Info) (*ravenv1.GetInfoResponse, error) {
	message := &ravenv1.GetInfoResponse{
		Name: info.Name, Version: info.Version, Description: info.Description, Role: info.Role, Annotations: info.Annotations,
		Labels: info.Labels, Status: info.Status, Capabilities: info.Capabilities,
		Sdk: fmt.Sprintf("raven-sdk-go/%d", ProtocolVersion),
	}
	for _, kind := range info.Kinds {
		message.Kinds = append(message.Kinds, string(kind))
	}
	for _, option := range info.Options {
		out, err := optionToProto(option)
		if err != nil {
			return nil, fmt.Errorf("option [%s] %s: %w", option.Group, option.Name, err)
		}
		message.Options = append(message.Options, out)
	}
	return message, nil
}

// InfoFromProto turns the answer of GetInfo into an Info.
func InfoFromProto(message *ravenv1.GetInfoResponse) (drivers.Info, error) {
	info := drivers.Info{
		Name: message.GetName(), Version: message.GetVersion(), Description: message.GetDescription(),
		Role:        message.GetRole(),
		Annotations: message.GetAnnotations(), Labels: message.GetLabels(),
		Status: message.GetStatus(), Capabilities: message.GetCapabilities(),
	}
	for _, kind := range message.GetKinds() {
		info.Kinds = append(info.Kinds, drivers.Kind(kind))
	}
	for _, option := range message.GetOptions() {
		out, err := optionFromProto(option)
		if err != nil {
			return drivers.Info{}, fmt.Errorf("option [%s] %s: %w", option.GetGroup(), option.GetName(), err)
		}
		info.Options = append(info.Options, out)
	}
	return info, nil
}

// coreCapabilities are the abilities of this core beyond the contract's version.
func coreCapabilities(enabled []string) []string {
	names := []string{drivers.BareGroups, drivers.SoftReferences, drivers.ReverseSelectors, drivers.ChassisBackends}
	for _, kind := range drivers.Kinds() {
		names = append(names, drivers.KindCapability(kind))
	}
	for _, name := range enabled {
		names = append(names, drivers.DriverCapability(name))
	}
	return names
}

// ValuesToProto turns option values into the request of Configure, in the order of group and name.
func ValuesToProto(values drivers.Values) (*ravenv1.ConfigureRequest, error) {
	message := &ravenv1.ConfigureRequest{}
	for _, group := range slices.Sorted(maps.Keys(values)) {
		for _, name := range slices.Sorted(maps.Keys(values[group])) {
			out := &ravenv1.OptionValue{Group: group, Name: name}
			switch value := values[group][name].(type) {
			case string:
				out.Value = &ravenv1.OptionValue_StringValue{StringValue: value}
			case int64:
				out.Value = &ravenv1.OptionValue_IntegerValue{IntegerValue: value}
			case bool:
				out.Value = &ravenv1.OptionValue_BooleanValue{BooleanValue: value}
			case float64:
				out.Value = &ravenv1.OptionValue_FloatValue{FloatValue: value}
			case []string:
				out.Value = &ravenv1.OptionValue_ListValue{ListValue: &ravenv1.StringList{Values: value}}
			case map[string]string:
				out.Value = &ravenv1.OptionValue_DictValue{DictValue: &ravenv1.StringMap{Values: value}}
			default:
				return nil, fmt.Errorf("option [%s] %s: a value of type %T cannot go over the wire", group, name, value)
			}
			message.Values = append(message.Values, out)
		}
	}
	return message, nil
}

// ValuesFromProto turns the request of Configure into option values.
func ValuesFromProto(message *ravenv1.ConfigureRequest) (drivers.Values, error) {
	values := drivers.Values{}
	for _, option := range message.GetValues() {
		var value any
		switch v := option.GetValue().(type) {
		case *ravenv1.OptionValue_StringValue:
			value = v.StringValue
		case *ravenv1.OptionValue_IntegerValue:
			value = v.IntegerValue
		case *ravenv1.OptionValue_BooleanValue:
			value = v.BooleanValue
		case *ravenv1.OptionValue_FloatValue:
			value = v.FloatValue
		case *ravenv1.OptionValue_ListValue:
			value = append([]string{}, v.ListValue.GetValues()...)
		case *ravenv1.OptionValue_DictValue:
			dict := map[string]string{}
			maps.Copy(dict, v.DictValue.GetValues())
			value = dict
		default:
			return nil, fmt.Errorf("option [%s] %s: has no value", option.GetGroup(), option.GetName())
		}
		group := values[option.GetGroup()]
		if group == nil {
			group = map[string]any{}
			values[option.GetGroup()] = group
		}
		group[option.GetName()] = value
	}
	return values, nil
}

func watchesToProto(watches []drivers.Watch) []*ravenv1.Watch {
	out := make([]*ravenv1.Watch, 0, len(watches))
	for _, w := range watches {
		out = append(out, &ravenv1.Watch{
			Name: w.Name, Group: w.GVR.Group, Version: w.GVR.Version, Resource: w.GVR.Resource, Kind: w.Kind,
			Namespace:     w.Namespace,
			LabelSelector: w.LabelSelector, FieldSelector: w.FieldSelector, Fields: w.Fields, Source: w.Source,
			Optional: w.Optional, Selectors: selectorsToProto(w.Selectors),
		})
	}
	return out
}

func selectorsToProto(paths []drivers.SelectorPath) []*ravenv1.SelectorPath {
	var out []*ravenv1.SelectorPath
	for _, p := range paths {
		out = append(out, &ravenv1.SelectorPath{Path: p.Path, Namespaces: p.Namespaces, Objects: p.Objects})
	}
	return out
}

func selectorsFromProto(messages []*ravenv1.SelectorPath) []drivers.SelectorPath {
	var out []drivers.SelectorPath
	for _, m := range messages {
		out = append(out, drivers.SelectorPath{
			Path: m.GetPath(), Namespaces: m.GetNamespaces(), Objects: m.GetObjects(),
		})
	}
	return out
}

func watchesFromProto(messages []*ravenv1.Watch) []drivers.Watch {
	out := make([]drivers.Watch, 0, len(messages))
	for _, m := range messages {
		out = append(out, drivers.Watch{
			Name: m.GetName(),
			GVR:  schema.GroupVersionResource{Group: m.GetGroup(), Version: m.GetVersion(), Resource: m.GetResource()},
			Kind: m.GetKind(), Namespace: m.GetNamespace(), LabelSelector: m.GetLabelSelector(),
			FieldSelector: m.GetFieldSelector(), Fields: m.GetFields(), Source: m.GetSource(), Optional: m.GetOptional(),
			Selectors: selectorsFromProto(m.GetSelectors()),
		})
	}
	return out
}

// refusal turns a driver's error about its configuration into diagnostics: one for each error that errors.Join joined.
func refusal(err error) []*ravenv1.ConfigureDiagnostic {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error }) // only a join at the top is taken apart
	if !ok {
		out := &ravenv1.ConfigureDiagnostic{Severity: ravenv1.Severity_SEVERITY_ERROR, Message: err.Error()}
		if option, ok := err.(*drivers.OptionError); ok { //nolint:errorlint // a wrapped one is shown with its wrapping
			out.Group, out.Name, out.Message = option.Group, option.Name, option.Message
		}
		return []*ravenv1.ConfigureDiagnostic{out}
	}
	var out []*ravenv1.ConfigureDiagnostic
	for _, one := range joined.Unwrap() {
		out = append(out, refusal(one)...)
	}
	return out
}

// refused turns diagnostics into the error that they stand for, or nil where none is an error.
func refused(diagnostics []*ravenv1.ConfigureDiagnostic) error {
	var all []error
	for _, diagnostic := range diagnostics {
		switch diagnostic.GetSeverity() { //nolint:exhaustive // every other severity refuses
		case ravenv1.Severity_SEVERITY_WARNING, ravenv1.Severity_SEVERITY_NOTE:
			continue
		}
		message := shortText(diagnostic.GetMessage())
		err := errors.New(message)
		if diagnostic.GetName() != "" {
			err = &drivers.OptionError{
				Group: shortText(diagnostic.GetGroup()), Name: shortText(diagnostic.GetName()), Message: message,
			}
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}
