// SPDX-License-Identifier: Apache-2.0

// Package harness has what the suites that run the real raven share: its options, its process, a proxy that can be cut,
// and the difference of two dumps. It must know nothing of one suite's cluster or cloud.
package harness

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Settings are the options of a kuryr.conf by group and name.
type Settings map[string]map[string]string

// Set sets an option, and returns the settings for the next one.
func (s Settings) Set(group, name string, value any) Settings {
	if s[group] == nil {
		s[group] = map[string]string{}
	}
	s[group][name] = fmt.Sprint(value)
	return s
}

// With returns a copy with the options of another.
func (s Settings) With(more Settings) Settings {
	out := Settings{}
	for _, from := range []Settings{s, more} {
		for group, options := range from {
			for name, value := range options {
				out.Set(group, name, value)
			}
		}
	}
	return out
}

// String is the text of the kuryr.conf.
func (s Settings) String() string {
	var b strings.Builder
	for _, group := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&b, "[%s]\n", group)
		for _, name := range slices.Sorted(maps.Keys(s[group])) {
			fmt.Fprintf(&b, "%s = %s\n", name, s[group][name])
		}
		b.WriteByte('\n')
	}
	return b.String()
}
