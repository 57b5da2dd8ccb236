// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// unknown reports options and groups in files that are not declared, and environment variables that look like options
// of a known group but are none.
func (l *loader) unknown(strict bool) {
	report := func(w Warning) {
		if strict {
			e := Error(w)
			l.errs = append(l.errs, &e)
			return
		}
		l.warnings = append(l.warnings, w)
	}
	for _, file := range l.files {
		said := map[string]bool{}
		for _, w := range file {
			warning := Warning{File: w.origin.File, Line: w.origin.Line, Group: w.name.Group, Option: w.name.Name}
			switch {
			case l.reg.knows(w.name):
				continue
			case l.reg.knowsGroup(w.name.Group):
				warning.Message = "no such option" + l.reg.suggest(w.name)
			case said[w.name.Group]:
				continue
			default:
				said[w.name.Group] = true
				warning.Option = ""
				warning.Message = "no such group" + l.reg.suggestGroup(w.name.Group)
			}
			report(warning)
		}
	}
	known := map[string]bool{}
	for _, o := range l.reg.options {
		known[EnvName(o.Group, o.Name)] = true
	}
	for _, variable := range slices.Sorted(maps.Keys(l.env)) {
		group, name, ok := strings.Cut(strings.TrimPrefix(variable, "OS_"), "__")
		if !strings.HasPrefix(variable, "OS_") || !ok || known[variable] {
			continue
		}
		n := Name{group, strings.ToLower(name)}.canonical()
		if l.reg.groups[n.Group] {
			report(Warning{
				File: "environment " + variable, Group: n.Group, Option: n.Name, Message: "no such option" + l.reg.suggest(n),
			})
		}
	}
}

func (r *registry) knows(n Name) bool {
	_, current := r.byName[n]
	return current || len(r.former[n]) > 0
}

func (r *registry) knowsGroup(group string) bool {
	if r.groups[group] {
		return true
	}
	for n := range r.former {
		if n.Group == group {
			return true
		}
	}
	return false
}

// suggest returns "; did you mean …?" for an option that are not declared, or "".
func (r *registry) suggest(n Name) string {
	var here []string
	var elsewhere []string
	for _, o := range r.options {
		switch {
		case o.Group == n.Group:
			here = append(here, o.Name)
		case o.Name == n.Name:
			elsewhere = append(elsewhere, o.Key().String())
		}
	}
	if near := nearest(n.Name, here); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	if len(elsewhere) > 0 {
		return fmt.Sprintf("; did you mean %s?", strings.Join(elsewhere, " or "))
	}
	return ""
}

func (r *registry) suggestGroup(group string) string {
	if near := nearest(group, slices.Sorted(maps.Keys(r.groups))); near != "" {
		return fmt.Sprintf("; did you mean [%s]?", near)
	}
	return ""
}

// nearest returns the candidate that is most like the word, or "" where none is alike.
func nearest(word string, candidates []string) string {
	fold := func(s string) string { return strings.ReplaceAll(strings.ToLower(strings.TrimSpace(s)), "-", "_") }
	best, bestDistance := "", max(2, len(word)/3)+1
	for _, c := range candidates {
		if d := distance(fold(word), fold(c)); d < bestDistance && d < len(c) {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance is the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
