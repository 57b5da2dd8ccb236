// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
)

func policyWatch() drivers.Watch {
	return drivers.Watch{
		Name: "policies", Kind: "NetworkPolicy", Fields: []string{"spec"},
		GVR: schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
		Selectors: []drivers.SelectorPath{
			{Path: "spec.ingress[].from[]", Namespaces: "namespaceSelector", Objects: "podSelector"},
			{Path: "spec.egress[].to[]", Namespaces: "namespaceSelector", Objects: "podSelector"},
		},
	}
}

// peer draws a peer of a policy: one in three is a range of addresses, which selects nothing.
func peer(random *rand.Rand) map[string]any {
	selector := func() map[string]any {
		key, value := fmt.Sprintf("k%d", random.IntN(3)), fmt.Sprintf("v%d", random.IntN(3))
		switch random.IntN(4) {
		case 0:
			return map[string]any{}
		case 1:
			return map[string]any{"matchExpressions": []any{map[string]any{
				"key": key, "operator": []string{"In", "NotIn"}[random.IntN(2)], "values": []any{value, "v9"},
			}}}
		default:
			return map[string]any{"matchLabels": map[string]any{key: value}}
		}
	}
	switch random.IntN(6) {
	case 0, 1:
		return map[string]any{"ipBlock": map[string]any{"cidr": "10.0.0.0/8"}}
	case 2:
		return map[string]any{"namespaceSelector": selector()}
	case 3:
		return map[string]any{"podSelector": selector()}
	default:
		return map[string]any{"namespaceSelector": selector(), "podSelector": selector()}
	}
}

func policy(random *rand.Rand, namespace, name string) map[string]any {
	peers := func(field string) []any {
		var rules []any
		for range random.IntN(3) {
			var list []any
			for range random.IntN(3) {
				list = append(list, peer(random))
			}
			rules = append(rules, map[string]any{field: list})
		}
		return rules
	}
	return map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
		"metadata": map[string]any{
			"namespace": namespace, "name": name, "labels": map[string]any{"l": fmt.Sprint(random.IntN(2))},
		},
		"spec": map[string]any{"ingress": peers("from"), "egress": peers("to")},
	}
}

func subjects(random *rand.Rand) (needs []drivers.Need) {
	draw := func() map[string]string {
		set := map[string]string{}
		for i := range 3 {
			if random.IntN(3) > 0 {
				set[fmt.Sprintf("k%d", i)] = fmt.Sprintf("v%d", random.IntN(3))
			}
		}
		return set
	}
	for range 12 {
		need := drivers.Selecting("policies", fmt.Sprintf("ns%d", random.IntN(3)), draw(), draw())
		if random.IntN(4) == 0 {
			need.Namespace = "ns1"
		}
		if random.IntN(4) == 0 {
			need.Selector = "l=1"
		}
		needs = append(needs, need)
	}
	return needs
}

// TestSelecting draws policies that come, change and go: the answers are those of a cluster that holds just them, and
// whose answer changes is woken.
func TestSelecting(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		w := policyWatch()
		s := &Subscription{}
		v := newView(s, w, nil)
		v.started, s.views = true, map[string]*view{w.Name: v}
		i := &informer{views: []*view{v}, objects: map[string]map[string]*entry{}}
		v.informer = i
		needs := subjects(random)
		for at, need := range needs {
			s.Remember(Key{"pods", "default", fmt.Sprint(at)}, []drivers.Need{need})
		}
		objects := map[string]map[string]any{}
		answers := func() (all []string) {
			list := make([]map[string]any, 0, len(objects))
			for _, o := range objects {
				list = append(list, o)
			}
			for _, need := range needs {
				want, err := drivers.Answer([]drivers.Watch{w}, need, list)
				if err != nil {
					t.Fatal(err)
				}
				got, state := s.Answer(need)
				if names(got) != names(want) || (state == Present) != (len(want) > 0) {
					t.Fatalf("seed %d: %s is answered (%s)\n%s, want\n%s", seed, need, state, names(got), names(want))
				}
				all = append(all, names(got))
			}
			return all
		}
		before := answers()
		for range 40 {
			namespace, name := fmt.Sprintf("ns%d", random.IntN(3)), fmt.Sprintf("p%d", random.IntN(4))
			key := namespace + "/" + name
			var wakeups []wakeup
			if objects[key] != nil && random.IntN(3) == 0 {
				delete(objects, key)
				wakeups = i.change(i.unset(namespace, name), nil, nil)
			} else {
				objects[key] = policy(random, namespace, name)
				e, err := entryOf(&unstructured.Unstructured{Object: objects[key]}, v.projection())
				if err != nil {
					t.Fatal(err)
				}
				wakeups = i.change(i.set(e), e, nil)
			}
			after := answers()
			for at := range needs {
				woken := slices.ContainsFunc(wakeups, func(u wakeup) bool { return u.key.Name == fmt.Sprint(at) })
				if before[at] != after[at] && !woken {
					t.Fatalf("seed %d: the answer to %s has changed, and nobody was woken", seed, needs[at])
				}
			}
			before = after
		}
		for at := range needs {
			s.Remember(Key{"pods", "default", fmt.Sprint(at)}, nil)
		}
		if of := s.needs.subjects[w.Name]; len(of.all)+len(of.labeled) > 0 {
			t.Errorf("needs that nobody has any more are kept: %v", of)
		}
		for key := range objects {
			namespace, name, _ := strings.Cut(key, "/")
			i.change(i.unset(namespace, name), nil, nil)
		}
		if x := v.selectors; len(x.all)+len(x.byHolder)+len(x.required)+len(x.unlabeled) > 0 {
			t.Errorf("selectors that no object holds are kept: %v", x)
		}
	}
}

func names(objects []drivers.Object) string {
	var all []string
	for _, o := range objects {
		all = append(all, string(o.Raw))
	}
	return strings.Join(all, "\n")
}

// peerOf is a policy that lets a label in, or out to it.
func peerOf(name, field, peers, label string) map[string]any {
	return map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
		"metadata": map[string]any{"namespace": "ns", "name": name, "uid": name, "labels": map[string]any{"l": "1"}},
		"spec": map[string]any{field: []any{map[string]any{peers: []any{map[string]any{
			"podSelector": map[string]any{"matchLabels": map[string]any{"app": label}},
		}}}}},
	}
}

// TestSelectingWithTwoViews of one informer, with fields and selectors of their own, while the objects are listed anew
// and their resource is not served for a time, which only one of them allows.
func TestSelectingWithTwoViews(t *testing.T) {
	t.Parallel()
	m := New(Config{})
	both, ingress := policyWatch(), policyWatch()
	both.Optional = true
	ingress.Fields, ingress.Selectors = []string{"metadata.labels", "spec.ingress"}, ingress.Selectors[:1]
	need := drivers.Selecting("policies", "ns", nil, map[string]string{"app": "a"})
	woken := map[string]int{}
	subs := map[string]*Subscription{}
	for name, w := range map[string]drivers.Watch{"both": both, "ingress": ingress} {
		s, err := m.Subscribe(name, []drivers.Watch{w}, nil, func(key Key, _ Reason) {
			if key.Watch == "pods" {
				woken[name]++
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Remember(Key{"pods", "ns", "pod"}, []drivers.Need{need})
		subs[name] = s
	}
	if len(m.informers) != 1 {
		t.Fatalf("there are %d informers", len(m.informers))
	}
	i := slices.Collect(maps.Values(m.informers))[0]
	spec := i.views[0].projection().union(i.views[1].projection())
	list := func(policies ...map[string]any) {
		t.Helper()
		var objects []any
		for _, p := range policies {
			e, err := entryOf((&unstructured.Unstructured{Object: p}).DeepCopy(), spec)
			if err != nil {
				t.Fatal(err)
			}
			objects = append(objects, e)
		}
		if err := (store{i, &run{number: 1, spec: spec, cancel: func() {}}}).Replace(objects, "1"); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string, wokenBoth, wokenIngress int, wantBoth, wantIngress []string, states ...State) {
		t.Helper()
		if woken["both"] != wokenBoth || woken["ingress"] != wokenIngress {
			t.Errorf("%s: woken are %v, want %d and %d", when, woken, wokenBoth, wokenIngress)
		}
		clear(woken)
		for at, want := range [][]string{wantBoth, wantIngress} {
			name := []string{"both", "ingress"}[at]
			objects, state := subs[name].Answer(need)
			var got []string
			for _, o := range objects {
				meta, err := o.Meta()
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, meta.Name)
				if strings.Contains(string(o.Raw), `"labels"`) != (name == "ingress") {
					t.Errorf("%s: %s reads %s", when, name, o.Raw)
				}
			}
			if !slices.Equal(got, want) || state != states[at] {
				t.Errorf("%s: %s is answered %v (%s), want %v (%s)", when, name, got, state, want, states[at])
			}
		}
	}
	in, out := peerOf("in", "ingress", "from", "a"), peerOf("out", "egress", "to", "a")
	other := peerOf("in", "ingress", "from", "b")
	list(in, out)
	clear(woken) // how often the first list wakes does not matter
	check("listed", 0, 0, []string{"in", "out"}, []string{"in"}, Present, Present)
	list(in, out)
	check("listed again", 0, 0, []string{"in", "out"}, []string{"in"}, Present, Present)
	list(other, out)
	check("changed", 1, 1, []string{"out"}, nil, Present, Absent)
	list(in)
	check("changed back, and one deleted", 2, 1, []string{"in"}, []string{"in"}, Present, Present)
	i.vanish()
	check("not served", 1, 0, nil, nil, Absent, Unknown)
	list(in)
	check("served again", 1, 1, []string{"in"}, []string{"in"}, Present, Present)
	list()
	check("all deleted", 1, 1, nil, nil, Absent, Absent)
	for name, s := range subs {
		x := s.order[0].selectors
		if len(x.all)+len(x.byHolder)+len(x.required)+len(x.unlabeled) > 0 {
			t.Errorf("%s: selectors that no object holds are kept: %v", name, x)
		}
	}
}

// TestSelectorsNeedFields: what objects are trimmed of selects nothing, which must not pass unnoticed.
func TestSelectorsNeedFields(t *testing.T) {
	t.Parallel()
	good := policyWatch()
	bad := map[string]func(*drivers.Watch){
		"trimmed":  func(w *drivers.Watch) { w.Fields = []string{"spec.podSelector"} },
		"no path":  func(w *drivers.Watch) { w.Selectors = []drivers.SelectorPath{{Objects: "podSelector"}} },
		"no field": func(w *drivers.Watch) { w.Selectors = []drivers.SelectorPath{{Path: "spec.ingress[].from[]"}} },
	}
	if err := checkWatches([]drivers.Watch{good}); err != nil {
		t.Error(err)
	}
	for name, change := range bad {
		w := policyWatch()
		change(&w)
		if err := checkWatches([]drivers.Watch{w}); err == nil || !strings.Contains(err.Error(), "selectors at") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// BenchmarkSelecting answers 1,000 pods' needs with 1,000 policies, changes one policy, and lists all anew.
func BenchmarkSelecting(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 1))
	w := policyWatch()
	s := &Subscription{}
	v := newView(s, w, nil)
	v.started, s.views = true, map[string]*view{w.Name: v}
	i := &informer{views: []*view{v}, objects: map[string]map[string]*entry{}}
	v.informer = i
	put := func(n int) int {
		object := map[string]any{
			"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
			"metadata": map[string]any{"namespace": fmt.Sprintf("ns%d", n%100), "name": fmt.Sprint("p", n)},
			"spec": map[string]any{"ingress": []any{map[string]any{"from": []any{map[string]any{
				"podSelector": map[string]any{"matchLabels": map[string]any{"app": fmt.Sprint("app", random.IntN(300))}},
			}}}}},
		}
		e, err := entryOf(&unstructured.Unstructured{Object: object}, v.projection())
		if err != nil {
			b.Fatal(err)
		}
		return len(i.change(i.set(e), e, nil))
	}
	for n := range 1000 {
		put(n)
	}
	var needs []drivers.Need
	for n := range 1000 {
		labels := map[string]string{"app": fmt.Sprint("app", n%300), "pod": fmt.Sprint(n)}
		needs = append(needs, drivers.Selecting("policies", fmt.Sprintf("ns%d", n%100), nil, labels))
		s.Remember(Key{"pods", "default", fmt.Sprint(n)}, needs[n:])
	}
	b.Run("answers", func(b *testing.B) {
		for b.Loop() {
			for _, need := range needs {
				s.Answer(need)
			}
		}
	})
	b.Run("change", func(b *testing.B) {
		woken := 0
		for b.Loop() {
			woken += put(5)
		}
		b.ReportMetric(float64(woken)/float64(b.N), "woken/op")
	})
	b.Run("relist", func(b *testing.B) {
		list := map[string]map[string]*entry{}
		for namespace, entries := range i.objects {
			list[namespace] = maps.Clone(entries)
		}
		for b.Loop() {
			i.diff(list)
		}
	})
}
