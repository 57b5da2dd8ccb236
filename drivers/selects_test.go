// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"encoding/json"
	"testing"
)

// A pair of selectors means what a peer of a NetworkPolicy means.
func TestSelectorPairs(t *testing.T) {
	w := Watch{Name: "policies", Selectors: []SelectorPath{
		{Path: "spec.ingress[].from[]", Namespaces: "namespaceSelector", Objects: "podSelector"},
	}}
	web := Selecting("policies", "shop", map[string]string{"team": "a"}, map[string]string{"app": "web"}).Selects
	other := Selecting("policies", "other", nil, map[string]string{"app": "web"}).Selects
	for _, tt := range []struct {
		peer       string
		pairs      int
		web, other bool
		required   string
	}{
		{`{"ipBlock": {"cidr": "10.0.0.0/8"}}`, 0, false, false, ""},
		{`{}`, 0, false, false, ""},
		{`{"podSelector": {}}`, 1, true, false, ""},
		{`{"podSelector": {"matchLabels": {"app": "web"}}}`, 1, true, false, "app=web"},
		{`{"podSelector": {"matchLabels": {"app": "db"}}}`, 1, false, false, "app=db"},
		{`{"namespaceSelector": {}}`, 1, true, true, ""},
		{`{"namespaceSelector": {"matchLabels": {"team": "a"}}}`, 1, true, false, ""},
		{expression(`{"key": "app", "operator": "Exists"}`), 1, true, true, ""},
		{expression(`{"key": "app", "operator": "In", "values": ["web"]}`), 1, true, true, "app=web"},
		{expression(`{"key": "app", "operator": "NotIn", "values": ["web"]}`), 1, false, false, ""},
		{expression(`{"key": "app", "operator": "Is"}`), 1, false, false, ""},
		{`{"namespaceSelector": {}, "podSelector": {"matchLabels": ["app"]}}`, 1, false, false, ""},
	} {
		var object map[string]any
		text := `{"spec": {"ingress": [{"ports": []}, {"from": [` + tt.peer + `]}]}}`
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		pairs := w.SelectorsOf("shop", object)
		if len(pairs) != tt.pairs {
			t.Errorf("%s has %d pairs, want %d", tt.peer, len(pairs), tt.pairs)
			continue
		}
		for _, pair := range pairs {
			for subject, want := range map[Subject]bool{web: tt.web, other: tt.other} {
				parsed, err := subject.Parse()
				if err != nil {
					t.Fatal(err)
				}
				if got := parsed.IsSelected(pair); got != want {
					t.Errorf("%s selects %v: %v", tt.peer, subject, got)
				}
			}
			if label, _ := pair.Required(); label != tt.required {
				t.Errorf("what %s selects has %q, want %q", tt.peer, label, tt.required)
			}
		}
	}
	if _, err := (Subject{Namespace: "a", Labels: "a"}).Parse(); err == nil {
		t.Error("labels that are none were read")
	}
}

// A need by selectors is not answered where the watch has none, or the labels cannot be read: that is not "none".
func TestSelectingWithoutSelectors(t *testing.T) {
	w := Watch{Name: "policies"}
	if _, err := Answer([]Watch{w}, Selecting("policies", "a", nil, nil), nil); err == nil {
		t.Error("answered without selectors")
	}
	w.Selectors = []SelectorPath{{Path: "spec.from[]", Objects: "podSelector"}}
	for _, nowhere := range []Need{
		Selecting("policies", "", nil, nil), {Watch: "policies", Selects: Subject{Labels: "app=web"}},
	} {
		if _, err := Answer([]Watch{w}, nowhere, nil); err == nil {
			t.Errorf("%s is answered", nowhere)
		}
	}
	unreadable := Need{Watch: "policies", Selects: Subject{Namespace: "a", Labels: "!"}}
	if _, err := Answer([]Watch{w}, unreadable, nil); err == nil {
		t.Error("answered without readable labels")
	}
}

// expression is a peer in any namespace with one expression about its pods.
func expression(text string) string {
	return `{"namespaceSelector": {}, "podSelector": {"matchExpressions": [` + text + `]}}`
}
