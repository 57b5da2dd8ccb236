// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Change is one option whose value differs between two Values. Old and New are nil where the option is not set or not
// declared.
type Change struct {
	Group, Name string
	Old, New    any
	// Origin is where the new value comes from; Source is FromDefault or Unset where a line was taken away.
	Origin Origin
	// Mutable and StartOnly are as the option says.
	Mutable, StartOnly bool
	Secret             bool
}

// String returns "[group] name: old -> new (origin)", with secrets masked.
func (c Change) String() string {
	before, after := format(c.Old), format(c.New)
	if c.Secret {
		before, after = masked(c.Old), masked(c.New)
	}
	return fmt.Sprintf("%s: %s -> %s (%s)", Name{c.Group, c.Name}, before, after, c.Origin)
}

func masked(value any) string {
	if value == nil {
		return format(nil)
	}
	return mask
}

// Diff returns what changed from old to new, in the order of new's declarations, then what only old declares.
func Diff(before, after *Values) []Change {
	var changes []Change
	names := slices.Clone(after.order)
	for _, n := range before.order {
		if _, ok := after.byName[n]; !ok {
			names = append(names, n)
		}
	}
	for _, n := range names {
		was, is := before.byName[n], after.byName[n]
		if reflect.DeepEqual(was.value, is.value) {
			continue
		}
		changes = append(changes, Change{
			Group: n.Group, Name: n.Name, Old: clone(was.value), New: clone(is.value),
			Origin: after.Origin(n.Group, n.Name), Mutable: is.option.Mutable,
			StartOnly: is.option.StartOnly, Secret: was.secret || is.secret,
		})
	}
	return changes
}

// Reload returns what is in force after a reload: the new values, but the old ones of options that are read at start
// only. It also returns the changes that were taken over, and those that were not because they need a new start.
func Reload(before, after *Values) (now *Values, taken, refused []Change) {
	now = &Values{byName: maps.Clone(after.byName), order: after.order}
	for _, change := range Diff(before, after) {
		n := Name{change.Group, change.Name}
		old, declared := before.byName[n]
		if change.StartOnly && declared {
			now.byName[n] = old
			refused = append(refused, change)
			continue
		}
		taken = append(taken, change)
	}
	return now, taken, refused
}

// Mutate returns what is in force after the mutable options have been taken over in place: the new values of those,
// and the old ones of all others. It also returns the changes that were taken over, and those that were not because
// they need a new start or, unless StartOnly, a reload. What only after declares belongs to what is not running, and
// is left out.
func Mutate(before, after *Values) (now *Values, taken, refused []Change) {
	now = &Values{byName: maps.Clone(before.byName), order: before.order}
	for _, change := range Diff(before, after) {
		n := Name{change.Group, change.Name}
		is, declared := after.byName[n]
		_, running := before.byName[n]
		switch {
		case !running:
		case change.Mutable && declared:
			now.byName[n] = is
			taken = append(taken, change)
		default:
			refused = append(refused, change)
		}
	}
	return now, taken, refused
}
