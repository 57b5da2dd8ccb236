// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
	"github.com/kuryr/raven/plugins/wire"
)

const fullBatch = 256 // the most that the core has in a driver at a time

// many makes items of the sources, over and over.
func (s *suite) many(count int) []*ravenv1.TranslateItem {
	var items []*ravenv1.TranslateItem
	for len(items) < count && len(s.sources) > 0 {
		i := len(items) % len(s.sources)
		object, err := s.sources[i].watch.Object(s.sources[i].object)
		if err != nil {
			return items
		}
		items = append(items, wire.NewItem(object, s.answersTo(i), 1))
	}
	return items
}

func (s *suite) batch(ctx context.Context, f *finding) {
	if _, err := s.all(ctx, s.many(fullBatch), false); err != nil {
		f.fail("%v", err)
	}
}

func (s *suite) cancellation(ctx context.Context, f *finding) {
	for range 5 {
		if _, err := s.all(ctx, s.many(64), true); err != nil {
			f.fail("%v", err)
			return
		}
	}
	// What was cancelled must have left nothing behind.
	if _, err := s.all(ctx, s.many(64), false); err != nil {
		f.fail("after that: %v", err)
	}
}

func (s *suite) deadline(ctx context.Context, f *finding) {
	items := s.many(fullBatch)
	for _, item := range items {
		item.TimeoutMs = 1
	}
	results, err := s.all(ctx, items, false)
	if err != nil {
		f.fail("%v", err)
		return
	}
	late := 0
	for _, result := range results {
		if result.GetError().GetCode() == ravenv1.ErrorCode_ERROR_CODE_DEADLINE {
			late++
		}
	}
	f.say("%d of %d items were late at 1 ms", late, len(results))
}

// bad is an object as it should not be.
type bad struct {
	what string
	json []byte
}

func (s *suite) badObjects(ctx context.Context, f *finding) {
	objects := 0
	for _, w := range s.watches {
		if !w.Source {
			continue
		}
		for _, b := range badOnes(w, s.sources) {
			objects++
			s.tryBad(ctx, f, w, b)
			if s.session.ended() != nil {
				return
			}
		}
	}
	if len(s.sources) > 0 {
		unknown := drivers.Object{Watch: "an-undeclared-watch", Raw: []byte(`{"metadata":{"name":"x"}}`)}
		if result, err := s.ask(ctx, wire.NewItem(unknown, nil, 1)); err != nil {
			f.fail("an object of an unknown watch: %v", err)
		} else if result.GetError().GetCode() == ravenv1.ErrorCode_ERROR_CODE_PANIC {
			f.fail("an object of an unknown watch: it panics: %s", result.GetError().GetMessage())
		}
		s.badAnswer(ctx, f)
	}
	f.say("%d bad objects", objects)
}

func (s *suite) tryBad(ctx context.Context, f *finding, w drivers.Watch, b bad) {
	result, err := s.ask(ctx, wire.NewItem(drivers.Object{Watch: w.Name, Raw: b.json}, nil, 1))
	switch {
	case err != nil:
		f.fail("%s %s: %v", w.Kind, b.what, err)
	case result.GetError().GetCode() == ravenv1.ErrorCode_ERROR_CODE_PANIC:
		f.fail("%s %s: it panics: %s", w.Kind, b.what, result.GetError().GetMessage())
	case result.GetError().GetCode() == ravenv1.ErrorCode_ERROR_CODE_DEADLINE:
		f.fail("%s %s: it is not done within %s", w.Kind, b.what, s.config.Patience)
	case result.GetOutcome() == nil:
		f.fail("%s %s: its result has no outcome", w.Kind, b.what)
	}
}

// badAnswer sends an answer without a state, which is never an absence.
func (s *suite) badAnswer(ctx context.Context, f *finding) {
	items := s.many(1)
	if len(items) == 0 {
		return
	}
	items[0].Answers = []*ravenv1.Answer{{Need: &ravenv1.Need{Watch: s.watches[0].Name, Name: "x"}}}
	result, err := s.ask(ctx, items[0])
	if err != nil {
		f.fail("an answer without a state: %v", err)
	} else if result.GetError() == nil {
		f.fail("an answer without a state must be refused with ERROR_CODE_INVALID; it was taken")
	}
}

func badOnes(w drivers.Watch, sources []source) []bad {
	all := []bad{
		{"that is empty", []byte{}},
		{"that ends in the middle", []byte(`{"metadata":{"name":`)},
		{"that is a list", []byte(`[1,2]`)},
		{"that is null", []byte(`null`)},
		{"without anything", []byte(`{}`)},
		{
			"that is nested 5000 times",
			[]byte(`{"metadata":{"name":"x"},"spec":` + strings.Repeat(`{"a":`, 5000) + `1` + strings.Repeat(`}`, 5001)),
		},
	}
	at := slices.IndexFunc(sources, func(one source) bool { return one.watch.Name == w.Name })
	if at < 0 {
		return all
	}
	for _, path := range paths(sources[at].object, w.Fields) {
		for what, value := range map[string]any{
			"null": nil, "text": "\x00 ünïcode \U0001F426", "a number": 1e300, "a list": []any{nil, "x", 7},
			"an object": map[string]any{"x": nil},
			"false":     false,
		} {
			all = append(all,
				bad{fmt.Sprintf("whose %s is %s", strings.Join(path, "."), what), with(sources[at].object, path, value)})
		}
	}
	return all
}

// paths are those of an object that a driver reads, and those above them.
func paths(object map[string]any, fields []string) [][]string {
	found := map[string][]string{}
	add := func(path []string) {
		for n := 1; n <= len(path); n++ {
			found[strings.Join(path[:n], "\x00")] = path[:n]
		}
	}
	add([]string{"metadata", "name"})
	add([]string{"metadata", "labels"})
	add([]string{"metadata", "annotations"})
	for _, field := range fields {
		add(drivers.SplitField(field))
	}
	for key, value := range object {
		add([]string{key})
		if below, ok := value.(map[string]any); ok && key != "metadata" {
			for name := range below {
				add([]string{key, name})
			}
		}
	}
	delete(found, "apiVersion")
	delete(found, "kind")
	out := make([][]string, 0, len(found))
	for _, key := range slices.Sorted(maps.Keys(found)) {
		out = append(out, found[key])
	}
	return out
}

// with returns an object with another value at a path.
func with(object map[string]any, path []string, value any) []byte {
	encoded, err := json.Marshal(object)
	var copied map[string]any
	if err != nil || json.Unmarshal(encoded, &copied) != nil {
		return []byte(`{}`)
	}
	put(copied, path, value)
	if encoded, err = json.Marshal(copied); err != nil {
		return []byte(`{}`)
	}
	return encoded
}

func (s *suite) hugeObjects(ctx context.Context, f *finding) {
	if len(s.sources) == 0 {
		f.skip("there is no object to make larger")
		return
	}
	one := s.sources[0]
	for _, size := range []int{1 << 20, 8 << 20, 40 << 20} {
		raw := with(one.object, []string{"metadata", "annotations"}, map[string]any{"huge": strings.Repeat("x", size)})
		s.tryHuge(ctx, f, one.watch, fmt.Sprintf("of %d MiB", size>>20), raw)
	}
	list := make([]any, 20000)
	for i := range list {
		list[i] = map[string]any{"name": fmt.Sprintf("element-%d", i), "value": i}
	}
	s.tryHuge(ctx, f, one.watch, "with a list of 20000 elements", with(one.object, []string{"spec", "list"}, list))
}

func (s *suite) tryHuge(ctx context.Context, f *finding, w drivers.Watch, what string, raw []byte) {
	if s.session.ended() != nil {
		return
	}
	result, err := s.ask(ctx, wire.NewItem(drivers.Object{Watch: w.Name, Raw: raw}, s.answersTo(0), 1))
	switch {
	case err != nil:
		f.fail("an object %s: %v", what, err)
	case result.GetError().GetCode() == ravenv1.ErrorCode_ERROR_CODE_PANIC:
		f.fail("an object %s: it panics: %s", what, result.GetError().GetMessage())
	case result.GetError().GetCode() == ravenv1.ErrorCode_ERROR_CODE_DEADLINE:
		f.fail("an object %s: it is not done within %s", what, s.config.Patience)
	}
}
