// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"fmt"
	"slices"
	"strings"
)

// InvalidError says everything that is wrong with a Set.
type InvalidError struct {
	// Problems are sentences, each of which names the resource and the field.
	Problems []string
}

// Error implements error, on one line.
func (e *InvalidError) Error() string { return "invalid set: " + strings.Join(e.Problems, "; ") }

func (v *validator) err() error {
	if len(v.problems) == 0 {
		return nil
	}
	if v.untold > 0 {
		v.problems = append(v.problems, fmt.Sprintf("and %d more", v.untold))
	}
	return &InvalidError{Problems: v.problems}
}

// Validate checks a Set as far as that is possible without the cloud: names are unique, refs within the Set lead
// somewhere and in no circle, fields are set that must be and hold what they can hold, and all of it is within what
// the driver's Info declares. A Set that is out of bounds (see MaxParts) is refused for that alone. The error is nil
// or an *InvalidError with every problem, up to fifty of them.
func (s Set) Validate(info Info) error {
	v := &validator{info: info, undecided: map[string]bool{}}
	v.bounds(s)
	if len(v.problems) > 0 {
		return v.err()
	}
	v.resources = make(map[string]Resource, len(s.Resources))
	for _, r := range s.Resources {
		if _, twice := v.resources[r.Name]; twice {
			v.say("resource %q: its name is there twice", r.Name)
		}
		v.resources[r.Name] = r
	}
	v.exports(s)
	v.openNames(s)
	for _, r := range s.Resources {
		v.resource(r)
	}
	v.cycle(s)
	v.contributions(s)
	v.outputs(s)
	for _, d := range s.Diagnostics {
		if d.Severity != Note && d.Severity != Warning && d.Severity != Error {
			v.say("diagnostic %q: severity %q is neither note nor warning nor error", d.Reason, d.Severity)
		}
	}
	return v.err()
}

type validator struct {
	info      Info
	resources map[string]Resource
	undecided map[string]bool
	problems  []string
	untold    int // problems beyond maxProblems
}

func (v *validator) say(format string, args ...any) {
	if len(v.problems) >= maxProblems {
		v.untold++
		return
	}
	problem := fmt.Sprintf(format, args...)
	if len(problem) > maxProblem {
		problem = strings.ToValidUTF8(problem[:maxProblem], "") + "…"
	}
	v.problems = append(v.problems, problem)
}

func (v *validator) exports(s Set) {
	byRole, byClaim := map[string]string{}, map[string]string{}
	for _, r := range s.Resources {
		for _, role := range r.Exports {
			if other, twice := byRole[role]; twice {
				v.say("resource %q: exports: role %q is exported by %q as well", r.Name, role, other)
			}
			if role == "" {
				v.say("resource %q: exports: a role has no name", r.Name)
			}
			byRole[role] = r.Name
		}
		if r.Claim == "" {
			continue
		}
		if other, twice := byClaim[r.Claim]; twice {
			v.say("resource %q: claim: %q is claimed by %q as well", r.Name, r.Claim, other)
		}
		byClaim[r.Claim] = r.Name
	}
}

// openNames checks what the Set leaves undecided.
func (v *validator) openNames(s Set) {
	if len(s.Undecided) == 0 {
		return
	}
	decided := make(map[string]string, len(s.Resources))
	for _, r := range s.Resources {
		decided[r.Claim] = r.Name
	}
	for _, r := range s.Resources {
		decided[r.Name] = r.Name
	}
	for _, name := range s.Undecided {
		at := fmt.Sprintf("undecided %q", name)
		v.name(at+": name", name)
		if v.undecided[name] {
			v.say("%s: its name is there twice", at)
		}
		v.undecided[name] = true
		if resource, ok := decided[name]; ok && name != "" {
			v.say("%s: resource %q is in the set, so it is decided", at, resource)
		}
	}
}

func (v *validator) resource(r Resource) {
	at := fmt.Sprintf("resource %q", r.Name)
	v.name(at+": name", r.Name)
	if r.Spec == nil {
		v.say("%s: spec is not set", at)
		return
	}
	kind := r.Spec.Kind()
	schema := SchemaOf(r.Spec)
	switch {
	case len(schema) == 0:
		v.say("%s: there is no kind %q", at, kind)
		return
	case !slices.Contains(v.info.Kinds, kind):
		v.say("%s: kind %s is not among those that the driver declares", at, kind)
	}
	attrs := Attributes(r.Spec)
	for _, a := range schema {
		if value, set := attrs[a.Name]; a.Required && (!set || value == "") {
			v.say("%s: %s must be set", at, a.Name)
		} else if set {
			v.value(at, r, a.Name, value)
		}
	}
	v.rules(at, r.Spec)
	v.afterAndPolicy(at, r, kind)
}

func (v *validator) afterAndPolicy(at string, r Resource, kind Kind) {
	for _, ref := range r.After {
		v.ref(at+": after", &r, ref)
		v.hard(at+": after", ref)
	}
	switch {
	case r.OnDelete != "" && r.OnDelete != Delete && r.OnDelete != Retain:
		v.say("%s: on_delete: %q is neither delete nor retain", at, r.OnDelete)
	case kind == KindLookup && (r.Claim != "" || r.OnDelete != "" || len(r.After) > 0):
		v.say("%s: a lookup has no claim, on_delete or after, for it is never changed", at)
	}
	if r.Claim != "" {
		v.name(at+": claim", r.Claim)
	}
	if r.Expand < 0 {
		v.say("%s: expand: %d is negative", at, r.Expand)
	}
	if r.Expand <= 1 {
		return
	}
	subnet, ok := r.Spec.(Subnet)
	switch {
	case !ok:
		v.say("%s: expand: only a subnet can be expanded", at)
	case subnet.SubnetPoolID.IsZero() || subnet.CIDR != nil:
		v.say("%s: expand: needs subnetpool_id and no cidr, for every further subnet has a range of its own", at)
	case subnet.AllocationPools != nil || subnet.GatewayIP != nil && *subnet.GatewayIP != "":
		v.say("%s: expand: allocation_pools and gateway_ip cannot be the same in every subnet", at)
	case r.Expand > 256:
		v.say("%s: expand: %d is more than 256", at, r.Expand)
	}
}

// name checks a logical name. Some are kept for the core: "rif." sets router interfaces apart from ports, "ready."
// those of pools, "~" marks shortened names, and "<name>.2" is the second subnet of an expandable one.
func (v *validator) name(at, name string) {
	switch {
	case name == "":
		v.say("%s is empty", at)
	case strings.HasPrefix(name, "rif."):
		v.say("%s: %q begins with %q, which is kept for router interfaces", at, name, "rif.")
	case strings.HasPrefix(name, "ready."):
		v.say("%s: %q begins with %q, which is kept for the ready ports of pools", at, name, "ready.")
	case strings.Contains(name, "~"):
		v.say("%s: %q has a '~', which is kept for shortened names", at, name)
	}
	base, digits, ok := cutLast(name, ".")
	if ok && digits != "" && strings.Trim(digits, "0123456789") == "" && v.resources[base].Expand > 1 {
		v.say("%s: %q is what a further subnet of %q would be called", at, name, base)
	}
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// value checks the refs and the texts in an attribute, however deep.
func (v *validator) value(at string, r Resource, name string, value any) {
	switch x := value.(type) {
	case Ref:
		v.ref(at+": "+name, &r, x)
		v.hard(at+": "+name, x)
	case string:
		if problem := malformed(r.Spec.Kind(), name, x); problem != "" {
			v.say("%s: %s: %q %s", at, name, x, problem)
		}
	case []any:
		for i, element := range x {
			if element == "" {
				v.say("%s: %s[%d] is empty", at, name, i)
			}
			if ref, ok := element.(Ref); ok && ref.Soft && ref.Role != nil {
				ref.Soft = false // here it may be
				element = ref
			}
			v.value(at, r, name, element)
		}
	case map[string]any:
		for _, part := range sortedKeys(x) {
			v.value(at+": "+name, r, part, x[part])
		}
	}
}

// ref checks a ref; of may be nil.
func (v *validator) ref(at string, of *Resource, ref Ref) {
	switch {
	case (ref.Name == "") == (ref.Role == nil):
		v.say("%s: a ref has either a name or a role", at)
	case ref.Role != nil:
		v.role(at, *ref.Role)
	case v.undecided[ref.Name]: // leads to what exists, whatever that is
	default:
		target, ok := v.resources[ref.Name]
		switch {
		case !ok:
			v.say("%s: refers to %q, which is not in the set", at, ref.Name)
		case target.Spec == nil:
		case of != nil && of.Claim != "" && target.Claim == "" && target.Spec.Kind() != KindLookup:
			v.say("%s: a claimed resource cannot refer to %q, which other claimants do not have", at, ref.Name)
		case !known(target.Spec, ref.Attribute):
			v.say("%s: %s %q has no attribute %q", at, target.Spec.Kind(), ref.Name, ref.Attribute)
		}
	}
}

// hard refuses a soft ref where it cannot be left out.
func (v *validator) hard(at string, ref Ref) {
	if ref.Soft {
		v.say("%s: a soft ref is an element of a list, and by role", at)
	}
}

// known says whether documents of a kind have an attribute.
func known(spec Spec, attribute string) bool {
	kind := spec.Kind()
	if lookup, ok := spec.(Lookup); ok {
		kind = lookup.Of
	}
	return attribute == "" || slices.Contains(shown(kind), attribute)
}

func (v *validator) role(at string, role Role) {
	switch {
	case role.Role == "":
		v.say("%s: a role has no name", at)
	case role.Kind == "" && (role.Namespace != "" || role.Name != ""), role.Kind != "" && role.Name == "":
		v.say("%s: role %s needs both the kind and the name of a source object, or neither", at, role.Role)
	}
}

// cycle finds resources that wait for each other. It keeps the way that it came on a list of its own: a chain may be
// long.
func (v *validator) cycle(s Set) {
	const open, done = 1, 2
	state := make(map[string]int, len(s.Resources))
	var path []step
	enter := func(name string) {
		r, ok := v.resources[name]
		switch {
		case state[name] == open:
			v.circle(path, name)
		case state[name] == done || !ok || r.Spec == nil:
		default:
			state[name] = open
			path = append(path, step{name, refs(r)})
		}
	}
	for _, r := range s.Resources {
		enter(r.Name)
		for len(path) > 0 {
			last := &path[len(path)-1]
			if len(last.left) == 0 {
				state[last.name] = done
				path = path[:len(path)-1]
				continue
			}
			next := last.left[0]
			last.left = last.left[1:]
			enter(next)
		}
	}
}

// step is a resource on the way of cycle, and those that it refers to and that were not visited yet.
type step struct {
	name string
	left []string
}

func (v *validator) circle(path []step, name string) {
	if len(v.problems) >= maxProblems { // it would not be read
		v.untold++
		return
	}
	from := slices.IndexFunc(path, func(s step) bool { return s.name == name })
	names := make([]string, 0, len(path)-from+1)
	for _, s := range path[from:] {
		names = append(names, s.name)
	}
	v.say("resource %q: refers to itself by way of %s", name, strings.Join(append(names, name), " → "))
}

// refs lists the names of the Set that a resource refers to.
func refs(r Resource) []string {
	var names []string
	var walk func(value any)
	walk = func(value any) {
		switch x := value.(type) {
		case Ref:
			if x.Role == nil {
				names = append(names, x.Name)
			}
		case []any:
			for _, element := range x {
				walk(element)
			}
		case map[string]any:
			for _, key := range sortedKeys(x) {
				walk(x[key])
			}
		}
	}
	walk(Attributes(r.Spec))
	for _, ref := range r.After {
		walk(ref)
	}
	return names
}
