// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/kuryr/raven/drivers"
)

// accept refuses a program that declares more than was accepted of the driver: an operator must accept that first.
func (p *Plugin) accept(info drivers.Info) error {
	p.mu.Lock()
	accepted := p.accepted
	p.mu.Unlock()
	if accepted == nil {
		return nil
	}
	if more := info.Exceeds(*accepted); more != "" {
		return fmt.Errorf("%s changed its declaration, it now has %s: send Raven a SIGHUP to take that over, or put the "+
			"former program back",
			p.config.Path, more)
	}
	return nil
}

// How long a text may be that a driver says of itself, in bytes, and how many capabilities it may name.
const (
	maxText         = 1024
	maxHelp         = 16 << 10
	maxCapabilities = 64
)

// checkTexts refuses what a driver says of itself for people where that would say something to their terminals, or
// fill them.
func checkTexts(info drivers.Info) error {
	if len(info.Capabilities) > maxCapabilities {
		return fmt.Errorf("it names %d capabilities, more than %d", len(info.Capabilities), maxCapabilities)
	}
	texts := slices.Concat([]string{info.Name, info.Version, info.Description, info.Role}, info.Capabilities,
		info.Annotations, info.Labels, info.Status)
	for _, kind := range info.Kinds {
		texts = append(texts, string(kind))
	}
	if err := forPeople("its name, version, description, role, capabilities, kinds and keys", maxText, false,
		texts...); err != nil {
		return err
	}
	for _, o := range info.Options {
		if err := checkOptionTexts(o); err != nil {
			return err
		}
	}
	return nil
}

func checkOptionTexts(o drivers.Option) error {
	texts := slices.Concat([]string{o.Group, o.Name, string(o.Type), string(o.Item), o.Pattern, o.DeprecatedSince},
		o.Choices, o.Schemes, o.Env)
	help := []string{o.Help, o.Default, o.SampleDefault, o.DeprecatedReason}
	for _, former := range o.Deprecated {
		texts = append(texts, former[0], former[1])
	}
	for choice, text := range o.ChoiceHelp {
		texts, help = append(texts, choice), append(help, text)
	}
	if err := forPeople("what an option is called and allows", maxText, false, texts...); err != nil {
		return err
	}
	return forPeople("an option's help and default", maxHelp, true, help...)
}

func checkWatchTexts(watches []drivers.Watch) error {
	for _, w := range watches {
		texts := append([]string{
			w.Name, w.GVR.Group, w.GVR.Version, w.GVR.Resource, w.Kind, w.Namespace, w.LabelSelector, w.FieldSelector,
		}, w.Fields...)
		if err := forPeople("what a watch is called and selects", maxText, false, texts...); err != nil {
			return err
		}
	}
	return nil
}

// forPeople refuses texts that are long or not for a terminal; lines says whether they may have several.
func forPeople(what string, most int, lines bool, texts ...string) error {
	odd := func(r rune) bool { return !unicode.IsPrint(r) && (!lines || r != '\n' && r != '\t') }
	for _, text := range texts {
		if len(text) > most || strings.ContainsFunc(text, odd) {
			return fmt.Errorf("it says %.100q of itself: %s must be printable, at most %d bytes each", text, what, most)
		}
	}
	return nil
}
