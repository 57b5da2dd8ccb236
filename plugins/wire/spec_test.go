// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/kuryr/raven/drivers"
	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
)

func TestEveryKindIsOnTheWire(t *testing.T) {
	fields := (*ravenv1.Resource)(nil).ProtoReflect().Descriptor().Oneofs().ByName("spec").Fields()
	var onWire, inGo, listed []string
	for i := range fields.Len() {
		onWire = append(onWire, string(fields.Get(i).Name()))
	}
	for _, spec := range specs() {
		listed = append(listed, string(spec.Kind()))
	}
	for _, kind := range drivers.Kinds() {
		inGo = append(inGo, string(kind))
	}
	sorted := cmpopts.SortSlices(strings.Compare)
	if diff := cmp.Diff(inGo, onWire, sorted); diff != "" {
		t.Errorf("kinds of Go (-) and of the proto (+) differ:\n%s", diff)
	}
	if diff := cmp.Diff(inGo, listed, sorted); diff != "" {
		t.Errorf("drivers.Kinds (-) and specs (+) differ:\n%s", diff)
	}
}

func TestEveryFieldIsOnTheWire(t *testing.T) {
	for _, spec := range specs() {
		sameFields(t, reflect.TypeOf(spec), specField(spec.Kind()).Message())
	}
}

// sameFields checks both directions, and that presence is carried where Go can tell unset from empty.
func sameFields(t *testing.T, goType reflect.Type, message protoreflect.MessageDescriptor) {
	t.Helper()
	seen := map[protoreflect.Name]bool{}
	for i := range goType.NumField() {
		goField := goType.Field(i)
		name, tagged := protoName(goField)
		if !tagged {
			t.Errorf("%s.%s has no raven tag", goType, goField.Name)
			continue
		}
		seen[name] = true
		field := message.Fields().ByName(name)
		if field == nil {
			t.Errorf("%s.%s: the proto has no field %q in %s", goType, goField.Name, name, message.Name())
			continue
		}
		kind := goField.Type.Kind()
		if (kind == reflect.Pointer || kind == reflect.Slice || kind == reflect.Struct) && !field.HasPresence() {
			t.Errorf("%s.%s: %s.%s cannot tell unset from empty", goType, goField.Name, message.Name(), name)
		}
		element := goField.Type
		if kind == reflect.Pointer || kind == reflect.Slice {
			element = element.Elem()
		}
		if element.Kind() != reflect.Struct || element == reflect.TypeFor[drivers.Value]() {
			continue
		}
		below := field.Message()
		if kind == reflect.Slice {
			below = below.Fields().ByName("values").Message()
		}
		sameFields(t, element, below)
	}
	for i := range message.Fields().Len() {
		if name := message.Fields().Get(i).Name(); !seen[name] {
			t.Errorf("%s.%s of the proto is not in %s", message.Name(), name, goType)
		}
	}
}

// random fills a value: every field is unset, empty or full with like odds.
func random(r *rand.Rand, value reflect.Value) {
	switch value.Type() {
	case reflect.TypeFor[drivers.Value]():
		value.Set(reflect.ValueOf(randomValue(r)))
		return
	case reflect.TypeFor[drivers.Kind]():
		value.SetString(string(drivers.Kinds()[r.IntN(len(drivers.Kinds()))]))
		return
	}
	switch value.Kind() {
	case reflect.Pointer:
		if r.IntN(3) > 0 {
			value.Set(reflect.New(value.Type().Elem()))
			random(r, value.Elem())
		}
	case reflect.Slice:
		if r.IntN(3) > 0 {
			value.Set(reflect.MakeSlice(value.Type(), r.IntN(3), 3))
			for i := range value.Len() {
				random(r, value.Index(i))
			}
		}
	case reflect.Struct:
		for i := range value.NumField() {
			random(r, value.Field(i))
		}
	case reflect.String:
		value.SetString([]string{"", "a", "größe", "10.0.0.0/8"}[r.IntN(4)])
	case reflect.Bool:
		value.SetBool(r.IntN(2) == 0)
	case reflect.Int64:
		value.SetInt([]int64{0, 1, -1, 1 << 40}[r.IntN(4)])
	default:
		panic("no random " + value.Type().String())
	}
}

func randomRef(r *rand.Rand) drivers.Ref {
	ref := drivers.Ref{Attribute: []string{"", "id", "gateway_ip"}[r.IntN(3)]}
	if r.IntN(2) == 0 {
		ref.Name = "net"
		return ref
	}
	ref.Role = &drivers.Role{
		Kind: []string{"", "Namespace"}[r.IntN(2)], Namespace: "a", Name: "b", Role: drivers.PodNetwork,
	}
	return ref
}

func randomValue(r *rand.Rand) drivers.Value {
	switch r.IntN(4) {
	case 0:
		return drivers.Value{}
	case 3:
		return drivers.Empty()
	case 1:
		return drivers.Text("text")
	default:
		ref := randomRef(r)
		return drivers.Value{Ref: &ref}
	}
}

func randomSet(r *rand.Rand) drivers.Set {
	var set drivers.Set
	for range r.IntN(4) {
		spec := reflect.New(reflect.TypeOf(specs()[r.IntN(len(specs()))])).Elem()
		random(r, spec)
		set.Resources = append(set.Resources, drivers.Resource{
			Name: "r", Spec: spec.Interface().(drivers.Spec), Exports: []string{"x", "y"}[:r.IntN(3)],
			Claim: []string{"", "router"}[r.IntN(2)], OnDelete: []drivers.Policy{"", drivers.Delete, drivers.Retain}[r.IntN(3)],
			Expand: r.IntN(9), After: []drivers.Ref{randomRef(r), randomRef(r)}[:r.IntN(3)],
		})
	}
	for range r.IntN(3) {
		contribution := drivers.Contribution{
			Name: "c", Target: *drivers.FromRole(drivers.Role{Role: "router"}).Ref.Role, Attribute: "routes",
			Mode: []drivers.ContributionMode{"", drivers.Add, drivers.Replace}[r.IntN(3)],
		}
		switch r.IntN(5) {
		case 3:
			contribution.Resource = randomValue(r)
		case 0:
			contribution.SecurityGroup = randomValue(r)
		case 1:
			contribution.AddressPair = &drivers.AddressPair{}
			random(r, reflect.ValueOf(contribution.AddressPair).Elem())
		case 2:
			contribution.Route = &drivers.Route{}
			random(r, reflect.ValueOf(contribution.Route).Elem())
		}
		set.Contributions = append(set.Contributions, contribution)
	}
	for range r.IntN(3) {
		output := drivers.Output{
			Kind: []drivers.OutputKind{drivers.Annotation, drivers.Label, drivers.Ingress}[r.IntN(3)], Key: "k",
		}
		if r.IntN(2) == 0 {
			output.Text = randomValue(r)
		} else {
			ref := randomRef(r)
			output.Document = &ref
		}
		set.Outputs = append(set.Outputs, output)
	}
	for range r.IntN(3) {
		set.Diagnostics = append(set.Diagnostics, drivers.Diagnostic{
			Severity: []drivers.Severity{drivers.Note, drivers.Warning, drivers.Error}[r.IntN(3)], Reason: "R", Message: "m",
			Resource: "r",
		})
	}
	set.Undecided = []string{"u", "v"}[:r.IntN(3)]
	return set
}

func TestSetsGoRoundUnchanged(t *testing.T) {
	// Lists that are not part of a spec have no unset.
	plain := cmp.FilterPath(func(path cmp.Path) bool {
		field, ok := path.Last().(cmp.StructField)
		if !ok {
			return false
		}
		owner := path.Index(-2).Type()
		return owner == reflect.TypeFor[drivers.Resource]() && (field.Name() == "Exports" || field.Name() == "After") ||
			owner == reflect.TypeFor[drivers.Set]() && field.Name() == "Undecided"
	}, cmpopts.EquateEmpty())
	for seed := range uint64(3000) {
		set := randomSet(rand.New(rand.NewPCG(seed, 1)))
		message, err := SetToProto(set)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		encoded, err := proto.Marshal(message)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		decoded := &ravenv1.Set{}
		if err := proto.Unmarshal(encoded, decoded); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		got, err := SetFromProto(decoded)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if diff := cmp.Diff(set, got, plain); diff != "" {
			t.Fatalf("seed %d: the Set changed on its way (-before +after):\n%s", seed, diff)
		}
	}
}

func TestUnsetIsNotEmpty(t *testing.T) {
	for name, spec := range map[string]drivers.Spec{
		"unset":         drivers.Port{},
		"no port":       drivers.FloatingIP{PortID: drivers.Empty()},
		"empty texts":   drivers.Port{Name: new(""), HostID: new("")},
		"empty lists":   drivers.Port{FixedIPs: []drivers.FixedIP{}, SecurityGroups: []drivers.Value{}},
		"no gateway":    drivers.Router{ExternalGateway: &drivers.ExternalGateway{}},
		"unset gateway": drivers.Router{},
		"false":         drivers.Network{AdminStateUp: new(false), MTU: new(int64(0))},
	} {
		t.Run(name, func(t *testing.T) {
			message, err := SetToProto(drivers.Set{Resources: []drivers.Resource{{Name: "r", Spec: spec}}})
			if err != nil {
				t.Fatal(err)
			}
			got, err := SetFromProto(message)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(spec, got.Resources[0].Spec); diff != "" {
				t.Errorf("-before +after:\n%s", diff)
			}
		})
	}
}

type foreignSpec struct{}

func (foreignSpec) Kind() drivers.Kind { return "volume" }

func TestWhatHasNoFormOnTheWire(t *testing.T) {
	role := drivers.Role{Role: "router"}
	both := drivers.Ref{Name: "a", Role: &role}
	for name, set := range map[string]drivers.Set{
		"no spec":        {Resources: []drivers.Resource{{Name: "r"}}},
		"nil pointer":    {Resources: []drivers.Resource{{Name: "r", Spec: (*drivers.Port)(nil)}}},
		"foreign kind":   {Resources: []drivers.Resource{{Name: "r", Spec: foreignSpec{}}}},
		"unknown policy": {Resources: []drivers.Resource{{Name: "r", Spec: drivers.Network{}, OnDelete: "x"}}},
		"two targets": {
			Resources: []drivers.Resource{{Name: "r", Spec: drivers.Network{}, After: []drivers.Ref{both}}},
		},
		"text and ref": {
			Outputs: []drivers.Output{{Kind: drivers.Label, Text: drivers.Value{Literal: "a", Ref: &drivers.Ref{Name: "a"}}}},
		},
		"empty and not": {
			Outputs: []drivers.Output{{Kind: drivers.Label, Text: drivers.Value{Literal: "a", Empty: true}}},
		},
		"text and document": {
			Outputs: []drivers.Output{{Kind: drivers.Label, Text: drivers.Text("a"), Document: &drivers.Ref{Name: "a"}}},
		},
		"no kind of output": {Outputs: []drivers.Output{{Text: drivers.Text("a")}}},
		"no severity":       {Diagnostics: []drivers.Diagnostic{{Message: "m"}}},
		"two elements": {
			Contributions: []drivers.Contribution{{Route: &drivers.Route{}, AddressPair: &drivers.AddressPair{}}},
		},
		"two values":         {Contributions: []drivers.Contribution{{Route: &drivers.Route{}, Resource: drivers.Text("x")}}},
		"unknown mode":       {Contributions: []drivers.Contribution{{Mode: "x"}}},
		"expand is too much": {Resources: []drivers.Resource{{Name: "r", Spec: drivers.Network{}, Expand: 1 << 40}}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := SetToProto(set); err == nil {
				t.Error("want an error")
			}
		})
	}
	if got, err := SetToProto(drivers.Set{
		Resources: []drivers.Resource{{Name: "r", Spec: &drivers.Port{}}},
	}); err != nil || got.GetResources()[0].GetPort() == nil {
		t.Errorf("a pointer to a spec is a spec: %v", err)
	}
	if _, err := SetFromProto(&ravenv1.Set{Resources: []*ravenv1.Resource{{Name: "r"}}}); err == nil {
		t.Error("a resource without a known spec must not be dropped or kept")
	}
}
