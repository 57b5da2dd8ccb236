// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"reflect"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/kuryr/raven/drivers"
	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
)

// specs returns the zero Spec of every kind: the only list of kinds here. A kind's name is that of its field in
// Resource.spec.
func specs() []drivers.Spec {
	return []drivers.Spec{
		drivers.Network{},
		drivers.Subnet{},
		drivers.SubnetPool{},
		drivers.Router{},
		drivers.RouterInterface{},
		drivers.Port{},
		drivers.PortPool{},
		drivers.LoadBalancer{},
		drivers.FloatingIP{},
		drivers.SecurityGroup{},
		drivers.SecurityGroupRule{},
		drivers.Lookup{},
		drivers.OVNLoadBalancerGroup{},
		drivers.OVNLoadBalancer{},
	}
}

// specFields says which field of Resource.spec belongs to a kind.
func specField(kind drivers.Kind) protoreflect.FieldDescriptor {
	spec := (*ravenv1.Resource)(nil).ProtoReflect().Descriptor().Oneofs().ByName("spec")
	return spec.Fields().ByName(protoreflect.Name(kind))
}

// specType returns the Go type of a kind, or nil where there is none.
func specType(kind drivers.Kind) reflect.Type {
	for _, spec := range specs() {
		if spec.Kind() == kind {
			return reflect.TypeOf(spec)
		}
	}
	return nil
}

// protoName is the name of a Go field in the proto: the first part of its raven tag, with ':' as '_'.
func protoName(field reflect.StructField) (protoreflect.Name, bool) {
	tag, ok := field.Tag.Lookup("raven")
	if !ok {
		return "", false
	}
	name, _, _ := strings.Cut(tag, ",")
	return protoreflect.Name(strings.ReplaceAll(name, ":", "_")), true
}

func specToProto(spec drivers.Spec, into *ravenv1.Resource) error {
	value := reflect.ValueOf(spec)
	if spec == nil || (value.Kind() == reflect.Pointer && value.IsNil()) {
		return fmt.Errorf("has no spec")
	}
	value = reflect.Indirect(value)
	field := specField(spec.Kind())
	if field == nil || specType(spec.Kind()) != value.Type() {
		return fmt.Errorf("kind %q with a spec of type %s is unknown", spec.Kind(), value.Type())
	}
	return structToProto(value, into.ProtoReflect().Mutable(field).Message())
}

func specFromProto(from *ravenv1.Resource) (drivers.Spec, error) {
	message := from.ProtoReflect()
	field := message.WhichOneof(message.Descriptor().Oneofs().ByName("spec"))
	if field == nil {
		return nil, fmt.Errorf("has no spec of a known kind")
	}
	kind := specType(drivers.Kind(field.Name()))
	if kind == nil {
		return nil, fmt.Errorf("has a spec of unknown kind %q", field.Name())
	}
	value := reflect.New(kind).Elem()
	if err := structFromProto(message.Get(field).Message(), value); err != nil {
		return nil, err
	}
	spec, ok := value.Interface().(drivers.Spec)
	if !ok {
		return nil, fmt.Errorf("type %s is no spec", kind)
	}
	return spec, nil
}

// structToProto sets a message from a struct with raven tags; what is unset in the struct stays unset in the message.
func structToProto(from reflect.Value, into protoreflect.Message) error {
	for i := range from.NumField() {
		name, tagged := protoName(from.Type().Field(i))
		if !tagged {
			continue
		}
		field := into.Descriptor().Fields().ByName(name)
		if field == nil {
			return fmt.Errorf("%s has no field %q on the wire", from.Type(), name)
		}
		if err := fieldToProto(from.Field(i), into, field); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func fieldToProto(from reflect.Value, into protoreflect.Message, field protoreflect.FieldDescriptor) error {
	switch from.Kind() {
	case reflect.Pointer:
		if from.IsNil() {
			return nil
		}
		if from.Elem().Kind() == reflect.Struct {
			return structToProto(from.Elem(), into.Mutable(field).Message())
		}
		into.Set(field, protoreflect.ValueOf(from.Elem().Interface()))
	case reflect.Slice:
		if from.IsNil() {
			return nil
		}
		wrapper := into.Mutable(field).Message()
		list := wrapper.Mutable(wrapper.Descriptor().Fields().ByName("values")).List()
		for i := range from.Len() {
			if err := elementToProto(from.Index(i), list); err != nil {
				return fmt.Errorf("element %d: %w", i, err)
			}
		}
	case reflect.Struct:
		value, ok := from.Interface().(drivers.Value)
		if !ok {
			return fmt.Errorf("type %s cannot go over the wire", from.Type())
		}
		if value.IsZero() {
			return nil
		}
		return valueInto(value, into.Mutable(field).Message().Interface())
	case reflect.String:
		if from.String() != "" {
			into.Set(field, protoreflect.ValueOfString(from.String()))
		}
	case reflect.Int64:
		into.Set(field, protoreflect.ValueOfInt64(from.Int()))
	case reflect.Bool:
		into.Set(field, protoreflect.ValueOfBool(from.Bool()))
	default:
		return fmt.Errorf("type %s cannot go over the wire", from.Type())
	}
	return nil
}

func elementToProto(from reflect.Value, list protoreflect.List) error {
	if from.Kind() == reflect.String {
		list.Append(protoreflect.ValueOfString(from.String()))
		return nil
	}
	message := list.AppendMutable().Message()
	if value, ok := from.Interface().(drivers.Value); ok {
		return valueInto(value, message.Interface())
	}
	return structToProto(from, message)
}

func valueInto(value drivers.Value, into any) error {
	message, ok := into.(*ravenv1.Value)
	if !ok {
		return fmt.Errorf("the wire has %T instead of a Value", into)
	}
	return setValue(value, message)
}

// structFromProto sets a struct with raven tags from a message.
func structFromProto(from protoreflect.Message, into reflect.Value) error {
	for i := range into.NumField() {
		name, tagged := protoName(into.Type().Field(i))
		if !tagged {
			continue
		}
		field := from.Descriptor().Fields().ByName(name)
		if field == nil {
			return fmt.Errorf("%s has no field %q on the wire", into.Type(), name)
		}
		if !from.Has(field) {
			continue
		}
		if err := fieldFromProto(from.Get(field), into.Field(i)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func fieldFromProto(from protoreflect.Value, into reflect.Value) error {
	switch into.Kind() {
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		if into.Elem().Kind() == reflect.Struct {
			return structFromProto(from.Message(), into.Elem())
		}
		into.Elem().Set(reflect.ValueOf(from.Interface()).Convert(into.Type().Elem()))
	case reflect.Slice:
		list := from.Message().Get(from.Message().Descriptor().Fields().ByName("values")).List()
		into.Set(reflect.MakeSlice(into.Type(), list.Len(), list.Len()))
		for i := range list.Len() {
			if err := fieldFromProto(list.Get(i), into.Index(i)); err != nil {
				return fmt.Errorf("element %d: %w", i, err)
			}
		}
	case reflect.Struct:
		if into.Type() != reflect.TypeFor[drivers.Value]() {
			return structFromProto(from.Message(), into)
		}
		message, ok := from.Message().Interface().(*ravenv1.Value)
		if !ok {
			return fmt.Errorf("the wire has %T instead of a Value", from.Message().Interface())
		}
		into.Set(reflect.ValueOf(valueFromProto(message)))
	case reflect.String:
		into.SetString(from.String())
	case reflect.Int64:
		into.SetInt(from.Int())
	case reflect.Bool:
		into.SetBool(from.Bool())
	default:
		return fmt.Errorf("type %s cannot come over the wire", into.Type())
	}
	return nil
}
