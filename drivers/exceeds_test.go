// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"strings"
	"testing"
)

func TestExceeds(t *testing.T) {
	accepted := func() Info {
		return Info{
			Name: "x", Version: "1", Role: "r", Kinds: []Kind{KindNetwork, KindPort}, Annotations: []string{"a", "b"},
			Labels: []string{"l"},
			Status: []string{StatusLoadBalancer}, Options: []Option{{Group: "g", Name: "o", Type: StringOption, Help: "It."}},
		}
	}
	for name, tc := range map[string]struct {
		change func(*Info)
		want   string
	}{
		"the same": {func(*Info) {}, ""},
		"less": {func(i *Info) {
			i.Kinds, i.Annotations, i.Labels, i.Status, i.Options = i.Kinds[1:], i.Annotations[:1], nil, nil, nil
		}, ""},
		"for people": {func(i *Info) {
			i.Version, i.Description, i.Capabilities, i.Options[0].Help = "2", "d", []string{"c"}, "That."
		}, ""},
		"name":       {func(i *Info) { i.Name = "y" }, `the name "y"`},
		"role":       {func(i *Info) { i.Role = ServiceProxy }, `the role "service-proxy"`},
		"no role":    {func(i *Info) { i.Role = "" }, `the role "" in place of "r"`},
		"kind":       {func(i *Info) { i.Kinds = append(i.Kinds, KindRouter) }, `the kind "router"`},
		"annotation": {func(i *Info) { i.Annotations = append(i.Annotations, "c") }, `the annotation "c"`},
		"label":      {func(i *Info) { i.Labels = append(i.Labels, "c") }, `the label "c"`},
		"status":     {func(i *Info) { i.Status = append(i.Status, "c") }, `the part of the status "c"`},
		"option":     {func(i *Info) { i.Options = append(i.Options, Option{Group: "g", Name: "p"}) }, "the option [g] p"},
		"secret":     {func(i *Info) { i.Options[0].Secret = true }, "the option [g] o"},
	} {
		t.Run(name, func(t *testing.T) {
			info := accepted()
			tc.change(&info)
			if got := info.Exceeds(accepted()); (got == "") != (tc.want == "") || !strings.HasPrefix(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
