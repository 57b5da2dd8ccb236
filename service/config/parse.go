package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// mask stands for a secret value.
const mask = "****"

// splitMulti returns the text as one value, or for a Multi option its lines as one value each.
func splitMulti(o Option, text string) []string {
	if o.Type != Multi {
		return []string{text}
	}
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// parse reads the texts of a value (one, except for Multi). It returns nil and no problem where an empty text means that
// nothing is set.
func (o Option) parse(texts []string) (any, string) {
	if o.Type == Multi {
		items := []string{}
		for _, text := range texts {
			if problem := o.choose(text); problem != "" {
				return nil, problem
			}
			items = append(items, o.choice(text))
		}
		return items, ""
	}
	text := texts[len(texts)-1]
	if o.Type == String {
		return o.choice(text), o.choose(text)
	}
	text = strings.TrimSpace(text)
	if text == "" && o.Type != List && o.Type != Dict {
		if o.HasDefault && o.Default != "" {
			return nil, fmt.Sprintf("the value is empty; allowed: %s (remove the line to use the default, %s)", o.allowed(), o.Default)
		}
		return nil, ""
	}
	value, ok := o.parseTyped(text)
	if !ok {
		return nil, o.problem(text, "is not "+article(o.typeName()))
	}
	switch v := value.(type) {
	case []string:
		for i, item := range v {
			if problem := o.choose(item); problem != "" {
				return nil, problem
			}
			v[i] = o.choice(item)
		}
	case int64:
		return value, o.bound(text, float64(v))
	case float64:
		return value, o.bound(text, v)
	case time.Duration:
		return value, o.bound(text, v.Seconds())
	}
	return value, ""
}

func (o Option) parseTyped(text string) (any, bool) {
	switch o.Type {
	case Integer, Port:
		i, err := strconv.ParseInt(text, 10, 64)
		return i, err == nil
	case Float:
		f, err := strconv.ParseFloat(text, 64)
		return f, err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
	case Boolean:
		return parseBool(text)
	case Duration:
		return parseDuration(text)
	case List:
		items := []string{}
		for item := range strings.SplitSeq(text, ",") {
			if item = strings.TrimSpace(item); item != "" {
				items = append(items, item)
			}
		}
		return items, true
	case Dict:
		return parseDict(text)
	case String, Multi: // read by parse
	}
	return nil, false
}

func parseBool(text string) (value, ok bool) {
	switch strings.ToLower(text) {
	case "true", "1", "on", "yes":
		return true, true
	case "false", "0", "off", "no":
		return false, true
	}
	return false, false
}

func parseDuration(text string) (time.Duration, bool) {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		nanos := seconds * float64(time.Second)
		if math.IsNaN(nanos) || math.Abs(nanos) >= math.MaxInt64 {
			return 0, false
		}
		return time.Duration(nanos), true
	}
	d, err := time.ParseDuration(text)
	return d, err == nil
}

func parseDict(text string) (map[string]string, bool) {
	dict := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, ":")
		key = strings.TrimSpace(key)
		if _, twice := dict[key]; !ok || key == "" || twice {
			return nil, false
		}
		dict[key] = strings.TrimSpace(value)
	}
	return dict, true
}

// choice returns the choice that the text means, as declared, or the text itself.
func (o Option) choice(text string) string {
	for _, c := range o.Choices {
		if o.IgnoreCase && strings.EqualFold(c, text) {
			return c
		}
	}
	return text
}

func (o Option) choose(text string) string {
	if len(o.Choices) == 0 || slices.Contains(o.Choices, o.choice(text)) {
		return ""
	}
	return o.problem(text, "is not one of the choices")
}

func (o Option) bound(text string, v float64) string {
	switch {
	case o.Min != nil && v < *o.Min, o.Type == Duration && o.Min == nil && v < 0:
		return o.problem(text, "is too small")
	case o.Max != nil && v > *o.Max:
		return o.problem(text, "is too large")
	}
	return ""
}

// problem says what is wrong with a value and what is allowed.
func (o Option) problem(text, what string) string {
	value := strconv.Quote(text)
	if o.Secret {
		value = "the value (" + mask + ")"
	}
	return fmt.Sprintf("%s %s; allowed: %s", value, what, o.allowed())
}

func (o Option) allowed() string {
	if len(o.Choices) > 0 {
		quoted := make([]string, len(o.Choices))
		for i, c := range o.Choices {
			quoted[i] = c
			if c == "" {
				quoted[i] = "''"
			}
		}
		if o.Type == List {
			return "a comma-separated list of " + strings.Join(quoted, ", ")
		}
		return strings.Join(quoted, ", ")
	}
	switch o.Type {
	case Integer:
		return "a whole number" + o.limits("")
	case Float:
		return "a number" + o.limits("")
	case Port:
		return "a port number" + o.limits("")
	case Boolean:
		return "true, 1, on, yes or false, 0, off, no"
	case Duration:
		return "a number of seconds, or a number with a unit as in 300ms, 30s, 5m or 1h30m" + o.limits(" seconds")
	case List:
		return "a comma-separated list"
	case Dict:
		return "key:value pairs separated by commas, each key once"
	case String, Multi:
	}
	return "any text"
}

func (o Option) limits(unit string) string {
	switch {
	case o.Min != nil && o.Max != nil:
		return fmt.Sprintf(", from %s to %s%s", number(*o.Min), number(*o.Max), unit)
	case o.Min != nil:
		return fmt.Sprintf(", at least %s%s", number(*o.Min), unit)
	case o.Max != nil:
		return fmt.Sprintf(", at most %s%s", number(*o.Max), unit)
	}
	return ""
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// typeName is how oslo-config-generator calls the type, without its " value".
func (o Option) typeName() string {
	switch o.Type {
	case Float:
		return "floating point"
	case Multi:
		return "multi valued"
	case String, Integer, Boolean, Port, List, Dict, Duration:
	}
	return string(o.Type)
}

func article(noun string) string {
	if strings.ContainsAny(noun[:1], "aeiou") {
		return "an " + noun
	}
	return "a " + noun
}

// format writes a value as an operator would; it is what Show prints.
func format(value any) string {
	switch v := value.(type) {
	case nil:
		return "<None>"
	case []string:
		return strings.Join(v, ",")
	case map[string]string:
		pairs := make([]string, 0, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			pairs = append(pairs, k+":"+v[k])
		}
		return strings.Join(pairs, ",")
	default:
		return fmt.Sprint(v)
	}
}
