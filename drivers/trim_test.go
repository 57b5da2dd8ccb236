// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTrim(t *testing.T) {
	const object = `{"apiVersion":"v1","kind":"Pod",
		"metadata":{"name":"web","namespace":"a","uid":"u","deletionTimestamp":"d","resourceVersion":"7","managedFields":[{}],
			"labels":{"app":"web","tier":"x"},"annotations":{"kuryr.org/x":"1","other":"2"}},
		"spec":{"nodeName":"n1","hostNetwork":false,"containers":[{"name":"c","image":"i",
		"ports":[{"containerPort":80}]},{"image":"j"}]},
		"status":{"phase":"Running","podIP":null}}`
	const kept = `"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"a","uid":"u","deletionTimestamp":"d"`
	for name, c := range map[string]struct {
		fields []string
		want   string
	}{
		"a path":              {[]string{"spec.nodeName"}, `{` + kept + `},"spec":{"nodeName":"n1"}}`},
		"a false value stays": {[]string{"spec.hostNetwork"}, `{` + kept + `},"spec":{"hostNetwork":false}}`},
		"a null stays":        {[]string{"status.podIP"}, `{` + kept + `},"status":{"podIP":null}}`},
		"a missing path":      {[]string{"spec.none.below", "none"}, `{` + kept + `},"spec":{}}`},
		"below a scalar":      {[]string{"spec.nodeName.x"}, `{` + kept + `},"spec":{}}`},
		"a whole map":         {[]string{"metadata.labels"}, `{` + kept + `,"labels":{"app":"web","tier":"x"}}}`},
		"a key with dots": {
			[]string{"metadata.annotations['kuryr.org/x']"}, `{` + kept + `,"annotations":{"kuryr.org/x":"1"}}}`,
		},
		"a whole and a part": {
			[]string{"metadata.labels.app", "metadata.labels"}, `{` + kept + `,"labels":{"app":"web","tier":"x"}}}`,
		},
		"a part and a whole": {
			[]string{"metadata.labels", "metadata.labels.app"}, `{` + kept + `,"labels":{"app":"web","tier":"x"}}}`,
		},
		"into a list": {
			[]string{"spec.containers.name", "spec.containers.ports.containerPort"},
			`{` + kept + `},"spec":{"containers":[{"name":"c","ports":[{"containerPort":80}]},{}]}}`,
		},
		"only what stays": {[]string{"metadata.name"}, `{` + kept + `}}`},
		"no fields: all but " +
			"managedFields": {
			nil,
			`{` + kept +
				`,"resourceVersion":"7","labels":{"app":"web","tier":"x"},"annotations":{"kuryr.org/x":"1","other":"2"}},
			"spec":{"nodeName":"n1","hostNetwork":false,"containers":[{"name":"c","image":"i",
			"ports":[{"containerPort":80}]},{"image":"j"}]},
			"status":{"phase":"Running","podIP":null}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			before, want := decode(t, object), decode(t, c.want)
			if diff := cmp.Diff(want, Trim(before, c.fields)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(decode(t, object), before); diff != "" {
				t.Errorf("the object itself changed:\n%s", diff)
			}
		})
	}
}

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSplitField(t *testing.T) {
	for field, want := range map[string][]string{
		"spec":                                    {"spec"},
		"spec.nodeName":                           {"spec", "nodeName"},
		"metadata.annotations['kuryr.org/x']":     {"metadata", "annotations", "kuryr.org/x"},
		"metadata.annotations['kuryr.org/x'].y":   {"metadata", "annotations", "kuryr.org/x", "y"},
		"metadata.annotations.['a.b']['c.d'].e.f": {"metadata", "annotations", "a.b", "c.d", "e", "f"},
	} {
		if diff := cmp.Diff(want, SplitField(field)); diff != "" {
			t.Errorf("%s:\n%s", field, diff)
		}
	}
}

func TestDefaultValues(t *testing.T) {
	options := []Option{
		{Group: "g", Name: "s", Type: StringOption, Default: "x", HasDefault: true, Choices: []string{"x", "y"}},
		{Group: "g", Name: "i", Type: IntegerOption, Default: "3", HasDefault: true, Min: new(1.0), Max: new(9.0)},
		{Group: "g", Name: "b", Type: BooleanOption, Default: "Yes", HasDefault: true},
		{Group: "g", Name: "f", Type: FloatOption, Default: "1.5", HasDefault: true},
		{Group: "h", Name: "l", Type: ListOption, Default: "a, b", HasDefault: true},
		{Group: "h", Name: "d", Type: DictOption, Default: "a:b,c:d", HasDefault: true},
		{Group: "h", Name: "unset", Type: StringOption},
	}
	got, err := DefaultValues(options, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Values{
		"g": {"s": "x", "i": int64(3), "b": true, "f": 1.5},
		"h": {"l": []string{"a", "b"}, "d": map[string]string{"a": "b", "c": "d"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	got, err = DefaultValues(options, map[string]map[string]any{
		"g": {"s": "y", "i": 4.0, "b": false, "f": int64(2)}, "h": {"l": []any{"z"}, "d": map[string]any{}, "unset": ""},
	})
	if err != nil {
		t.Fatal(err)
	}
	want = Values{
		"g": {"s": "y", "i": int64(4), "b": false, "f": 2.0},
		"h": {"l": []string{"z"}, "d": map[string]string{}, "unset": ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for name, overrides := range map[string]map[string]map[string]any{
		"unknown option": {"g": {"none": 1}},
		"no choice":      {"g": {"s": "z"}},
		"too little":     {"g": {"i": 0}},
		"too much":       {"g": {"i": 10}},
		"no number":      {"g": {"i": "x"}},
		"not whole":      {"g": {"i": 1.5}},
		"no boolean":     {"g": {"b": "maybe"}},
		"no list":        {"h": {"l": 3}},
	} {
		if _, err := DefaultValues(options, overrides); err == nil {
			t.Errorf("%s: want an error", name)
		}
	}
	checkTypedValues(t)
	if _, err := DefaultValues([]Option{{Group: "g", Name: "r", Type: StringOption, Required: true}}, nil); err == nil {
		t.Error("a required option that is missing: want an error")
	}
}

// checkTypedValues: each further type of options takes what it should, as the Go type that it should, and refuses the
// rest.
func checkTypedValues(t *testing.T) {
	t.Helper()
	for name, c := range map[string]struct {
		option Option
		good   map[string]any // by the text of an operator
		bad    []string
	}{
		"port": {
			Option{Type: PortOption}, map[string]any{"0": int64(0), "65535": int64(65535)}, []string{"-1", "65536", "http"},
		},
		"port, closer": {Option{Type: PortOption, Min: new(1024.0)}, map[string]any{"1024": int64(1024)}, []string{"1023"}},
		"duration": {
			Option{Type: DurationOption},
			map[string]any{"30": 30.0, "300ms": 0.3, "5m": 300.0, "1h30m": 5400.0},
			[]string{"-1", "soon", "5 m", "5x", "m", ""},
		},
		"multi": {Option{Type: MultiOption}, map[string]any{"a,b\nc": []string{"a,b", "c"}}, nil},
		"ip": {
			Option{Type: IPOption},
			map[string]any{"192.0.2.1": "192.0.2.1", "fd00::1": "fd00::1"},
			[]string{"192.0.2", "fe80::1%eth0", ""},
		},
		"cidr": {
			Option{Type: CIDROption, IPVersion: 4},
			map[string]any{"10.0.0.0/8": "10.0.0.0/8"},
			[]string{"10.0.0.1/8", "fd00::/64", "10.0.0.0"},
		},
		"list of cidrs": {
			Option{Type: ListOption, Item: CIDROption},
			map[string]any{"10.0.0.0/8, fd00::/64": []string{"10.0.0.0/8", "fd00::/64"}},
			[]string{"10.0.0.0/8,x"},
		},
		"list of ports": {
			Option{Type: ListOption, Item: PortOption}, map[string]any{"80,443": []string{"80", "443"}}, []string{"80,http"},
		},
		"dict of ports": {
			Option{Type: DictOption, Item: PortOption}, map[string]any{"a:80": map[string]string{"a": "80"}}, []string{"a:b"},
		},
		"uri": {Option{Type: URIOption}, map[string]any{"https://x/": "https://x/"}, nil},
		"pattern": {
			Option{Type: StringOption, Pattern: "^a+$", IgnoreCase: true}, map[string]any{"aA": "aA"}, []string{"ab"},
		},
		"length": {Option{Type: StringOption, MaxLength: 2}, map[string]any{"ää": "ää"}, []string{"abc"}},
	} {
		c.option.Group, c.option.Name = "g", "o"
		for text, want := range c.good {
			got, err := DefaultValues([]Option{c.option}, map[string]map[string]any{"g": {"o": text}})
			if diff := cmp.Diff(want, got["g"]["o"]); err != nil || diff != "" {
				t.Errorf("%s: %q: %v\n%s", name, text, err, diff)
			}
		}
		for _, text := range c.bad {
			if got, err := DefaultValues([]Option{c.option}, map[string]map[string]any{"g": {"o": text}}); err == nil {
				t.Errorf("%s: %q is taken: %v", name, text, got)
			}
		}
	}
}
