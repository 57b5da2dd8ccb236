// SPDX-License-Identifier: Apache-2.0

package conf

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kuryr/raven/drivers"
)

func TestSelection(t *testing.T) {
	object := func(labels string) []drivers.Object {
		return []drivers.Object{{Watch: selectionWatch, Raw: fmt.Appendf(nil, `{"metadata":{"labels":{%s}}}`, labels)}}
	}
	for name, c := range map[string]struct {
		selector string
		excluded []string
		labels   string // of namespace web; "-": the cluster does not show it
		want     string // part of the note; empty: it is selected
	}{
		"no option":     {},
		"excluded":      {excluded: []string{"kube-public", "web"}, want: "excluded_namespaces names namespace web"},
		"not excluded":  {excluded: []string{"kube-public"}},
		"selected":      {selector: "net in (on,auto)", labels: `"net":"auto"`},
		"not selected":  {selector: "net=on", labels: `"net":"off"`, want: "namespace_selector = net=on does not select"},
		"without":       {selector: "!legacy", labels: `"net":"off"`},
		"both":          {selector: "net=on", excluded: []string{"web"}, labels: `"net":"on"`, want: "names namespace web"},
		"not shown yet": {selector: "net=on", labels: "-"},
	} {
		s, err := ReadSelection(drivers.Values{SubnetGroup: {
			OptNamespaceSelector: c.selector, OptExcludedNamespaces: c.excluded,
		}})
		if err != nil {
			t.Fatal(err)
		}
		if asks := len(s.Watches()) > 0; asks != (c.selector != "") {
			t.Errorf("%s: it watches namespaces: %t", name, asks)
		}
		answer := object(c.labels)
		if c.labels == "-" {
			answer = nil
		}
		needs := drivers.NewNeeds(map[drivers.Need][]drivers.Object{{Watch: selectionWatch, Name: "web"}: answer})
		list, err := s.Left(needs, "web", "no port")
		if err != nil || needs.Open() || len(list) > 0 != (c.want != "") {
			t.Errorf("%s: %v, %v", name, list, err)
		}
		if len(list) > 0 && !strings.Contains(list[0].Message, c.want) {
			t.Errorf("%s: %s", name, list[0].Message)
		}
	}
	var refusal *drivers.OptionError
	_, err := ReadSelection(drivers.Values{SubnetGroup: {OptNamespaceSelector: "net in on"}})
	if !errors.As(err, &refusal) || refusal.Name != OptNamespaceSelector {
		t.Errorf("what is no selector: %v", err)
	}
}
