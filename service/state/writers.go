// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"slices"

	"github.com/kuryr/raven/drivers"
)

// otherWriters are the objects that other drivers have for the same source object.
func (tx *Tx) otherWriters(o *Object) []*Object {
	if o.ID.UID == "" {
		return nil
	}
	var list []*Object
	for name := range tx.drivers {
		id := tx.OwnerOf(name, o.ID.UID)
		if other := tx.objects[id]; id != o.ID && other != nil && !other.Gone && len(other.Set.Outputs) > 0 {
			list = append(list, other)
		}
	}
	return list
}

// clash says whether two drivers write the same thing on one object: a key, or the addresses of its status, which are
// one list.
func clash(a, b drivers.Output) bool {
	return a.Kind == b.Kind && (a.Key == b.Key || a.Kind == drivers.Ingress)
}

// Contested says, for people, which of an owner's outputs another driver writes on the object as well. Then neither
// writes there: they would undo each other's work for ever.
func (tx *Tx) Contested(o *Object) []string {
	if len(o.Set.Outputs) == 0 {
		return nil
	}
	var texts []string
	for _, other := range tx.otherWriters(o) {
		for _, output := range o.Set.Outputs {
			if slices.ContainsFunc(other.Set.Outputs, func(its drivers.Output) bool { return clash(output, its) }) {
				texts = append(texts, contestedText(o, other, output))
			}
		}
	}
	return Sorted(texts)
}

// contestedText says it for people, alike on both sides.
func contestedText(o, other *Object, output drivers.Output) string {
	names := []string{o.Request.Driver, other.Request.Driver}
	slices.Sort(names)
	what := fmt.Sprintf("%s %s", output.Kind, output.Key)
	if output.Kind == drivers.Ingress {
		what = "status.loadBalancer"
	}
	return fmt.Sprintf("%s is written by driver %s and by driver %s: nothing is written on the object until one of "+
		"them is left out or writes something else",
		what, names[0], names[1])
}

// wakeOtherWriters wakes who writes on the same object what an object's Set wrote before, or writes now.
func (tx *Tx) wakeOtherWriters(o *Object, before, after []drivers.Output) {
	if len(before)+len(after) == 0 {
		return
	}
	for _, other := range tx.otherWriters(o) {
		touches := func(list []drivers.Output) bool {
			return slices.ContainsFunc(list, func(output drivers.Output) bool {
				return slices.ContainsFunc(other.Set.Outputs, func(its drivers.Output) bool { return clash(output, its) })
			})
		}
		if touches(before) != touches(after) {
			tx.wake(other.Request)
		}
	}
}

// Sorted sorts texts, and drops what is there twice.
func Sorted(texts []string) []string {
	slices.Sort(texts)
	return slices.Compact(texts)
}
