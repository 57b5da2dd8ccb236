// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Form returns a text that is the same for all texts in which the cloud may write one value of the attribute with that
// name. Nil leaves texts as they are.
type Form func(name, text string) string

// Canonical returns a text that is the same for all forms in which the cloud may write one value of an attribute: null
// and empty, numbers as texts, names that are cut, lists where order does not count, and whatever the Form says.
func (f Form) Canonical(name string, value any, unordered bool) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return f.text(name, v)
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return f.text(name, strconv.FormatInt(v, 10))
	case int:
		return f.text(name, strconv.Itoa(v))
	case float64:
		return f.text(name, strconv.FormatFloat(v, 'f', -1, 64))
	case json.Number:
		return f.text(name, v.String())
	case []any:
		return Lines(f.Texts(name, v, unordered), unordered)
	case []string:
		texts := make([]string, len(v))
		for i, s := range v {
			texts[i] = f.text(name, s)
		}
		return Lines(texts, unordered)
	case map[string]any:
		parts := make([]string, 0, len(v))
		for key, part := range v {
			if text := f.Canonical(key, part, unordered); text != "" {
				parts = append(parts, key+"="+text)
			}
		}
		slices.Sort(parts)
		return strings.Join(parts, " ")
	default:
		return fmt.Sprint(v)
	}
}

// Texts returns the canonical texts of the elements of a list.
func (f Form) Texts(name string, list []any, unordered bool) []string {
	texts := make([]string, len(list))
	for i, element := range list {
		texts[i] = f.Canonical(name, element, unordered)
	}
	return texts
}

// Lines joins the canonical texts of a list's elements. It may sort texts.
func Lines(texts []string, unordered bool) string {
	if unordered {
		slices.Sort(texts)
		texts = slices.Compact(texts)
	}
	return strings.Join(texts, "\n")
}

func (f Form) text(name, text string) string {
	switch {
	case text == "":
		return ""
	case name == "name":
		return cut(text, maxText)
	case f == nil:
		return text
	}
	return f(name, text)
}

// Covers says whether an observed structure has all of the named parts that a wanted one gives.
func (f Form) Covers(want, have any, names ...string) bool {
	for _, name := range names {
		text := f.Canonical(name, Field(want, name), false)
		if text != "" && text != f.Canonical(name, Field(have, name), false) {
			return false
		}
	}
	return true
}

// Address returns the usual form of an address, or of a range with its host bits cleared; a range of one address is
// that address. What is neither stays as it is.
func Address(text string) string {
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr.String()
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return text
	}
	if prefix.IsSingleIP() {
		return prefix.Addr().String()
	}
	return prefix.Masked().String()
}

// Field returns a part of a structure by its name; nil where there is none.
func Field(structure any, name string) any {
	m, _ := structure.(map[string]any)
	return m[name]
}

// writable returns a value as the cloud takes it: a name that is not too long, null where an empty text would be
// refused.
func (d *Descriptor) writable(name string, value any) any {
	text, isText := value.(string)
	switch {
	case !isText:
		return value
	case name == "name":
		return cut(strings.ToValidUTF8(text, "\uFFFD"), maxText)
	case text == "" && d.Nullable != nil && d.Nullable(name):
		return nil
	}
	return value
}
