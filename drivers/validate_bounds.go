// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"fmt"
	"reflect"
)

// What a Set may have, at most. What has more is refused as a whole, before anything else is checked: the answer is
// about one object, and the core's memory and time are everybody's. docs/plugin-protocol.md has them for authors.
const (
	// MaxParts is how many of each a Set may have: resources, contributions, outputs, diagnostics, undecided names, and
	// needs that it rests on. A resource may refer to so many others in After, and be exported under so many roles.
	MaxParts = 4096
	// MaxNameBytes is how long a name may be: of a resource, a claim, a contribution, a role, an output.
	MaxNameBytes = 1024
)

// maxProblems is how many problems of a Set are told, and maxProblem how many bytes each may take.
const (
	maxProblems = 50
	maxProblem  = 512
)

// bounds says what a Set has too much of.
func (v *validator) bounds(s Set) {
	most := func(at string, count int) {
		if count > MaxParts {
			v.say("%s: there are %d, more than %d", at, count, MaxParts)
		}
	}
	name := func(at, text string) {
		if len(text) > MaxNameBytes {
			v.say("%s %.40q…: it is %d bytes long, more than %d", at, text, len(text), MaxNameBytes)
		}
	}
	most("resources", len(s.Resources))
	most("contributions", len(s.Contributions))
	most("outputs", len(s.Outputs))
	most("diagnostics", len(s.Diagnostics))
	most("undecided", len(s.Undecided))
	if len(v.problems) > 0 {
		return
	}
	for _, r := range s.Resources {
		name("the name of resource", r.Name)
		name("the claim", r.Claim)
		if len(r.After) > MaxParts || len(r.Exports) > MaxParts {
			most(fmt.Sprintf("resource %.40q: after", r.Name), len(r.After))
			most(fmt.Sprintf("resource %.40q: exports", r.Name), len(r.Exports))
		}
		for _, role := range r.Exports {
			name("the role", role)
		}
	}
	for _, c := range s.Contributions {
		name("the name of contribution", c.Name)
	}
	for _, o := range s.Outputs {
		name("the key of output", o.Key)
	}
	for _, text := range s.Undecided {
		name("the undecided name", text)
	}
}

// Size returns about how many bytes of memory a Set takes.
func (s Set) Size() int { return int(reflect.TypeFor[Set]().Size()) + behind(reflect.ValueOf(s)) }

// behind returns about how many bytes a value takes beside its own place.
func behind(v reflect.Value) int {
	switch v.Kind() { // what is not named has nothing behind it
	case reflect.String:
		return v.Len()
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return 0
		}
		return int(v.Elem().Type().Size()) + behind(v.Elem())
	case reflect.Struct:
		total := 0
		for i := range v.NumField() {
			total += behind(v.Field(i))
		}
		return total
	case reflect.Slice:
		total := v.Len() * int(v.Type().Elem().Size())
		for i := range v.Len() {
			total += behind(v.Index(i))
		}
		return total
	default:
		return 0
	}
}
