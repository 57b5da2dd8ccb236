// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"reflect"
	"strings"
)

// Attribute describes one field of a kind, as the tag of the field in its spec gives it.
type Attribute struct {
	Name       string // Neutron's name
	Immutable  bool   // a change means another resource
	Required   bool   // must be set
	Unordered  bool   // a list that is compared as a set
	BestEffort bool   // left out where the credentials do not allow it
}

// Schema returns the attributes of a kind in the order of its spec's fields, and nil for a kind that does not exist.
func Schema(kind Kind) []Attribute {
	spec := zero(kind)
	if spec == nil {
		return nil
	}
	return SchemaOf(spec)
}

// SchemaOf returns the attributes of a spec's kind in the order of its fields, whether they are set or not. The
// spec is a structure, or a pointer to one.
func SchemaOf(spec Spec) []Attribute {
	t := reflect.TypeOf(spec)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	attributes := make([]Attribute, 0, t.NumField())
	for i := range t.NumField() {
		name, flags, _ := strings.Cut(t.Field(i).Tag.Get("raven"), ",")
		if name == "" {
			continue
		}
		a := Attribute{Name: name}
		for flags != "" {
			var flag string
			flag, flags, _ = strings.Cut(flags, ",")
			switch flag {
			case "immutable":
				a.Immutable = true
			case "required":
				a.Required = true
			case "unordered":
				a.Unordered = true
			case "besteffort":
				a.BestEffort = true
			}
		}
		attributes = append(attributes, a)
	}
	return attributes
}

// Attributes returns the fields of a spec that are set, by Neutron's names. The values are string, int64, bool,
// []any, map[string]any, and Ref where a Value is one. A set but empty list is an empty []any, a set but empty
// structure an empty map. Nothing in it is shared with the spec but the Role of a Ref.
func Attributes(spec Spec) map[string]any {
	if spec == nil {
		return nil
	}
	return structure(reflect.Indirect(reflect.ValueOf(spec)))
}

func structure(v reflect.Value) map[string]any {
	t := v.Type()
	out := make(map[string]any, t.NumField())
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("raven"), ",")
		if name == "" || v.Field(i).IsZero() {
			continue
		}
		out[name] = leaf(v.Field(i))
	}
	return out
}

// leaf returns the value of a field that is set, or of an element of a list.
func leaf(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Pointer:
		return leaf(v.Elem())
	case reflect.String:
		return v.String()
	case reflect.Bool:
		return v.Bool()
	case reflect.Int64:
		return v.Int()
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = leaf(v.Index(i))
		}
		return list
	case reflect.Struct:
		value, ok := v.Interface().(Value)
		switch {
		case !ok:
			return structure(v)
		case value.Ref != nil:
			return *value.Ref
		default:
			return value.Literal
		}
	default: // no spec has a field of another type; the test of Schema sees to it
		return nil
	}
}

// zero returns the spec of a kind with no field set, and nil for a kind that does not exist.
func zero(kind Kind) Spec {
	switch kind {
	case KindNetwork:
		return Network{}
	case KindSubnet:
		return Subnet{}
	case KindSubnetPool:
		return SubnetPool{}
	case KindRouter:
		return Router{}
	case KindRouterInterface:
		return RouterInterface{}
	case KindPort:
		return Port{}
	case KindPortPool:
		return PortPool{}
	case KindLoadBalancer:
		return LoadBalancer{}
	case KindFloatingIP:
		return FloatingIP{}
	case KindSecurityGroup:
		return SecurityGroup{}
	case KindSecurityGroupRule:
		return SecurityGroupRule{}
	case KindLookup:
		return Lookup{}
	case KindOVNLoadBalancerGroup:
		return OVNLoadBalancerGroup{}
	case KindOVNLoadBalancer:
		return OVNLoadBalancer{}
	}
	return nil
}
