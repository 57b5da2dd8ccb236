package drivers

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// OptionError is an error about one option. A driver's Configure may return one, or several joined by errors.Join: the operator
// is then shown where to look.
type OptionError struct {
	Group, Name string
	// Message says what is wrong with the value and what would be right.
	Message string
}

// Error implements error.
func (e *OptionError) Error() string { return fmt.Sprintf("[%s] %s: %s", e.Group, e.Name, e.Message) }

// DefaultValues returns the defaults of options, as the core would hand them to Configure, with overrides in their place. It
// is for tests and tools: the core reads kuryr.conf by its own rules. An override may have the option's Go type (see OptionType),
// any type of number for a number, a []any of strings for a list, a map[string]any of strings for a dict, or be the text that
// an operator would write. Overrides of options that are not declared, and values that break the declaration, are errors.
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
	case StringOption:
		value, err = as[string](given)
	case BooleanOption:
		value, err = toBool(given)
	case IntegerOption:
		value, err = toInt(given)
	case FloatOption:
		value, err = toFloat(given)
	case ListOption:
		value, err = toList(given)
	case DictOption:
		value, err = toDict(given)
	default:
		err = fmt.Errorf("has unknown type %q", option.Type)
	}
	if err != nil {
		return nil, err
	}
	return value, checkBounds(option, value)
}

func checkBounds(option Option, value any) error {
	if text := fmt.Sprint(value); option.Type != ListOption && len(option.Choices) > 0 && !slices.Contains(option.Choices, text) {
		return fmt.Errorf("%q is not one of %s", text, strings.Join(option.Choices, ", "))
	}
	number, err := toFloat(value)
	if err != nil || (option.Type != IntegerOption && option.Type != FloatOption) {
		return nil //nolint:nilerr // only numbers have bounds
	}
	if option.Min != nil && number < *option.Min {
		return fmt.Errorf("%v is less than %v", value, *option.Min)
	}
	if option.Max != nil && number > *option.Max {
		return fmt.Errorf("%v is more than %v", value, *option.Max)
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

func toList(given any) ([]string, error) {
	list := []string{}
	switch value := given.(type) {
	case string:
		for part := range strings.SplitSeq(value, ",") {
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
		parts, _ := toList(value) // a text is always a list
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
