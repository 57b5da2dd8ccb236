// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
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

// parse reads the texts of a value (one, except for Multi). It returns nil and no problem where an empty text means
// that nothing is set.
func (o Option) parse(texts []string) (any, string) {
	if o.Type == Multi {
		return o.items(texts)
	}
	text := texts[len(texts)-1]
	if o.Type == String {
		return o.choice(text), o.rule(text)
	}
	text = strings.TrimSpace(text)
	switch o.Type {
	case Integer, Float, Port, Duration:
		if text == "" {
			return o.empty()
		}
	case List:
		return o.items(splitList(text))
	case Dict:
		return o.dict(text)
	case String, Multi, Boolean, IP, CIDR, URI, Hostname, HostAddress: // an empty one is refused as any other that is none
	}
	return o.scalar(o.Type, text)
}

// empty is what an empty number means: none, unless that would hide a default.
func (o Option) empty() (any, string) {
	if o.HasDefault && o.Default != "" {
		return nil,
			fmt.Sprintf("the value is empty; allowed: %s (remove the line to use the default, %s)", o.allowed(), o.Default)
	}
	return nil, ""
}

// items checks each text by the rules for items.
func (o Option) items(texts []string) (any, string) {
	items := []string{}
	for _, text := range texts {
		item, problem := o.item(text)
		if problem != "" {
			return nil, problem
		}
		items = append(items, item)
	}
	return items, ""
}

func (o Option) item(text string) (string, string) {
	if o.Item == "" || o.Item == String {
		return o.choice(text), o.rule(text)
	}
	_, problem := o.scalar(o.Item, strings.TrimSpace(text))
	return strings.TrimSpace(text), problem
}

func (o Option) dict(text string) (any, string) {
	dict, ok := parseDict(text)
	if !ok {
		return nil, o.problem(text, "is not a dict")
	}
	for key, value := range dict {
		if _, problem := o.item(value); problem != "" {
			return nil, key + ": " + problem
		}
	}
	return dict, ""
}

// scalar reads one value of a type, which is the option's or that of its items.
func (o Option) scalar(t Type, text string) (any, string) {
	value, ok := o.parseTyped(t, text)
	if !ok {
		return nil, o.problem(text, "is not "+article(t.name()))
	}
	switch v := value.(type) {
	case string:
		return value, o.rule(v)
	case int64:
		return value, o.bound(text, float64(v))
	case float64:
		return value, o.bound(text, v)
	case time.Duration:
		return value, o.bound(text, v.Seconds())
	}
	return value, ""
}

func (o Option) parseTyped(t Type, text string) (any, bool) {
	switch t {
	case Integer, Port:
		i, err := strconv.ParseInt(text, 10, 64)
		return i, err == nil
	case Float:
		f, err := strconv.ParseFloat(text, 64)
		return f, err == nil && !math.IsNaN(f) && !math.IsInf(f, 0) && !strings.ContainsAny(text, "xX_")
	case Boolean:
		return parseBool(text)
	case Duration:
		return parseDuration(text)
	case IP:
		return text, isIP(text, o.IPVersion)
	case CIDR:
		return text, isCIDR(text, o.IPVersion)
	case URI:
		return text, isURI(text, o.Schemes)
	case Hostname:
		return strings.TrimSuffix(text, "."), isHostname(text)
	case HostAddress:
		if isIP(text, o.IPVersion) {
			return text, true
		}
		return strings.TrimSuffix(text, "."), isHostname(text)
	case String, Multi, List, Dict: // read by parse
	}
	return text, t == String
}

func splitList(text string) []string {
	var items []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
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

// rule says which rule for texts a text breaks, or "".
func (o Option) rule(text string) string {
	if o.MaxLength > 0 && utf8.RuneCountInString(text) > o.MaxLength {
		return o.problem(text, fmt.Sprintf("is longer than %d characters", o.MaxLength))
	}
	if len(o.Choices) > 0 && !slices.Contains(o.Choices, o.choice(text)) {
		return o.problem(text, "is not one of the choices")
	}
	if pattern, err := o.pattern(); err == nil && pattern != nil && !pattern.MatchString(text) {
		return o.problem(text, "does not match the pattern")
	}
	return ""
}

// pattern is the compiled Pattern, or nil.
func (o Option) pattern() (*regexp.Regexp, error) {
	switch {
	case o.Pattern == "":
		return nil, nil //nolint:nilnil // none is nothing to match
	case o.IgnoreCase:
		return regexp.Compile("(?i)" + o.Pattern)
	}
	return regexp.Compile(o.Pattern)
}

func (o Option) bound(text string, v float64) string {
	switch {
	case o.Min != nil && v < *o.Min, o.Type == Duration && o.Min == nil && v < 0:
		return o.problem(text, "is too small")
	case o.Max != nil && v > *o.Max:
		return o.problem(text, "is too large")
	case len(o.Choices) > 0 && !slices.ContainsFunc(o.Choices, func(c string) bool { return sameNumber(c, v) }):
		return o.problem(text, "is not one of the choices")
	}
	return ""
}

// problem says what is wrong with a value and what is allowed.
func (o Option) problem(text, what string) string {
	value := strconv.Quote(login.ReplaceAllString(text, "${1}"+mask+"@"))
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
	t := o.Type
	switch t {
	case Dict:
		return "key:value pairs separated by commas, each key once" + o.eachItem(" each value ")
	case List:
		return "a comma-separated list" + o.eachItem(" each item ")
	case Multi:
		if t = o.Item; t == "" {
			t = String
		}
	default:
	}
	return o.allowedOf(t)
}

func (o Option) eachItem(what string) string {
	if o.Item == "" && o.Pattern == "" {
		return ""
	}
	return "," + what + "being " + o.allowedOf(o.Item)
}

// allowedOf describes the values of one type, by the option's rules.
func (o Option) allowedOf(t Type) string {
	version := ""
	if o.IPVersion != 0 {
		version = "v" + strconv.Itoa(o.IPVersion)
	}
	switch t {
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
	case IP:
		return "an IP" + version + " address"
	case CIDR:
		return "a range of IP" + version + " addresses as 10.0.0.0/8 or fd00::/64, without host bits"
	case URI:
		if len(o.Schemes) > 0 {
			return "a URI with a host, of scheme " + strings.Join(o.Schemes, " or ")
		}
		return "a URI with a scheme and a host"
	case Hostname:
		return "a host name"
	case HostAddress:
		return "an IP" + version + " address or a host name"
	case String, Multi, List, Dict:
	}
	text := "any text"
	if o.Pattern != "" {
		text = "text that matches " + o.Pattern
	}
	if o.MaxLength > 0 {
		text += fmt.Sprintf(", at most %d characters", o.MaxLength)
	}
	return text
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

// sameNumber says whether a choice means this number.
func sameNumber(choice string, v float64) bool {
	c, err := strconv.ParseFloat(choice, 64)
	return err == nil && c == v
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// name is how oslo-config-generator calls the type, without its " value".
func (t Type) name() string {
	switch t {
	case Float:
		return "floating point"
	case Multi:
		return "multi valued"
	case IP:
		return "IP address"
	case CIDR:
		return "CIDR"
	case HostAddress:
		return "host address"
	case String, Integer, Boolean, Port, List, Dict, Duration, URI, Hostname:
	}
	return string(t)
}

func article(noun string) string {
	if strings.ContainsAny(noun[:1], "aeioI") { // a URI is spoken with a y
		return "an " + noun
	}
	return "a " + noun
}

// login finds the password in a URI.
var login = regexp.MustCompile(`(://[^/\s:@]*:)([^/\s@]+)@`)

// format writes a value as an operator would, but for a password in a URI; it is what Show prints.
func format(value any) string {
	return login.ReplaceAllString(formatted(value), "${1}"+mask+"@")
}

func formatted(value any) string {
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
