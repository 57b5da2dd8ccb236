// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
)

// TestAuthority: a driver reads and makes what the operator allows, all where he names nothing; Secrets only where he
// names them.
func TestAuthority(t *testing.T) {
	t.Parallel()
	watching := func(resources ...schema.GroupVersionResource) []drivers.Watch {
		var list []drivers.Watch
		for _, gvr := range resources {
			list = append(list, drivers.Watch{Name: gvr.Resource, GVR: gvr})
		}
		return list
	}
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	claims := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "claims"}
	theirs := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "secrets"}
	for name, c := range map[string]struct {
		authority Authority
		watches   []drivers.Watch
		kinds     []drivers.Kind
		refused   string
	}{
		"nothing is named": {Authority{}, watching(pods, claims), []drivers.Kind{drivers.KindPort}, ""},
		"all that it watches is named": {
			Authority{allowWatches: []string{"pods", "claims.example.org"}},
			watching(pods, claims), nil, "",
		},
		"one is not named": {
			Authority{allowWatches: []string{"pods"}},
			watching(pods, claims), nil,
			"it watches claims.example.org",
		},
		"named without its group": {
			Authority{allowWatches: []string{"claims"}},
			watching(claims), nil,
			"it watches claims.example.org",
		},
		"Secrets without consent": {Authority{}, watching(pods, secrets), nil, "needs your consent"},
		"Secrets beside what is named": {
			Authority{allowWatches: []string{"pods"}},
			watching(pods, secrets), nil,
			"it watches secrets",
		},
		"Secrets with consent": {
			Authority{allowWatches: []string{"pods", "secrets"}},
			watching(pods, secrets), nil,
			"",
		},
		"what others call secrets": {Authority{}, watching(theirs), nil, ""},
		"a kind that is named": {
			Authority{allowKinds: []string{"port"}},
			nil,
			[]drivers.Kind{drivers.KindPort},
			"",
		},
		"a kind that is not named": {
			Authority{allowKinds: []string{"port"}},
			nil,
			[]drivers.Kind{drivers.KindPort, drivers.KindRouter},
			"kind router",
		},
		"a driver that makes nothing":    {Authority{allowKinds: []string{"port"}}, nil, nil, ""},
		"a driver that watches nothing":  {Authority{allowWatches: []string{"pods"}}, nil, nil, ""},
		"part of a name is not the name": {Authority{allowWatches: []string{"pod"}}, watching(pods), nil, "it watches pods"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.authority.checkWatches("x", c.watches)
			if err == nil {
				err = c.authority.checkKinds("x", drivers.Info{Kinds: c.kinds})
			}
			switch {
			case c.refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused) ||
				!strings.HasPrefix(err.Error(), "driver(x): ")):
				t.Errorf("%v does not say %q", err, c.refused)
			}
		})
	}
}

// TestAuthorityBeyondKinds: a driver's own word does not make it the one of Services, nor Kubernetes' keys its own, nor
// what others make.
func TestAuthorityBeyondKinds(t *testing.T) {
	t.Parallel()
	const enforce = "pod-security.kubernetes.io/enforce"
	proxy := drivers.Info{Role: drivers.ServiceProxy}
	writing := drivers.Info{
		Annotations: []string{"example.org/a"}, Labels: []string{"b"},
		Status: []string{drivers.StatusLoadBalancer},
	}
	for name, c := range map[string]struct {
		driver    string
		authority Authority
		info      drivers.Info
		refused   string
	}{
		"keys of its own":   {"x", Authority{}, writing, ""},
		"Kubernetes' label": {"x", Authority{}, drivers.Info{Labels: []string{enforce}}, "needs your consent"},
		"Kubernetes' annotation": {
			"x",
			Authority{},
			drivers.Info{Annotations: []string{"K8s.IO/a"}},
			"needs your consent",
		},
		"also of one of Raven's": {"pod", Authority{}, drivers.Info{Labels: []string{enforce}}, "needs your consent"},
		"with consent": {
			"x",
			Authority{allowOutputs: []string{enforce}},
			drivers.Info{Labels: []string{enforce}},
			"",
		},
		"beside what is named": {"x", Authority{allowOutputs: []string{enforce}}, writing, "it writes example.org/a"},
		"all named": {
			"x",
			Authority{allowOutputs: []string{"example.org/a", "b", "loadBalancer"}},
			writing,
			"",
		},
		"a domain that looks alike":    {"x", Authority{}, drivers.Info{Labels: []string{"notkubernetes.io/a"}}, ""},
		"a role":                       {"x", Authority{}, proxy, "it holds the role service-proxy"},
		"a role with consent":          {"x", Authority{allowRoles: []string{drivers.ServiceProxy}}, proxy, ""},
		"our role":                     {"lbaas", Authority{}, proxy, ""},
		"our other role":               {"kubeproxy", Authority{}, proxy, ""},
		"a role of none of Raven's":    {"lbaas", Authority{}, drivers.Info{Role: "other"}, "it holds the role other"},
		"a role of another of Raven's": {"pod", Authority{}, proxy, "it holds the role service-proxy"},
		"our role, which is not let": {
			"lbaas",
			Authority{allowRoles: []string{"other"}},
			proxy,
			"it holds the role service-proxy",
		},
		"a kind": {
			"x",
			Authority{allowKinds: []string{"port"}},
			drivers.Info{Kinds: []drivers.Kind{drivers.KindRouter}},
			"kind router",
		},
	} {
		err := c.authority.checkInfo(c.driver, c.info)
		if c.refused == "" && err != nil || c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%s: %v does not say %q", name, err, c.refused)
		}
	}
	got := contributions([]Program{
		{Name: "pod"},
		{Name: "lbaas", Authority: Authority{allowContributions: []string{"routes"}}},
		{Name: "x"},
		{Name: "y", Authority: Authority{allowContributions: []string{"security_groups"}}},
	})
	want := map[string][]string{"lbaas": {"routes"}, "x": nil, "y": {"security_groups"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("bounds of contributions (-want +got):\n%s", diff)
	}
}
