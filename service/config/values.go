// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"
)

// Source is the kind of place that a value came from.
type Source string

// The sources, from the weakest to the strongest.
const (
	Unset       Source = "not set"
	FromDefault Source = "default"
	FromFile    Source = "file"
	FromEnv     Source = "environment"
	FromArgs    Source = "command line"
)

// Origin says where a value came from.
type Origin struct {
	Source Source
	File   string // FromFile: the path
	Line   int    // FromFile: counted from 1
	Env    string // FromEnv: the variable
}

// String returns "path:line", "environment NAME", "command line", "default" or "not set".
func (o Origin) String() string {
	switch o.Source {
	case FromFile:
		return fmt.Sprintf("%s:%d", o.File, o.Line)
	case FromEnv:
		return "environment " + o.Env
	case Unset, FromDefault, FromArgs:
	}
	return string(o.Source)
}

// place returns the origin as an Error's File and Line.
func (o Origin) place() (string, int) {
	if o.Source == FromFile {
		return o.File, o.Line
	}
	return o.String(), 0
}

// value is one resolved option.
type value struct {
	option Option
	value  any // nil: not set
	origin Origin
	secret bool // the option is, or it holds a substituted value that is
	// fallback is what the value would be if no source set it.
	fallback any
}

// Values holds the resolved values of all declared options. It never changes; a reload makes another one.
//
// The getters return the zero value for an option that is neither set nor has a default, and panic for one that is not
// declared or of another type: both are mistakes in the program, not in a file.
type Values struct {
	byName map[Name]value
	order  []Name
}

func get[T any](v *Values, group, name string) T {
	var zero T
	val := v.must(group, name)
	if val.value == nil {
		if reflect.TypeFor[T]() != goType(val.option.Type) {
			panic(fmt.Sprintf("config: option %s is a %s", val.option.Key(), val.option.Type))
		}
		return zero
	}
	got, ok := val.value.(T)
	if !ok {
		panic(fmt.Sprintf("config: option %s is a %s", val.option.Key(), val.option.Type))
	}
	return got
}

func goType(t Type) reflect.Type {
	switch t {
	case Integer, Port:
		return reflect.TypeFor[int64]()
	case Float:
		return reflect.TypeFor[float64]()
	case Boolean:
		return reflect.TypeFor[bool]()
	case List, Multi:
		return reflect.TypeFor[[]string]()
	case Dict:
		return reflect.TypeFor[map[string]string]()
	case Duration:
		return reflect.TypeFor[time.Duration]()
	case String, IP, CIDR, URI, Hostname, HostAddress:
	}
	return reflect.TypeFor[string]()
}

func (v *Values) must(group, name string) value {
	n := Name{group, name}.canonical()
	val, ok := v.byName[n]
	if !ok {
		panic(fmt.Sprintf("config: option %s is not declared", n))
	}
	return val
}

// String returns a String, IP, CIDR, URI, Hostname or HostAddress option.
func (v *Values) String(group, name string) string { return get[string](v, group, name) }

// Int returns an Integer or Port option.
func (v *Values) Int(group, name string) int64 { return get[int64](v, group, name) }

// Bool returns a Boolean option.
func (v *Values) Bool(group, name string) bool { return get[bool](v, group, name) }

// Float returns a Float option.
func (v *Values) Float(group, name string) float64 { return get[float64](v, group, name) }

// Duration returns a Duration option.
func (v *Values) Duration(group, name string) time.Duration {
	return get[time.Duration](v, group, name)
}

// List returns a copy of a List or Multi option.
func (v *Values) List(group, name string) []string {
	return slices.Clone(get[[]string](v, group, name))
}

// Dict returns a copy of a Dict option.
func (v *Values) Dict(group, name string) map[string]string {
	return maps.Clone(get[map[string]string](v, group, name))
}

// IsSet says whether the option has a value, also if only by default.
func (v *Values) IsSet(group, name string) bool { return v.must(group, name).value != nil }

// Lookup returns the value (of the Go type that Type names, a copy) and whether the option is declared and has one.
func (v *Values) Lookup(group, name string) (any, bool) {
	val := v.byName[Name{group, name}.canonical()].value
	return clone(val), val != nil
}

// Origin says where the option's value came from; Unset also for an option that is not declared.
func (v *Values) Origin(group, name string) Origin {
	if val, ok := v.byName[Name{group, name}.canonical()]; ok {
		return val.origin
	}
	return Origin{Source: Unset}
}

// Options returns the declared options, merged, in order of declaration.
func (v *Values) Options() []Option {
	options := make([]Option, len(v.order))
	for i, n := range v.order {
		options[i] = v.byName[n].option
	}
	return options
}

// Pick returns copies of the values of exactly these options, by group and name; an option without a value is absent.
// So a plugin sees what it declared and nothing else.
func (v *Values) Pick(options []Option) map[string]map[string]any {
	picked := map[string]map[string]any{}
	for _, o := range options {
		n := o.Key()
		val, ok := v.Lookup(n.Group, n.Name)
		if !ok {
			continue
		}
		if picked[n.Group] == nil {
			picked[n.Group] = map[string]any{}
		}
		picked[n.Group][n.Name] = val
	}
	return picked
}

// Secrets returns the texts of all secret values that are set, and the passwords in URIs, for a redactor.
func (v *Values) Secrets() []string {
	var secrets []string
	for _, n := range v.order {
		val := v.byName[n]
		if !val.secret || val.value == nil {
			for _, found := range login.FindAllStringSubmatch(formatted(val.value), -1) {
				secrets = append(secrets, found[2])
			}
			continue
		}
		switch s := val.value.(type) {
		case string:
			secrets = append(secrets, s)
		case []string:
			secrets = append(secrets, s...)
		case map[string]string:
			secrets = append(secrets, slices.Sorted(maps.Values(s))...)
		}
	}
	return slices.DeleteFunc(secrets, func(s string) bool { return s == "" })
}

func clone(value any) any {
	switch v := value.(type) {
	case []string:
		return slices.Clone(v)
	case map[string]string:
		return maps.Clone(v)
	}
	return value
}
