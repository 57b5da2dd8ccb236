// SPDX-License-Identifier: Apache-2.0

package drivers

import "reflect"

// MapRefs returns a copy of a spec in which every Ref is replaced by what f makes of it.
func MapRefs(spec Spec, f func(Ref) Ref) Spec {
	out := reflect.New(reflect.TypeOf(spec)).Elem()
	out.Set(mapRefs(reflect.ValueOf(spec), f))
	mapped, ok := out.Interface().(Spec)
	if !ok {
		return spec
	}
	return mapped
}

func mapRefs(v reflect.Value, f func(Ref) Ref) reflect.Value {
	if value, ok := v.Interface().(Value); ok {
		if value.Ref != nil {
			ref := f(*value.Ref)
			value.Ref = &ref
		}
		return reflect.ValueOf(value)
	}
	switch v.Kind() { // the other kinds hold no Ref
	case reflect.Struct:
		out := reflect.New(v.Type()).Elem()
		out.Set(v)
		for i := range v.NumField() {
			out.Field(i).Set(mapRefs(v.Field(i), f))
		}
		return out
	case reflect.Slice:
		if v.IsNil() {
			return v
		}
		out := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			out.Index(i).Set(mapRefs(v.Index(i), f))
		}
		return out
	case reflect.Pointer:
		if v.IsNil() || v.Elem().Kind() != reflect.Struct {
			return v
		}
		out := reflect.New(v.Type().Elem())
		out.Elem().Set(mapRefs(v.Elem(), f))
		return out
	default:
		return v
	}
}

// Element returns the element of a contribution in the form that Attributes gives: a string or a Ref for a security
// group or a resource, a map for an address pair or a route.
func Element(c Contribution) any {
	switch {
	case c.AddressPair != nil:
		pair := map[string]any{"ip_address": c.AddressPair.IPAddress}
		if c.AddressPair.MACAddress != "" {
			pair["mac_address"] = c.AddressPair.MACAddress
		}
		return pair
	case c.Route != nil:
		return map[string]any{"destination": c.Route.Destination, "nexthop": c.Route.NextHop}
	case !c.Resource.IsZero():
		if c.Resource.Ref != nil {
			return *c.Resource.Ref
		}
		return c.Resource.Literal
	case c.SecurityGroup.Ref != nil:
		return *c.SecurityGroup.Ref
	default:
		return c.SecurityGroup.Literal
	}
}
