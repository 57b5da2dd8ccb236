package reconcile

import (
	"fmt"
	"slices"

	"github.com/kuryr/raven/drivers"
)

// rivals are the owners that other drivers have for the same source object.
func (s *store) rivals(o *owner) []*owner {
	if o.id.UID == "" {
		return nil
	}
	var list []*owner
	for name := range s.drivers {
		id := s.ownerOf(name, o.id.UID)
		if other := s.owners[id]; id != o.id && other != nil && !other.gone && len(other.set.Outputs) > 0 {
			list = append(list, other)
		}
	}
	return list
}

// clash says whether two drivers write the same thing on one object: a key, or the addresses of its status, which are one list.
func clash(a, b drivers.Output) bool {
	return a.Kind == b.Kind && (a.Key == b.Key || a.Kind == drivers.Ingress)
}

// contested says, for people, which of an owner's outputs another driver writes on the object as well. Then neither writes there: they would
// undo each other's work for ever.
func (s *store) contested(o *owner) []string {
	if len(o.set.Outputs) == 0 {
		return nil
	}
	var texts []string
	for _, other := range s.rivals(o) {
		for _, output := range o.set.Outputs {
			if slices.ContainsFunc(other.set.Outputs, func(its drivers.Output) bool { return clash(output, its) }) {
				texts = append(texts, contestedText(o, other, output))
			}
		}
	}
	return sorted(texts)
}

// contestedText says it for people, alike on both sides.
func contestedText(o, other *owner, output drivers.Output) string {
	names := []string{o.item.driver, other.item.driver}
	slices.Sort(names)
	what := fmt.Sprintf("%s %s", output.Kind, output.Key)
	if output.Kind == drivers.Ingress {
		what = "status.loadBalancer"
	}
	return fmt.Sprintf("%s is written by driver %s and by driver %s: nothing is written on the object until one of them is left out or writes something else",
		what, names[0], names[1])
}

// wakeRivals returns who writes on the same object what an owner wrote before, or writes now.
func (s *store) wakeRivals(o *owner, before, after []drivers.Output) []item {
	if len(before)+len(after) == 0 {
		return nil
	}
	var woken []item
	for _, other := range s.rivals(o) {
		touches := func(list []drivers.Output) bool {
			return slices.ContainsFunc(list, func(output drivers.Output) bool {
				return slices.ContainsFunc(other.set.Outputs, func(its drivers.Output) bool { return clash(output, its) })
			})
		}
		if touches(before) != touches(after) {
			woken = append(woken, other.item)
		}
	}
	return woken
}
