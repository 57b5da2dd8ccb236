// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

const wrapWidth = 79

// Sample writes a kuryr.conf.sample in the style of oslo-config-generator: DEFAULT first, then the groups sorted;
// within a group by declarer, and advanced options last. Groups add help texts to groups.
func Sample(w io.Writer, options []Option, groups ...Group) error {
	reg, err := newRegistry(options)
	if err != nil {
		return fmt.Errorf("writing the sample: %w", err)
	}
	help := map[string]string{}
	for _, g := range groups {
		help[canonicalGroup(g.Name)] = g.Help
	}
	byGroup := map[string][]Option{DefaultGroup: nil}
	var names []string
	for _, o := range reg.options {
		if _, seen := byGroup[o.Group]; !seen {
			names = append(names, o.Group)
		}
		byGroup[o.Group] = append(byGroup[o.Group], o)
	}
	slices.Sort(names)
	var b strings.Builder
	for i, name := range append([]string{DefaultGroup}, names...) {
		if i > 0 {
			b.WriteString("\n\n")
		}
		fmt.Fprintf(&b, "[%s]\n", name)
		if help[name] != "" {
			b.WriteString(comment(help[name]))
		}
		sampleGroup(&b, byGroup[name])
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the sample: %w", err)
	}
	return nil
}

func sampleGroup(b *strings.Builder, options []Option) {
	byDeclarer := map[string][]Option{}
	var declarers []string
	for _, o := range options {
		if byDeclarer[o.Declarer] == nil {
			declarers = append(declarers, o.Declarer)
		}
		byDeclarer[o.Declarer] = append(byDeclarer[o.Declarer], o)
	}
	slices.Sort(declarers)
	for _, declarer := range declarers {
		fmt.Fprintf(b, "\n#\n# From %s\n#\n", declarer)
		from := byDeclarer[declarer]
		slices.SortStableFunc(from, func(x, y Option) int { return weight(x) - weight(y) })
		for _, o := range from {
			b.WriteString("\n")
			sampleOption(b, o)
		}
	}
}

func weight(o Option) int {
	if o.Advanced {
		return 1
	}
	return 0
}

func sampleOption(b *strings.Builder, o Option) {
	help := "(" + o.Type.name() + " value)"
	if o.Type == Multi {
		help = "(multi valued)"
	}
	if o.Help != "" {
		help = o.Help + " " + help
	}
	if o.DeprecatedForRemoval {
		help = "DEPRECATED: " + help
	}
	b.WriteString(comment(help))
	if o.Min != nil {
		fmt.Fprintf(b, "# Minimum value: %s\n", number(*o.Min))
	}
	if o.Max != nil {
		fmt.Fprintf(b, "# Maximum value: %s\n", number(*o.Max))
	}
	sampleChoices(b, o)
	if o.Mutable {
		b.WriteString("# Note: This option can be changed without restarting.\n")
	}
	for _, former := range o.Deprecated {
		fmt.Fprintf(b, "# Deprecated group/name - [%s]/%s\n", former.Group, former.Name)
	}
	if o.DeprecatedForRemoval {
		since := ""
		if o.DeprecatedSince != "" {
			since = " since " + o.DeprecatedSince
		}
		fmt.Fprintf(b, "# This option is deprecated for removal%s.\n# Its value may be silently ignored in the future.\n",
			since)
		if o.Reason != "" {
			b.WriteString(comment("Reason: " + o.Reason))
		}
	}
	if o.NoEffect != "" {
		b.WriteString(comment("This option has no effect: " + o.NoEffect))
	}
	if o.Advanced {
		b.WriteString("# Advanced Option: intended for advanced users and not used\n" +
			"# by the majority of users, and might have a significant\n# effect on stability and/or performance.\n")
	}
	sampleDefault(b, o)
}

func sampleChoices(b *strings.Builder, o Option) {
	if len(o.Choices) == 0 {
		return
	}
	b.WriteString("# Possible values:\n")
	for _, c := range o.Choices {
		text := o.ChoiceHelp[c]
		if text == "" {
			text = "<No description provided>"
		}
		if c == "" {
			c = "''"
		}
		b.WriteString(comment(c + " - " + text))
	}
}

func sampleDefault(b *strings.Builder, o Option) {
	defaults := []string{o.Default}
	switch {
	case o.SampleDefault != "":
		b.WriteString("#\n# This option has a sample default set, which means that\n" +
			"# its actual default value may vary from the one documented\n# below.\n")
		defaults = []string{o.SampleDefault}
	case o.Type == Multi:
		defaults = append([]string{}, splitMulti(o, o.Default)...)
		if len(defaults) == 0 {
			defaults = []string{""}
		}
	case !o.HasDefault:
		defaults = []string{"<None>"}
	case o.Type == Boolean:
		defaults = []string{strings.ToLower(o.Default)}
	}
	for _, text := range defaults {
		if text != "" {
			if strings.TrimSpace(text) != text {
				text = `"` + text + `"`
			}
			text = " " + strings.ReplaceAll(text, "\n", "\n#    ")
		}
		fmt.Fprintf(b, "#%s =%s\n", o.Name, text)
	}
}

// comment wraps each line of the text into comment lines.
func comment(text string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		current, words := "# "+indent, 0
		for word := range strings.FieldsSeq(line) {
			if words > 0 && len([]rune(current))+1+len([]rune(word)) > wrapWidth {
				b.WriteString(current + "\n")
				current, words = "# ", 0
			}
			if words > 0 {
				current += " "
			}
			current += word
			words++
		}
		b.WriteString(strings.TrimRight(current, " ") + "\n")
	}
	return b.String()
}
