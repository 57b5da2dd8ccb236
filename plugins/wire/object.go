// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/kuryr/raven/drivers"
	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
)

func objectToProto(object drivers.Object) *ravenv1.Object {
	return &ravenv1.Object{Watch: object.Watch, Json: object.Raw}
}

func objectFromProto(message *ravenv1.Object) drivers.Object {
	return drivers.Object{Watch: message.GetWatch(), Raw: message.GetJson()}
}

func needToProto(need drivers.Need) *ravenv1.Need {
	out := &ravenv1.Need{Watch: need.Watch, Namespace: need.Namespace, Name: need.Name, Selector: need.Selector}
	if s := need.Selects; s != (drivers.Subject{}) {
		out.Selects = &ravenv1.Subject{Namespace: s.Namespace, NamespaceLabels: s.NamespaceLabels, Labels: s.Labels}
	}
	return out
}

func needFromProto(message *ravenv1.Need) drivers.Need {
	need := drivers.Need{
		Watch: message.GetWatch(), Namespace: message.GetNamespace(), Name: message.GetName(),
		Selector: message.GetSelector(),
		Selects: drivers.Subject{
			Namespace: message.GetSelects().GetNamespace(), NamespaceLabels: message.GetSelects().GetNamespaceLabels(),
			Labels: message.GetSelects().GetLabels(),
		},
	}
	if message.GetSelects() != nil && need.Selects == (drivers.Subject{}) { // one that is refused, not a need without it
		need.Selects = drivers.Selecting(need.Watch, "", nil, nil).Selects
	}
	return need
}

func needsToProto(needs []drivers.Need) []*ravenv1.Need {
	out := make([]*ravenv1.Need, 0, len(needs))
	for _, need := range needs {
		out = append(out, needToProto(need))
	}
	return out
}

func compareNeeds(a, b drivers.Need) int {
	return cmp.Or(cmp.Compare(a.Watch, b.Watch), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Selector, b.Selector), cmp.Compare(a.Selects.Namespace, b.Selects.Namespace),
		cmp.Compare(a.Selects.Labels, b.Selects.Labels), cmp.Compare(a.Selects.NamespaceLabels, b.Selects.NamespaceLabels))
}

func answersToProto(answers map[drivers.Need][]drivers.Object) []*ravenv1.Answer {
	var out []*ravenv1.Answer
	for _, need := range slices.SortedFunc(maps.Keys(answers), compareNeeds) {
		answer := &ravenv1.Answer{Need: needToProto(need), State: ravenv1.AnswerState_ANSWER_STATE_ABSENT}
		for _, object := range answers[need] {
			answer.State = ravenv1.AnswerState_ANSWER_STATE_PRESENT
			answer.Objects = append(answer.Objects, objectToProto(object))
		}
		out = append(out, answer)
	}
	return out
}

func answersFromProto(messages []*ravenv1.Answer) (map[drivers.Need][]drivers.Object, error) {
	answers := make(map[drivers.Need][]drivers.Object, len(messages))
	for _, message := range messages {
		need := needFromProto(message.GetNeed())
		objects := make([]drivers.Object, 0, len(message.GetObjects()))
		for _, object := range message.GetObjects() {
			objects = append(objects, objectFromProto(object))
		}
		present := message.GetState() == ravenv1.AnswerState_ANSWER_STATE_PRESENT
		absent := message.GetState() == ravenv1.AnswerState_ANSWER_STATE_ABSENT
		if (!present && !absent) || present == (len(objects) == 0) {
			return nil, fmt.Errorf("the answer to %s has state %s and %d objects", need, message.GetState(), len(objects))
		}
		answers[need] = objects
	}
	return answers, nil
}
