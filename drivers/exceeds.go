// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"fmt"
	"reflect"
	"slices"
)

// Exceeds says what an Info declares that another, which was accepted, does not: kinds, keys and parts of the status,
// another name, role or option. It is empty where nothing is. What a driver may do is what was accepted of it,
// whatever its program declares later.
func (i Info) Exceeds(accepted Info) string {
	switch {
	case i.Name != accepted.Name:
		return fmt.Sprintf("the name %q in place of %q", i.Name, accepted.Name)
	case i.Role != accepted.Role:
		return fmt.Sprintf("the role %q in place of %q", i.Role, accepted.Role)
	}
	if more, ok := beyond(i.Kinds, accepted.Kinds); ok {
		return fmt.Sprintf("the kind %q", more)
	}
	for _, written := range []struct {
		what           string
		keys, accepted []string
	}{
		{"annotation", i.Annotations, accepted.Annotations},
		{"label", i.Labels, accepted.Labels},
		{"part of the status", i.Status, accepted.Status},
	} {
		if more, ok := beyond(written.keys, written.accepted); ok {
			return fmt.Sprintf("the %s %q", written.what, more)
		}
	}
	for _, o := range i.Options {
		if !slices.ContainsFunc(accepted.Options, func(a Option) bool { return sameOption(a, o) }) {
			return fmt.Sprintf("the option [%s] %s, or declares it otherwise", o.Group, o.Name)
		}
	}
	return ""
}

func beyond[T comparable](list, accepted []T) (first T, found bool) {
	for _, one := range list {
		if !slices.Contains(accepted, one) {
			return one, true
		}
	}
	return first, false
}

// sameOption compares all but what is only for people.
func sameOption(a, b Option) bool {
	a.Help, a.ChoiceHelp, a.SampleDefault, a.Advanced = b.Help, b.ChoiceHelp, b.SampleDefault, b.Advanced
	a.DeprecatedForRemoval = b.DeprecatedForRemoval
	a.DeprecatedSince, a.DeprecatedReason = b.DeprecatedSince, b.DeprecatedReason
	return reflect.DeepEqual(a, b)
}
