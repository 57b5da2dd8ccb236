// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"cmp"
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kuryr/raven/drivers"
)

// selectorIndex holds the pairs of selectors in the objects of one view, each once however many objects hold it. The
// informer's lock guards it.
type selectorIndex struct {
	byHolder map[Key][]*heldPair
	all      map[string]*heldPair
	// required are the pairs by a label that what they select has; the others are unlabeled.
	required  map[string]map[*heldPair]bool
	unlabeled map[*heldPair]bool
}

// heldPair is a pair of selectors and who holds it.
type heldPair struct {
	drivers.SelectorPair
	text    string
	label   string // one that what it selects has, as "key=value"; "": there is none
	holders map[Key]bool
}

func newSelectorIndex() *selectorIndex {
	return &selectorIndex{
		byHolder: map[Key][]*heldPair{}, all: map[string]*heldPair{}, required: map[string]map[*heldPair]bool{},
		unlabeled: map[*heldPair]bool{},
	}
}

// put replaces what an object holds, and returns what it held and what it holds.
func (x *selectorIndex) put(holder Key, pairs []drivers.SelectorPair) (before, now []*heldPair) {
	before = x.byHolder[holder]
	for _, pair := range pairs {
		text := pair.String()
		known := x.all[text]
		if known == nil {
			known = &heldPair{SelectorPair: pair, text: text, holders: map[Key]bool{}}
			known.label, _ = pair.Required()
			x.all[text] = known
			x.file(known)
		}
		known.holders[holder] = true
		now = append(now, known)
	}
	for _, pair := range before {
		if slices.Contains(now, pair) {
			continue
		}
		if delete(pair.holders, holder); len(pair.holders) == 0 {
			x.drop(pair)
		}
	}
	if x.byHolder[holder] = now; len(now) == 0 {
		delete(x.byHolder, holder)
	}
	return before, now
}

func (x *selectorIndex) file(pair *heldPair) {
	if pair.label == "" {
		x.unlabeled[pair] = true
		return
	}
	if x.required[pair.label] == nil {
		x.required[pair.label] = map[*heldPair]bool{}
	}
	x.required[pair.label][pair] = true
}

func (x *selectorIndex) drop(pair *heldPair) {
	delete(x.all, pair.text)
	delete(x.unlabeled, pair)
	if delete(x.required[pair.label], pair); len(x.required[pair.label]) == 0 {
		delete(x.required, pair.label)
	}
}

// selecting returns who holds a pair that selects a subject.
func (x *selectorIndex) selecting(subject drivers.ParsedSubject) map[Key]bool {
	found := map[Key]bool{}
	match := func(pairs map[*heldPair]bool) {
		for pair := range pairs {
			if subject.IsSelected(pair.SelectorPair) {
				for holder := range pair.holders {
					found[holder] = true
				}
			}
		}
	}
	match(x.unlabeled)
	for key, value := range subject.Labels {
		match(x.required[key+"="+value])
	}
	return found
}

// pairsOf returns the pairs of selectors that an object of a view holds.
func (v *view) pairsOf(e *entry) []drivers.SelectorPair {
	var object map[string]any
	if e == nil || json.Unmarshal(e.rawFor(v.fields), &object) != nil { // it was encoded here, so that it decodes
		return nil
	}
	return v.watch.SelectorsOf(e.namespace, object)
}

// reselect brings the view's index up to date with a change, and returns who needs the object because of what it
// selects. The informer's lock is held.
func (v *view) reselect(old, now *entry, changed bool) map[Key]bool {
	if v.selectors == nil {
		return nil
	}
	if !changed && slices.Equal(old.labels, now.labels) {
		return nil
	}
	holder := v.key(cmp.Or(now, old))
	before, after := v.selectors.byHolder[holder], v.selectors.byHolder[holder]
	if changed {
		before, after = v.selectors.put(holder, v.pairsOf(now))
	}
	return v.subscription.needs.selectedBy(v.watch.Name, holder.Namespace, before, after, changed)
}

// answerSelects returns the objects that select what a need names.
func (i *informer) answerSelects(
	v *view, need drivers.Need, selector labels.Selector, subject drivers.ParsedSubject,
) ([]drivers.Object, State) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	switch {
	case !i.usable(v):
		return nil, Unknown
	case i.absent:
		return nil, Absent
	}
	var entries []*entry
	for holder := range v.selectors.selecting(subject) {
		e := i.objects[holder.Namespace][holder.Name]
		if e != nil && (need.Namespace == "" || need.Namespace == e.namespace) && selector.Matches(e.labels) {
			entries = append(entries, e)
		}
	}
	if len(entries) == 0 {
		return nil, Absent
	}
	return v.objects(entries), Present
}

// subjectNeeds are the needs of one watch by what its objects select.
type subjectNeeds struct {
	all     map[drivers.Need]*subjectNeed
	labeled map[string]map[*subjectNeed]bool // by each label of the subject, "key=value"
}

type subjectNeed struct {
	need    drivers.Need
	subject drivers.ParsedSubject
	owners  map[Key]bool
}

func (x *needsIndex) addSubject(owner Key, need drivers.Need) {
	subject, err := need.Selects.Parse()
	if err != nil {
		return // Answer says Unknown to it
	}
	if x.subjects == nil {
		x.subjects = map[string]*subjectNeeds{}
	}
	of := x.subjects[need.Watch]
	if of == nil {
		of = &subjectNeeds{all: map[drivers.Need]*subjectNeed{}, labeled: map[string]map[*subjectNeed]bool{}}
		x.subjects[need.Watch] = of
	}
	s := of.all[need]
	if s == nil {
		s = &subjectNeed{need: need, subject: subject, owners: map[Key]bool{}}
		of.all[need] = s
		for key, value := range subject.Labels {
			label := key + "=" + value
			if of.labeled[label] == nil {
				of.labeled[label] = map[*subjectNeed]bool{}
			}
			of.labeled[label][s] = true
		}
	}
	s.owners[owner] = true
}

func (x *needsIndex) forgetSubject(owner Key, need drivers.Need) {
	of := x.subjects[need.Watch]
	if of == nil || of.all[need] == nil {
		return
	}
	s := of.all[need]
	if delete(s.owners, owner); len(s.owners) > 0 {
		return
	}
	delete(of.all, need)
	for key, value := range s.subject.Labels {
		label := key + "=" + value
		if delete(of.labeled[label], s); len(of.labeled[label]) == 0 {
			delete(of.labeled, label)
		}
	}
}

// selectedBy returns who needs an object because of the pairs that it held or holds; nil is none.
func (x *needsIndex) selectedBy(watch, namespace string, before, now []*heldPair, changed bool) map[Key]bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	of := x.subjects[watch]
	if of == nil {
		return nil
	}
	affected := map[Key]bool{}
	match := func(s *subjectNeed, pair *heldPair) {
		concerned := changed || s.need.Selector != ""
		if concerned && (s.need.Namespace == "" || s.need.Namespace == namespace) && s.subject.IsSelected(pair.SelectorPair) {
			for owner := range s.owners {
				affected[owner] = true
			}
		}
	}
	added := slices.DeleteFunc(slices.Clone(now), func(pair *heldPair) bool { return slices.Contains(before, pair) })
	for _, pair := range slices.Concat(before, added) {
		if pair.label != "" {
			for s := range of.labeled[pair.label] {
				match(s, pair)
			}
			continue
		}
		for _, s := range of.all {
			match(s, pair)
		}
	}
	return affected
}
