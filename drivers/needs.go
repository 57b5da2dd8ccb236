// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"cmp"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/labels"
)

// Need asks for one object by name, or for all objects that a label selector matches, of a watch that the driver
// declared.
type Need struct {
	// Watch is the name of the watch.
	Watch string
	// Namespace of the objects; empty for cluster-scoped ones, and for a selector over all namespaces.
	Namespace string
	// Name of the one object. Empty makes the need a selection.
	Name string
	// Selector is a label selector in its text form; empty selects everything. Only used when Name is empty.
	Selector string
	// Selects asks for the objects that select this one, by the watch's Selectors; the zero Subject is none. Only used
	// when Name is empty; Selector counts besides.
	Selects Subject
}

// noNamespace stands for the namespace of a subject that has none: the zero Subject would ask for all objects.
const noNamespace = "(none)"

// Subject is a namespaced object as selectors see it. Labels are in the form of labels.Set: "a=b,c=d", by key.
type Subject struct {
	Namespace       string
	NamespaceLabels string
	Labels          string
}

// Selecting returns the need of the objects of a watch that select an object in a namespace, by its labels and those of
// its namespace. The watch has Selectors. To a need without a namespace there is no answer.
func Selecting(watch, namespace string, namespaceLabels, own map[string]string) Need {
	return Need{Watch: watch, Selects: Subject{
		Namespace:       cmp.Or(namespace, noNamespace),
		NamespaceLabels: labels.Set(namespaceLabels).String(), Labels: labels.Set(own).String(),
	}}
}

// String returns the need in a form that people can read.
func (n Need) String() string {
	if n.Name != "" {
		return fmt.Sprintf("%s %s", n.Watch, join(n.Namespace, n.Name))
	}
	text := fmt.Sprintf("%s %s selected by %q", n.Watch, join(n.Namespace, "*"), n.Selector)
	if n.Selects != (Subject{}) {
		text += fmt.Sprintf(" that select %q in namespace %s, %q", n.Selects.Labels, n.Selects.Namespace,
			n.Selects.NamespaceLabels)
	}
	return text
}

// Needs answers the needs of one call of Translate and records what was asked. It is used by one goroutine at a time.
type Needs struct {
	answers map[Need][]Object
	round   int
	asked   []Need
	open    bool
}

// NewNeeds returns the answers of earlier rounds. A need that maps to no objects was answered as absent.
func NewNeeds(answers map[Need][]Object) *Needs { return &Needs{answers: answers} }

// WithRound says which round it is, counted from 1, and returns the same Needs.
func (n *Needs) WithRound(round int) *Needs {
	n.round = round
	return n
}

// Round returns which round it is, counted from 1: as WithRound said, else 1 without answers and 2 with some.
func (n *Needs) Round() int {
	switch {
	case n.round > 0:
		return n.round
	case len(n.answers) == 0:
		return 1
	default:
		return 2
	}
}

// Answers returns a copy of the answers of earlier rounds.
func (n *Needs) Answers() map[Need][]Object { return maps.Clone(n.answers) }

// Get returns the objects that a need names, and whether the need is answered yet. A driver that gets false should
// return at once: it will be called again with the answer. Objects come in the order of namespace and name.
func (n *Needs) Get(need Need) ([]Object, bool) {
	n.asked = append(n.asked, need)
	objects, answered := n.answers[need]
	if !answered {
		n.open = true
	}
	return objects, answered
}

// Open says whether a need was asked that has no answer yet, so that the result of this round does not count.
func (n *Needs) Open() bool { return n.open }

// Asked returns what was asked in this round, without repetition, in the order of the first asking.
func (n *Needs) Asked() []Need {
	seen := make(map[Need]bool, len(n.asked))
	var asked []Need
	for _, need := range n.asked {
		if !seen[need] {
			seen[need] = true
			asked = append(asked, need)
		}
	}
	return asked
}

func join(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}
