package config

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Show writes every option with its value and where that came from; secrets are masked.
func (v *Values) Show(w io.Writer) error {
	var b strings.Builder
	group := ""
	order := slices.Clone(v.order)
	slices.SortStableFunc(order, func(x, y Name) int {
		switch {
		case x.Group == y.Group:
			return 0
		case x.Group == DefaultGroup:
			return -1
		case y.Group == DefaultGroup:
			return 1
		}
		return strings.Compare(x.Group, y.Group)
	})
	for _, n := range order {
		if n.Group != group {
			if group != "" {
				b.WriteString("\n")
			}
			group = n.Group
			fmt.Fprintf(&b, "[%s]\n", group)
		}
		val := v.byName[n]
		text := format(val.value)
		if val.secret {
			text = masked(val.value)
		}
		text = strings.ReplaceAll(text, "\n", "\\n")
		fmt.Fprintf(&b, "%-50s # %s\n", n.Name+" = "+text, val.origin)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("showing the configuration: %w", err)
	}
	return nil
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
