// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/kuryr/raven/drivers"
)

// Difference is one managed attribute that is not as it should be.
type Difference struct {
	Name      string
	Old, New  any // New as an update writes it
	Immutable bool
	Waits     []Wait // the refs in it that do not resolve yet: whether it differs is not known
}

// String says for people what differs.
func (d Difference) String() string {
	return fmt.Sprintf("%s is %s instead of %s", d.Name, brief(d.Old), brief(d.New))
}

// brief shows a value in a sentence.
func brief(value any) string {
	var text string
	switch v := value.(type) {
	case nil:
		return "unset"
	case string:
		text = fmt.Sprintf("%q", v)
	default:
		text = fmt.Sprint(v)
		if doc, err := json.Marshal(v); err == nil {
			text = string(doc)
		}
	}
	if short := cut(text, 80); short != text {
		return short + "…"
	}
	return text
}

// Compare returns the managed attributes of a resource that differ from the observed ones, in the order of the kind's
// schema. What is not in desired is unmanaged and never compared.
func (c *Computation) Compare(d *Desired, o *Observed) []Difference {
	k := c.kinds.Of(d.Kind)
	if k.Compare != nil {
		return k.Compare(c, d, o)
	}
	var diffs []Difference
	for _, a := range c.kinds.Schema(d.Kind) {
		want, managed := d.Attrs[a.Name]
		have, shown := o.Attrs[a.Name]
		if !managed || !shown && a.BestEffort || slices.Contains(k.Uncompared, a.Name) {
			continue
		}
		if k.Wanted != nil {
			want = k.Wanted(c, a.Name, want)
		}
		value, waits := c.Value(want)
		if len(waits) > 0 {
			diffs = append(diffs, Difference{Name: a.Name, Old: have, New: value, Immutable: a.Immutable, Waits: waits})
		} else if write, same := k.match(d, o, a, value, have); !same {
			diffs = append(diffs, Difference{
				Name: a.Name, Old: have, New: k.writable(a.Name, write), Immutable: a.Immutable,
			})
		}
	}
	return diffs
}

// match says whether a wanted value and the observed one are the same. Where they are not, it returns what to write.
func (k *Descriptor) match(d *Desired, o *Observed, a drivers.Attribute, want, have any) (any, bool) {
	if matcher := k.Matchers[a.Name]; matcher != nil {
		return matcher(d, o, want, have)
	}
	return want, k.Form.Canonical(a.Name, want, a.Unordered) == k.Form.Canonical(a.Name, have, a.Unordered)
}

// Value returns a value with its refs replaced, and a wait for each ref that does not resolve and stays.
func (c *Computation) Value(value any) (any, []Wait) {
	switch v := value.(type) {
	case drivers.Ref:
		if found, ok := c.lookup(v); ok {
			return found, nil
		}
		return v, []Wait{{Ref: &v, Message: fmt.Sprintf("waiting for the %s", v)}}
	case []any:
		out := make([]any, len(v))
		var waits []Wait
		for i, element := range v {
			var more []Wait
			out[i], more = c.Value(element)
			waits = append(waits, more...)
		}
		return out, waits
	case map[string]any:
		out := make(map[string]any, len(v))
		var waits []Wait
		for _, name := range slices.Sorted(maps.Keys(v)) {
			var more []Wait
			out[name], more = c.Value(v[name])
			waits = append(waits, more...)
		}
		return out, waits
	}
	return value, nil
}
