// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// OptionError is an error about one option. A driver's Configure may return one, or several joined by errors.Join:
// the message then shows the operator which field it is.
type OptionError struct {
	Group, Name string
	// Message says what is wrong with the value and what would be right.
	Message string
}

// Error implements error.
func (e *OptionError) Error() string { return fmt.Sprintf("[%s] %s: %s", e.Group, e.Name, e.Message) }

// DefaultValues returns the defaults of options, as the core would hand them to Configure, with overrides in their
// place. It is for tests and tools: the core reads kuryr.conf by its own rules. An override may have the option's Go
// type (see OptionType), any type of number for a number, a []any of strings for a list, a map[string]any of strings
// for a dict, or be the text that an operator would write. Overrides of options that are not declared, and values
// that break the declaration, are errors.
func DefaultValues(options []Option, overrides map[string]map[string]any) (Values, error) {
	values := Values{}
	var problems []error
	known := map[[2]string]bool{}
	for _, option := range options {
		known[[2]string{option.Group, option.Name}] = true
		given, ok := overrides[option.Group][option.Name]
		if !ok && option.HasDefault {
			given, ok = option.Default, true
		}
		if !ok {
			if option.Required {
				problems = append(problems, &OptionError{option.Group, option.Name, "is required"})
			}
			continue
		}
		value, err := optionValue(option, given)
		if err != nil {
			problems = append(problems, &OptionError{option.Group, option.Name, err.Error()})
			continue
		}
		if values[option.Group] == nil {
			values[option.Group] = map[string]any{}
		}
		values[option.Group][option.Name] = value
	}
	for group, names := range overrides {
		for name := range names {
			if !known[[2]string{group, name}] {
				problems = append(problems, &OptionError{group, name, "is not an option of the driver"})
			}
		}
	}
	return values, errors.Join(problems...)
}

func optionValue(option Option, given any) (any, error) {
	var value any
	var err error
	switch option.Type {
	case StringOption, IPOption, CIDROption, URIOption, HostnameOption, HostAddressOption:
		value, err = as[string](given)
	case BooleanOption:
		value, err = toBool(given)
	case IntegerOption, PortOption:
		value, err = toInt(given)
	case FloatOption:
		value, err = toFloat(given)
	case DurationOption:
		value, err = toSeconds(given)
	case ListOption:
		value, err = toList(given, ",")
	case MultiOption:
		value, err = toList(given, "\n")
	case DictOption:
		value, err = toDict(given)
	default:
		err = fmt.Errorf("has unknown type %q", option.Type)
	}
	if err != nil {
		return nil, err
	}
	return value, option.check(value)
}

// check says what rule of the option a value breaks.
func (o Option) check(value any) error {
	switch v := value.(type) {
	case []string:
		for _, item := range v {
			if err := o.checkItem(item); err != nil {
				return err
			}
		}
	case map[string]string:
		for key, item := range v {
			if err := o.checkItem(item); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
	case string:
		return o.checkText(o.Type, v)
	case int64:
		return o.checkNumber(float64(v), fmt.Sprint(v))
	case float64:
		return o.checkNumber(v, fmt.Sprint(v))
	}
	return nil
}

func (o Option) checkItem(text string) error {
	switch o.Item {
	case IntegerOption, PortOption, FloatOption, DurationOption, BooleanOption:
		item := o
		item.Type, item.Item = o.Item, ""
		_, err := optionValue(item, text)
		return err
	case "":
		return o.checkText(StringOption, text)
	default:
		return o.checkText(o.Item, text)
	}
}

func (o Option) checkNumber(number float64, text string) error {
	least, most := o.Min, o.Max
	switch {
	case o.Type == PortOption && least == nil:
		least = new(0.0)
	case o.Type == DurationOption && least == nil:
		least = new(0.0)
	}
	if o.Type == PortOption && most == nil {
		most = new(65535.0)
	}
	switch {
	case least != nil && number < *least:
		return fmt.Errorf("%s is less than %v", text, *least)
	case most != nil && number > *most:
		return fmt.Errorf("%s is more than %v", text, *most)
	case len(o.Choices) > 0 && !slices.Contains(o.Choices, text):
		return fmt.Errorf("%q is not one of %s", text, strings.Join(o.Choices, ", "))
	}
	return nil
}

// checkText checks the rules for texts, and the form of addresses and ranges; the core also knows that of URIs and
// host names.
func (o Option) checkText(kind OptionType, text string) error {
	wrongVersion := func(address netip.Addr) bool { return o.IPVersion != 0 && address.Is4() != (o.IPVersion == 4) }
	switch kind { //nolint:exhaustive // the others have no form of their own here
	case IPOption:
		if address, err := netip.ParseAddr(text); err != nil || address.Zone() != "" || wrongVersion(address) {
			return fmt.Errorf("%q is not an IP address of the version that is wanted", text)
		}
	case CIDROption:
		if p, err := netip.ParsePrefix(text); err != nil || p != p.Masked() || wrongVersion(p.Addr()) {
			return fmt.Errorf("%q is not a range of IP addresses of the version that is wanted, without host bits", text)
		}
	}
	if len(o.Choices) > 0 && !slices.ContainsFunc(o.Choices, func(c string) bool {
		return c == text || o.IgnoreCase && strings.EqualFold(c, text)
	}) {
		return fmt.Errorf("%q is not one of %s", text, strings.Join(o.Choices, ", "))
	}
	if o.MaxLength > 0 && utf8.RuneCountInString(text) > o.MaxLength {
		return fmt.Errorf("%q is longer than %d characters", text, o.MaxLength)
	}
	if o.Pattern == "" {
		return nil
	}
	expression := o.Pattern
	if o.IgnoreCase {
		expression = "(?i)" + expression
	}
	pattern, err := regexp.Compile(expression)
	if err != nil {
		return fmt.Errorf("its pattern: %w", err)
	}
	if !pattern.MatchString(text) {
		return fmt.Errorf("%q does not match %s", text, o.Pattern)
	}
	return nil
}

func as[T any](given any) (T, error) {
	value, ok := given.(T)
	if !ok {
		return value, fmt.Errorf("%v is of type %T", given, given)
	}
	return value, nil
}

func toBool(given any) (bool, error) {
	text, ok := given.(string)
	if !ok {
		return as[bool](given)
	}
	switch strings.ToLower(text) {
	case "true", "1", "on", "yes":
		return true, nil
	case "false", "0", "off", "no":
		return false, nil
	default:
		return false, fmt.Errorf("%q is no boolean", text)
	}
}

func toInt(given any) (int64, error) {
	switch value := given.(type) {
	case int:
		return int64(value), nil
	case float64:
		if value != float64(int64(value)) {
			return 0, fmt.Errorf("%v is no whole number", value)
		}
		return int64(value), nil
	case string:
		number, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is no whole number", value)
		}
		return number, nil
	default:
		return as[int64](given)
	}
}

func toFloat(given any) (float64, error) {
	switch value := given.(type) {
	case int:
		return float64(value), nil
	case int64:
		return float64(value), nil
	case string:
		number, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			return 0, fmt.Errorf("%q is no number", value)
		}
		return number, nil
	default:
		return as[float64](given)
	}
}

// toSeconds reads a number of seconds, or numbers with units as in 300ms or 1h30m.
func toSeconds(given any) (float64, error) {
	text, ok := given.(string)
	if !ok {
		return toFloat(given)
	}
	text = strings.TrimSpace(text)
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		return seconds, nil
	}
	units := map[string]float64{"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
	total, rest := 0.0, text
	for rest != "" {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789."))
		letters := len(rest[digits:]) - len(strings.TrimLeft(rest[digits:], "abcdefghijklmnopqrstuvwxyz"))
		number, err := strconv.ParseFloat(rest[:digits], 64)
		unit, known := units[rest[digits:digits+letters]]
		if err != nil || !known {
			return 0,
				fmt.Errorf("%q is no time: neither a number of seconds nor one with a unit as in 300ms, 30s, 5m or 1h30m", text)
		}
		total, rest = total+number*unit, rest[digits+letters:]
	}
	if text == "" {
		return 0, errors.New("is empty, which is no time")
	}
	return total, nil
}

func toList(given any, separator string) ([]string, error) {
	list := []string{}
	switch value := given.(type) {
	case string:
		for part := range strings.SplitSeq(value, separator) {
			if part = strings.TrimSpace(part); part != "" {
				list = append(list, part)
			}
		}
	case []any:
		for _, element := range value {
			list = append(list, fmt.Sprint(element))
		}
	default:
		return as[[]string](given)
	}
	return list, nil
}

func toDict(given any) (map[string]string, error) {
	dict := map[string]string{}
	switch value := given.(type) {
	case string:
		parts, _ := toList(value, ",") // a text is always a list
		for _, part := range parts {
			key, text, ok := strings.Cut(part, ":")
			if !ok {
				return nil, fmt.Errorf("%q has no colon", part)
			}
			dict[strings.TrimSpace(key)] = strings.TrimSpace(text)
		}
	case map[string]any:
		for key, element := range value {
			dict[key] = fmt.Sprint(element)
		}
	default:
		return as[map[string]string](given)
	}
	return dict, nil
}
