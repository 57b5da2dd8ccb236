// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Docs writes a reference of the options in Markdown: a table of contents by group, and for each option its type,
// default, rules and help. Groups add help texts to groups.
func Docs(w io.Writer, options []Option, groups ...Group) error {
	reg, err := newRegistry(options)
	if err != nil {
		return fmt.Errorf("writing the reference: %w", err)
	}
	help := map[string]string{}
	for _, g := range groups {
		help[canonicalGroup(g.Name)] = g.Help
	}
	byGroup := map[string][]Option{}
	var names []string
	for _, o := range reg.options {
		if byGroup[o.Group] == nil {
			names = append(names, o.Group)
		}
		byGroup[o.Group] = append(byGroup[o.Group], o)
	}
	slices.SortFunc(names, compareGroups)
	var b strings.Builder
	b.WriteString("# Configuration options\n\n")
	for _, name := range names {
		fmt.Fprintf(&b, "- [`[%s]`](#%s)\n", name, anchor(name))
	}
	for _, name := range names {
		fmt.Fprintf(&b, "\n## `[%s]`\n", name)
		if help[name] != "" {
			b.WriteString("\n" + help[name] + "\n")
		}
		slices.SortStableFunc(byGroup[name], func(x, y Option) int { return weight(x) - weight(y) })
		for _, o := range byGroup[name] {
			docsOption(&b, o)
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the reference: %w", err)
	}
	return nil
}

// anchor is the link that Markdown readers give a heading.
func anchor(group string) string {
	return strings.Map(func(c rune) rune {
		if c == '-' || c == '_' || c < 128 && isAlphanumeric(byte(c)) {
			return c
		}
		return -1
	}, strings.ToLower(group))
}

func docsOption(b *strings.Builder, o Option) {
	fmt.Fprintf(b, "\n### `%s`\n\n", o.Name)
	if o.Help != "" {
		b.WriteString(o.Help + "\n\n")
	}
	fact := func(name, format string, args ...any) {
		fmt.Fprintf(b, "- %s: %s\n", name, fmt.Sprintf(format, args...))
	}
	fact("Type", "%s; %s", o.Type.name(), o.allowed())
	fact("Default", "%s", docsDefault(o))
	for _, c := range o.Choices {
		if o.ChoiceHelp[c] != "" {
			fact("`"+c+"`", "%s", o.ChoiceHelp[c])
		}
	}
	fact("Environment", "`%s`", strings.Join(append([]string{EnvName(o.Group, o.Name)}, o.Env...), "`, `"))
	for _, former := range o.Deprecated {
		fact("Former name", "`%s`", former)
	}
	if o.Declarer != "" {
		fact("Declared by", "%s", o.Declarer)
	}
	for _, trait := range o.traits() {
		b.WriteString("- " + trait + "\n")
	}
}

func docsDefault(o Option) string {
	switch {
	case o.SampleDefault != "":
		return "depends on the machine, for example `" + o.SampleDefault + "`"
	case !o.HasDefault:
		return "none"
	case o.Default == "":
		return "empty"
	}
	return "`" + strings.ReplaceAll(o.Default, "\n", "`, `") + "`"
}

// traits says in sentences what else there is to know of an option.
func (o Option) traits() []string {
	var traits []string
	add := func(is bool, text string) {
		if is {
			traits = append(traits, text)
		}
	}
	add(o.Required, "Must be set.")
	add(o.Secret, "Secret: never shown.")
	add(o.Mutable, "Can be changed without restarting.")
	add(o.StartOnly, "Is read at start only.")
	add(o.Advanced, "For advanced users.")
	add(o.NoEffect != "", "Has no effect: "+o.NoEffect)
	add(o.DeprecatedForRemoval, capital(removal(o)))
	return traits
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] + "." }
