// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kuryr/raven/drivers"
	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
	"github.com/kuryr/raven/plugins/wire"
)

// translateOne translates a source with what is known of the cluster, and notes what is wrong with it.
func (s *suite) translateOne(ctx context.Context, f *finding, one source) (outcome, bool) {
	object, err := one.watch.Object(one.object)
	if err != nil {
		f.fail("%s: %v", one, err)
		return outcome{}, false
	}
	out, err := s.settle(ctx, object, s.answersFrom())
	if err != nil {
		f.fail("%s: %v", one, err)
		return outcome{}, false
	}
	return out, true
}

func (s *suite) translate(ctx context.Context, f *finding) {
	s.first, s.began = map[int]outcome{}, time.Now()
	if len(s.sources) == 0 {
		f.warn("no object can be made up that its source watches show: give some with -f")
		return
	}
	sets, full := 0, 0
	for i, one := range s.sources {
		out, ok := s.translateOne(ctx, f, one)
		if !ok {
			continue
		}
		s.first[i] = out
		switch {
		case out.set != nil:
			sets++
			if len(out.set.Resources)+len(out.set.Contributions)+len(out.set.Outputs) > 0 {
				full++
			}
			if err := out.set.Validate(s.info); err != nil {
				f.fail("%s: %v", one, err)
			}
		case out.err != nil:
			s.judgeError(f, one, out.err)
		}
		s.checkAsked(f, one, out)
	}
	f.say("%d objects: %d Sets, %d of them with something in them", len(s.sources), sets, full)
	if full == 0 {
		f.warn("none gave a Set with anything in it, so that little was seen: give objects of your own with -f")
	}
}

// judgeError tells a refusal from a defect. An object that was made up may be refused.
func (s *suite) judgeError(f *finding, one source, err *ravenv1.TranslateError) {
	switch err.GetCode() {
	case ravenv1.ErrorCode_ERROR_CODE_PANIC:
		f.fail("%s: it panics: %s", one, err.GetMessage())
	case ravenv1.ErrorCode_ERROR_CODE_CANCELLED, ravenv1.ErrorCode_ERROR_CODE_DEADLINE,
		ravenv1.ErrorCode_ERROR_CODE_INVALID:
		f.fail("%s: it answers %s, though nothing was cancelled, late or wrong: %s", one, err.GetCode(), err.GetMessage())
	default:
		if one.given {
			f.say("%s: error: %s", one, err.GetMessage())
		}
	}
}

func (s *suite) checkAsked(f *finding, one source, out outcome) {
	for _, need := range out.asked {
		if !slices.ContainsFunc(s.watches, func(w drivers.Watch) bool { return w.Name == need.Watch }) {
			f.fail("%s: it needs %s, but has no watch of that name", one, need)
		}
	}
}

func (s *suite) needs(ctx context.Context, f *finding) {
	most := 0
	for _, one := range s.sources {
		object, err := one.watch.Object(one.object)
		if err != nil {
			continue
		}
		for what, known := range map[string]func(drivers.Need) ([]drivers.Object, bool){
			"when nothing of it exists": absent, "when all of it exists": s.madeUp(),
			"when nothing is known": func(drivers.Need) ([]drivers.Object, bool) { return nil, false },
		} {
			out, err := s.settle(ctx, object, known)
			if err != nil {
				f.fail("%s, %s: %v", one, what, err)
				continue
			}
			most = max(most, len(out.asked))
			if out.err.GetCode() == ravenv1.ErrorCode_ERROR_CODE_PANIC {
				f.fail("%s, %s: it panics: %s", one, what, out.err.GetMessage())
			}
		}
		s.atOnce(ctx, f, one, object)
	}
	if most == 0 {
		f.say("it needs nothing of the samples")
	}
}

// atOnce gives all answers in the first round: the Set must be that which the rounds led to.
func (s *suite) atOnce(ctx context.Context, f *finding, one source, object drivers.Object) {
	slow, err := s.settle(ctx, object, s.answersFrom())
	if err != nil || len(slow.asked) == 0 {
		return
	}
	answers := map[drivers.Need][]drivers.Object{}
	for _, need := range slow.asked {
		objects, known := s.answersFrom()(need)
		if !known {
			return
		}
		answers[need] = objects
	}
	result, err := s.ask(ctx, wire.NewItem(object, answers, 1))
	if err != nil {
		f.fail("%s: %v", one, err)
		return
	}
	if fast, open, err := read(result, answers); err != nil || open || fast.text != slow.text {
		f.fail("%s: with all answers in the first round it gives something else than after %d rounds", one, slow.rounds)
	}
}

const repetitions = 5

// determinism translates everything again and again, in many orders and side by side.
func (s *suite) determinism(ctx context.Context, f *finding) {
	shuffle := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // any order will do, the same each time
	for range repetitions {
		for _, i := range shuffle.Perm(len(s.sources)) {
			s.compare(ctx, f, i, "translated again")
		}
	}
	s.sideBySide(ctx, f)
	if len(s.first) == 0 {
		f.skip("nothing was translated")
	}
}

func (s *suite) compare(ctx context.Context, f *finding, i int, how string) {
	before, ok := s.first[i]
	if !ok {
		return
	}
	again, ok := s.translateOne(ctx, f, s.sources[i])
	if ok && again.text != before.text {
		f.fail("%s: %s it gives something else: %s", s.sources[i], how, difference(before, again))
	}
}

// sideBySide sends everything in one message, several times over: what they give one by one in the first round must
// be the same.
func (s *suite) sideBySide(ctx context.Context, f *finding) {
	var items []*ravenv1.TranslateItem
	var of []int
	for range repetitions {
		for i, one := range s.sources {
			object, err := one.watch.Object(one.object)
			if err != nil {
				continue
			}
			items, of = append(items, wire.NewItem(object, s.answersTo(i), 1)), append(of, i)
		}
	}
	results, err := s.all(ctx, items, false)
	if err != nil {
		f.fail("side by side: %v", err)
		return
	}
	for n, result := range results {
		before, known := s.first[of[n]]
		out, open, err := read(result, s.allAnswers(before))
		if known && (err != nil || (!open && out.text != before.text)) {
			f.fail("%s: side by side with others it gives something else (%v)", s.sources[of[n]], errors.Join(err))
		}
	}
}

// answersTo are the answers to all that the translation of a source asked for.
func (s *suite) answersTo(i int) map[drivers.Need][]drivers.Object {
	answers := map[drivers.Need][]drivers.Object{}
	for _, need := range s.first[i].asked {
		if objects, known := s.answersFrom()(need); known {
			answers[need] = objects
		}
	}
	return answers
}

func (s *suite) allAnswers(out outcome) map[drivers.Need][]drivers.Object {
	answers := map[drivers.Need][]drivers.Object{}
	for _, need := range out.asked {
		answers[need] = nil
	}
	return answers
}

// all sends items in one message and awaits a result of each.
func (s *suite) all(
	ctx context.Context, items []*ravenv1.TranslateItem, cancel bool,
) ([]*ravenv1.TranslateResult, error) {
	if len(items) == 0 {
		return nil, nil
	}
	sent, err := s.session.send(items, cancel)
	if err != nil {
		return nil, err
	}
	results := make([]*ravenv1.TranslateResult, 0, len(sent))
	end := time.Now().Add(s.config.Patience + grace)
	for n, p := range sent {
		result, err := s.session.await(ctx, p, max(time.Until(end), time.Millisecond))
		if err != nil {
			return nil, fmt.Errorf("of %d items, the %dth: %w", len(sent), n+1, err)
		}
		results = append(results, result)
	}
	if odd := s.session.odd(); len(odd) > 0 {
		return nil, errors.New(odd[0])
	}
	return results, nil
}

// difference says shortly in what two outcomes differ.
func difference(a, b outcome) string {
	if a.set == nil || b.set == nil {
		return fmt.Sprintf("%.80q and %.80q", a.text, b.text)
	}
	x, y := a.set.Render(), b.set.Render()
	for _, part := range []string{"resources", "contributions", "outputs", "diagnostics", "undecided"} {
		if left, right := fmt.Sprint(x[part]), fmt.Sprint(y[part]); left != right {
			return fmt.Sprintf("%s: %s", part, firstDifference(left, right))
		}
	}
	return "the encoding of equal Sets"
}

func firstDifference(a, b string) string {
	at := 0
	for at < min(len(a), len(b)) && a[at] == b[at] {
		at++
	}
	at = max(at-30, 0)
	cut := func(text string) string { return text[min(at, len(text)):min(at+90, len(text))] }
	return fmt.Sprintf("…%s… and …%s…", cut(a), cut(b))
}
