// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Show writes every option with its value and where that came from; secrets are masked.
func (v *Values) Show(w io.Writer) error {
	return v.show(w, func(value) bool { return true }, func(val value) string { return val.origin.String() })
}

// ShowChanged writes, in the form of Show, the options whose value is not the default, with what the default is.
func (v *Values) ShowChanged(w io.Writer) error {
	return v.show(w, func(val value) bool {
		if val.origin.Source == FromDefault || val.origin.Source == Unset {
			return false
		}
		return !reflect.DeepEqual(val.value, val.fallback)
	}, func(val value) string {
		fallback := format(val.fallback)
		if val.secret {
			fallback = masked(val.fallback)
		}
		return val.origin.String() + "; default: " + oneLine(fallback)
	})
}

func (v *Values) show(w io.Writer, wanted func(value) bool, remark func(value) string) error {
	var b strings.Builder
	group := ""
	order := slices.Clone(v.order)
	slices.SortStableFunc(order, func(x, y Name) int { return compareGroups(x.Group, y.Group) })
	for _, n := range order {
		val := v.byName[n]
		if !wanted(val) {
			continue
		}
		if n.Group != group {
			if group != "" {
				b.WriteString("\n")
			}
			group = n.Group
			fmt.Fprintf(&b, "[%s]\n", group)
		}
		text := format(val.value)
		if val.secret {
			text = masked(val.value)
		}
		fmt.Fprintf(&b, "%-50s # %s\n", n.Name+" = "+oneLine(text), remark(val))
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("showing the configuration: %w", err)
	}
	return nil
}

func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "\\n") }

// compareGroups sorts groups by name, DEFAULT first.
func compareGroups(x, y string) int {
	switch {
	case x == y:
		return 0
	case x == DefaultGroup:
		return -1
	case y == DefaultGroup:
		return 1
	}
	return strings.Compare(x, y)
}

// Encode writes values as a configuration file that Load reads back exactly: dollar signs are escaped, and quotes and
// continuation lines added where needed. A value must not have blank lines or lines with outer white space in it.
func Encode(values map[Name][]string) []byte {
	byName := map[Name][]string{}
	for n, texts := range values {
		byName[n.canonical()] = texts
	}
	names := slices.Collect(maps.Keys(byName))
	slices.SortFunc(names, func(x, y Name) int {
		return strings.Compare(strings.ToLower(x.Group)+"\x00"+x.Name, strings.ToLower(y.Group)+"\x00"+y.Name)
	})
	var b strings.Builder
	group := ""
	for _, n := range names {
		if n.Group != group {
			group = n.Group
			fmt.Fprintf(&b, "[%s]\n", group)
		}
		for _, text := range byName[n] {
			fmt.Fprintf(&b, "%s = %s\n", n.Name, encodeValue(text))
		}
	}
	return []byte(b.String())
}

func encodeValue(text string) string {
	text = strings.ReplaceAll(text, "$", "$$")
	first, rest, folded := strings.Cut(text, "\n")
	if strings.TrimSpace(first) != first || first != "" && strings.ContainsAny(first[:1], "\"'`") {
		first = `"` + first + `"`
		if strings.HasPrefix(first, `"""`) {
			first = "'" + first[1:len(first)-1] + "'"
		}
	}
	if !folded {
		return first
	}
	return first + "\n    " + strings.ReplaceAll(rest, "\n", "\n    ")
}
