// SPDX-License-Identifier: Apache-2.0

// Package config is oslo.config in Go over ini.v1: typed options, kuryr.conf, precedence, substitution, validation,
// samples. It must never guess: a value that it cannot read is an error with file and line, and a secret value is
// never shown.
package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
)

// DefaultGroup is the one group whose name is case-sensitive; an option without a group belongs to it.
const DefaultGroup = "DEFAULT"

// Type is the type of an option's value.
type Type string

// The types of options, with the Go types that Values holds for them.
const (
	String   Type = "string"   // string
	Integer  Type = "integer"  // int64
	Float    Type = "float"    // float64
	Boolean  Type = "boolean"  // bool: true/1/on/yes and false/0/off/no in any case
	Port     Type = "port"     // int64, 0 to 65535 unless bounded closer
	List     Type = "list"     // []string: a,b,c; the last of several lines wins, empty items are dropped
	Dict     Type = "dict"     // map[string]string: k:v,k2:v2
	Multi    Type = "multi"    // []string: one value per line, which may repeat; repeats add up
	Duration Type = "duration" // time.Duration: a bare number is seconds, or with a unit: 300ms, 30s, 5m, 1h30m

	IP          Type = "ip"           // string: an IPv4 or IPv6 address; see IPVersion
	CIDR        Type = "cidr"         // string: a range of addresses as 10.0.0.0/8, without host bits
	URI         Type = "uri"          // string: a URI of RFC 3986 with a scheme and a host; see Schemes
	Hostname    Type = "hostname"     // string: a host name of RFC 1123; a final dot is dropped
	HostAddress Type = "host_address" // string: an IP address or a host name
)

// Name is the full name of an option. An empty Group is DEFAULT.
type Name struct{ Group, Name string }

// String returns "[group] name".
func (n Name) String() string {
	if n.Name == "" {
		return "[" + n.Group + "]"
	}
	return "[" + n.Group + "] " + n.Name
}

func (n Name) canonical() Name { return Name{canonicalGroup(n.Group), n.Name} }

func canonicalGroup(group string) string {
	if group == "" || group == DefaultGroup {
		return DefaultGroup
	}
	return strings.ToLower(group)
}

// Option declares one configuration option. It is declared once, in the package that uses it.
type Option struct {
	Group string // empty is DEFAULT
	Name  string // with underscores, as in the file
	Type  Type   // empty is String
	// Default is the text of the default as an operator would write it ($name is substituted). HasDefault tells an empty
	// default from none; it may be left out where Default is not empty. Several lines are several values of a Multi
	// option.
	Default    string
	HasDefault bool
	Help       string
	// Choices are the values that a String, a number or each item of a List or Multi may have. ChoiceHelp describes them
	// in the sample.
	Choices    []string
	ChoiceHelp map[string]string
	// Pattern is a regular expression (Go's syntax) that a String, or each item of a List or Multi, must match somewhere;
	// anchor it with ^ and $. It excludes Choices.
	Pattern string
	// IgnoreCase accepts the choices and what matches the pattern in any case; the value is the choice as declared.
	IgnoreCase bool
	// MaxLength is the most characters that a String or URI may have; 0 is unbounded.
	MaxLength int
	// Schemes are those that a URI may have; empty allows all.
	Schemes []string
	// IPVersion is 4 or 6 where an IP, CIDR or HostAddress must be of that version; 0 allows both.
	IPVersion int
	// Item is the type of each item of a List or Multi and of each value of a Dict; empty is String. What the option
	// allows is checked on each item; the items stay texts.
	Item Type
	// Min and Max bound an Integer, Float or Port, and a Duration in seconds; nil is unbounded (a Duration is never
	// negative unless Min says so).
	Min, Max *float64
	// Secret values are masked wherever the package writes them.
	Secret   bool
	Required bool
	// Advanced options come last in the sample; Mutable ones may change at a reload.
	Advanced, Mutable bool
	// StartOnly options are read once, at start: even a reload leaves the old value in force, with a warning.
	StartOnly bool
	// Deprecated lists former names, still accepted with a warning. An empty Group or Name is the option's own.
	Deprecated []Name
	// DeprecatedForRemoval, with the release Since when and the Reason, makes a set value warn.
	DeprecatedForRemoval bool
	DeprecatedSince      string
	Reason               string
	// NoEffect says why a set value has no effect (yet): it is accepted with a warning.
	NoEffect string
	// Env lists further environment variables, tried in order after OS_<GROUP>__<OPTION>. Empty ones count as not set.
	Env []string
	// SampleDefault stands in the sample instead of a default that depends on the machine.
	SampleDefault string
	// Declarer says who declares the option, for example "kuryr.raven" or "driver pod"; the sample groups by it.
	Declarer string
}

// Key returns the option's full name with the group as Values knows it.
func (o Option) Key() Name { return Name{o.Group, o.Name}.canonical() }

// Group describes a group in the sample.
type Group struct{ Name, Help string }

// Error is one problem with a value, a line or a declaration. File is a path, "environment" or "command line"; it and
// Line are empty where nothing was written (a required option, a declaration).
type Error struct {
	File    string
	Line    int
	Group   string
	Option  string
	Message string
}

// Error returns "file:line: [group] option: message" with what is known of it.
func (e *Error) Error() string {
	var b strings.Builder
	switch {
	case e.File != "" && e.Line > 0:
		fmt.Fprintf(&b, "%s:%d: ", e.File, e.Line)
	case e.File != "":
		b.WriteString(e.File + ": ")
	}
	if e.Group != "" {
		b.WriteString(Name{e.Group, e.Option}.String() + ": ")
	}
	return b.String() + e.Message
}

// Warning is something an operator should fix but that does not prevent running.
type Warning Error

// String returns the warning in the form of an error's text.
func (w Warning) String() string { e := Error(w); return e.Error() }

// registry holds the declared options by name, in order of declaration.
type registry struct {
	options []Option
	byName  map[Name]int
	former  map[Name][]int // by deprecated name
	groups  map[string]bool
}

// newRegistry merges equal declarations. Its errors are joined *Error.
func newRegistry(options []Option) (*registry, error) {
	r := &registry{byName: map[Name]int{}, former: map[Name][]int{}, groups: map[string]bool{DefaultGroup: true}}
	var errs []error
	for _, o := range options {
		o = normalized(o)
		if message := o.misdeclared(); message != "" {
			errs = append(errs, &Error{Group: o.Group, Option: o.Name, Message: "declared by " + o.declarer() + ": " + message})
			continue
		}
		if i, ok := r.byName[o.Key()]; ok {
			if field := differs(r.options[i], o); field != "" {
				errs = append(errs, &Error{Group: o.Group, Option: o.Name, Message: fmt.Sprintf(
					"declared differently by %s and by %s: %s differs", r.options[i].declarer(), o.declarer(), field)})
			}
			continue
		}
		r.byName[o.Key()] = len(r.options)
		r.groups[o.Group] = true
		for _, former := range o.Deprecated {
			r.former[former] = append(r.former[former], len(r.options))
		}
		r.options = append(r.options, o)
	}
	return r, errors.Join(errs...)
}

func normalized(o Option) Option {
	o.Group = canonicalGroup(o.Group)
	if o.Type == "" {
		o.Type = String
	}
	o.HasDefault = o.HasDefault || o.Default != ""
	if o.Type == Port {
		if o.Min == nil {
			o.Min = new(0.0)
		}
		if o.Max == nil {
			o.Max = new(float64(math.MaxUint16))
		}
	}
	o.Deprecated = slices.Clone(o.Deprecated)
	for i, former := range o.Deprecated {
		if former.Group == "" {
			former.Group = o.Group
		}
		if former.Name == "" {
			former.Name = o.Name
		}
		o.Deprecated[i] = former.canonical()
	}
	return o
}

func (o Option) declarer() string {
	if o.Declarer == "" {
		return "an unnamed declarer"
	}
	return o.Declarer
}

// misdeclared says what is wrong with the declaration itself, or "".
func (o Option) misdeclared() string {
	switch o.Type {
	case String, Integer, Float, Boolean, Port, List, Dict, Multi, Duration, IP, CIDR, URI, Hostname, HostAddress:
	default:
		return fmt.Sprintf("unknown type %q", o.Type)
	}
	switch o.Item {
	case "", String, Integer, Float, Boolean, Port, Duration, IP, CIDR, URI, Hostname, HostAddress:
	case List, Dict, Multi:
		return fmt.Sprintf("an item cannot be a %s", o.Item)
	default:
		return fmt.Sprintf("unknown type %q of items", o.Item)
	}
	if problem := o.misruled(); problem != "" {
		return problem
	}
	if o.Name == "" || strings.ContainsAny(o.Name, "=:[]#; \t\n\"`") {
		return fmt.Sprintf("%q is not a name for an option", o.Name)
	}
	if strings.ContainsAny(o.Group, "[]\n") {
		return fmt.Sprintf("%q is not a name for a group", o.Group)
	}
	if o.HasDefault && !strings.Contains(o.Default, "$") {
		if _, problem := o.parse(splitMulti(o, o.Default)); problem != "" {
			return "its default: " + problem
		}
	}
	return ""
}

// misruled says which rules of the declaration exclude each other, or "".
func (o Option) misruled() string {
	switch {
	case o.Pattern != "" && len(o.Choices) > 0:
		return "it has both choices and a pattern"
	case o.Min != nil && o.Max != nil && *o.Max < *o.Min:
		return "its maximum is less than its minimum"
	case o.IPVersion != 0 && o.IPVersion != 4 && o.IPVersion != 6:
		return fmt.Sprintf("there is no IP version %d", o.IPVersion)
	case o.Mutable && o.StartOnly:
		return "it cannot be both mutable and read at start only"
	}
	if _, err := o.pattern(); err != nil {
		return "its pattern: " + err.Error()
	}
	return ""
}

// differs names the first field in which two declarations of one option mean different things. Texts for people may
// differ.
func differs(a, b Option) string {
	type field struct {
		name string
		a, b any
	}
	for _, f := range []field{
		{"type", a.Type, b.Type},
		{"default", []any{a.Default, a.HasDefault}, []any{b.Default, b.HasDefault}},
		{"choices", append([]string{}, a.Choices...), append([]string{}, b.Choices...)},
		{"pattern", []any{a.Pattern, a.IgnoreCase}, []any{b.Pattern, b.IgnoreCase}},
		{"length", a.MaxLength, b.MaxLength},
		{"schemes", append([]string{}, a.Schemes...), append([]string{}, b.Schemes...)},
		{"IP version", a.IPVersion, b.IPVersion},
		{"type of items", a.Item, b.Item},
		{"minimum", a.Min, b.Min},
		{"maximum", a.Max, b.Max},
		{"secret", a.Secret, b.Secret},
		{"required", a.Required, b.Required},
		{"mutable", []bool{a.Mutable, a.StartOnly}, []bool{b.Mutable, b.StartOnly}},
		{"deprecated names", append([]Name{}, a.Deprecated...), append([]Name{}, b.Deprecated...)},
		{"environment variables", append([]string{}, a.Env...), append([]string{}, b.Env...)},
	} {
		if !reflect.DeepEqual(f.a, f.b) {
			return f.name
		}
	}
	return ""
}
