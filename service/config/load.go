// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Load reads the sources, resolves every declared option and validates all of them. The error joins one *Error for
// each problem; with an error there are no Values, so that a bad reload leaves the old ones in use. Warnings are
// returned in any case.
func Load(sources Sources, options []Option) (*Values, []Warning, error) {
	values, warnings, problems := Check(sources, options)
	if err := errors.Join(problems...); err != nil {
		return nil, warnings, err
	}
	return values, warnings, nil
}

// Check is Load for a command that goes on despite problems, to find more of them: an option that is at fault, as the
// problems say, has its default. Values are nil only where the declarations of the options are at fault.
func Check(sources Sources, options []Option) (*Values, []Warning, []error) {
	reg, err := newRegistry(options)
	if err != nil {
		return nil, nil, []error{err}
	}
	files, err := sources.readFiles()
	l := &loader{reg: reg, files: files, env: sources.environment(), args: map[Name][]string{}, done: map[Name]*resolved{}}
	l.errs = flatten(err)
	l.takeArgs(sources.Args)
	values := &Values{byName: map[Name]value{}}
	failed := map[Name]bool{}
	for _, o := range reg.options {
		r := l.resolve(o)
		val := value{option: o, origin: r.origin, secret: o.Secret || r.secret}
		if !r.failed && r.set {
			val.value = l.parse(o, r)
		}
		failed[o.Key()] = r.failed
		if val.value == nil && r.set && !r.failed {
			val.origin.Source = Unset
		}
		if o.Required && val.value == nil && !r.failed {
			l.fail(o, Origin{}, "required, but not set")
		}
		values.byName[o.Key()] = val
		values.order = append(values.order, o.Key())
	}
	for _, n := range values.order { // when all is resolved, so that no problem is met here first
		val := values.byName[n]
		val.fallback = l.fallback(val.option, val)
		if failed[n] {
			val.value = val.fallback
		}
		values.byName[n] = val
	}
	l.unknown(sources.Strict)
	return values, l.warnings, sorted(l.errs)
}

// loader is the state of one Load.
type loader struct {
	reg      *registry
	files    [][]written
	env      map[string]string
	args     map[Name][]string
	done     map[Name]*resolved
	errs     []error
	warnings []Warning
}

// resolved is an option's text after substitution.
type resolved struct {
	texts  []string
	origin Origin
	set    bool
	secret bool
	failed bool // reported already
	busy   bool // being resolved: seen again, it is a cycle
}

func (l *loader) takeArgs(args map[Name][]string) {
	for n, texts := range args {
		n = n.canonical()
		if _, known := l.reg.byName[n]; !known {
			l.errs = append(l.errs,
				&Error{File: string(FromArgs), Group: n.Group, Option: n.Name, Message: "no such option" + l.reg.suggest(n)})
		}
		l.args[n] = texts
	}
}

func (l *loader) fail(o Option, at Origin, format string, args ...any) {
	err := &Error{Group: o.Group, Option: o.Name, Message: fmt.Sprintf(format, args...)}
	if at.Source != "" {
		err.File, err.Line = at.place()
	}
	l.errs = append(l.errs, err)
}

func (l *loader) warn(o Option, at Origin, format string, args ...any) {
	w := Warning{Group: o.Group, Option: o.Name, Message: fmt.Sprintf(format, args...)}
	w.File, w.Line = at.place()
	l.warnings = append(l.warnings, w)
}

func (l *loader) parse(o Option, r *resolved) any {
	o.Secret = o.Secret || r.secret
	parsed, problem := o.parse(r.texts)
	if problem != "" {
		l.fail(o, r.origin, "%s", problem)
		r.failed = true
		return nil
	}
	return parsed
}

// fallback is the option's default, substituted. Where that cannot be had, nothing is: whoever set the option fixed
// it.
func (l *loader) fallback(o Option, val value) any {
	switch {
	case !o.HasDefault:
		return nil
	case val.origin.Source == FromDefault:
		return val.value
	}
	quiet := *l // what is wrong with a default that is not in force is not reported
	quiet.errs = nil
	texts := slices.Clone(splitMulti(o, o.Default))
	for i, text := range texts {
		var ok bool
		if texts[i], _, ok = quiet.expand(o, Origin{Source: FromDefault}, text); !ok {
			return nil
		}
	}
	parsed, _ := o.parse(texts)
	return parsed
}

// resolve picks the option's value from the strongest source that has one and substitutes in it. It never returns nil.
func (l *loader) resolve(o Option) *resolved {
	if r, ok := l.done[o.Key()]; ok {
		return r
	}
	r := &resolved{busy: true}
	l.done[o.Key()] = r
	r.texts, r.origin = l.pick(o)
	r.set = r.origin.Source != Unset
	if r.set && r.origin.Source != FromDefault {
		if o.DeprecatedForRemoval {
			l.warn(o, r.origin, "%s", removal(o))
		}
		if o.NoEffect != "" {
			l.warn(o, r.origin, "has no effect: %s", o.NoEffect)
		}
	}
	r.texts = slices.Clone(r.texts)
	for i, text := range r.texts {
		expanded, secret, ok := l.expand(o, r.origin, text)
		r.texts[i] = expanded
		r.secret = r.secret || secret
		r.failed = r.failed || !ok
	}
	r.busy = false
	return r
}

func removal(o Option) string {
	text := "deprecated for removal"
	if o.DeprecatedSince != "" {
		text += " since " + o.DeprecatedSince
	}
	if o.Reason != "" {
		text += ": " + o.Reason
	}
	return text
}

// pick returns the texts of the strongest source, before substitution.
func (l *loader) pick(o Option) ([]string, Origin) {
	if texts := l.args[o.Key()]; len(texts) > 0 {
		return texts, Origin{Source: FromArgs}
	}
	name := EnvName(o.Group, o.Name)
	if text, ok := l.env[name]; ok {
		return splitMulti(o, text), Origin{Source: FromEnv, Env: name}
	}
	for _, name := range o.Env {
		if text := l.env[name]; text != "" {
			return splitMulti(o, text), Origin{Source: FromEnv, Env: name}
		}
	}
	if texts, origin, ok := l.pickFromFiles(o); ok {
		return texts, origin
	}
	if o.HasDefault {
		return splitMulti(o, o.Default), Origin{Source: FromDefault}
	}
	return nil, Origin{Source: Unset}
}

// pickFromFiles lets a later file win over an earlier one, within a file the option's own name over former ones, and
// then the last line; for Multi the values of all files add up, and the origin is the last one's.
func (l *loader) pickFromFiles(o Option) (texts []string, origin Origin, ok bool) {
	names := append([]Name{o.Key()}, o.Deprecated...)
	for _, file := range l.files {
		for _, n := range names {
			var here []string
			for _, w := range file {
				if w.name != n {
					continue
				}
				here = append(here, w.text)
				origin, ok = w.origin, true
				if n != o.Key() {
					l.warn(Option{Group: n.Group, Name: n.Name}, w.origin, "deprecated name; use %s", o.Key())
				}
			}
			if len(here) == 0 {
				continue
			}
			if o.Type != Multi {
				texts = here[len(here)-1:]
				break
			}
			texts = append(texts, here...)
		}
	}
	return texts, origin, ok
}

// flatten takes joined errors apart.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok { // what errors.Join made, not a wrapped one
		var flat []error
		for _, e := range joined.Unwrap() {
			flat = append(flat, flatten(e)...)
		}
		return flat
	}
	return []error{err}
}

// sorted orders errors by file and line, so that an operator fixes a file from top to bottom.
func sorted(errs []error) []error {
	slices.SortStableFunc(errs, func(a, b error) int {
		x, isX := errors.AsType[*Error](a)
		y, isY := errors.AsType[*Error](b)
		if !isX || !isY {
			return 0
		}
		if c := strings.Compare(x.File, y.File); c != 0 {
			return c
		}
		return x.Line - y.Line
	})
	return errs
}
