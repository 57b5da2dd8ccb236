package main

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
)

// TestAuthority: a driver reads and makes what the operator allows, all where he names nothing; Secrets only where he names them.
func TestAuthority(t *testing.T) {
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
		authority authority
		watches   []drivers.Watch
		kinds     []drivers.Kind
		refused   string
	}{
		"nothing is named":               {authority{}, watching(pods, claims), []drivers.Kind{drivers.KindPort}, ""},
		"all that it watches is named":   {authority{allowWatches: []string{"pods", "claims.example.org"}}, watching(pods, claims), nil, ""},
		"one is not named":               {authority{allowWatches: []string{"pods"}}, watching(pods, claims), nil, "it watches claims.example.org"},
		"named without its group":        {authority{allowWatches: []string{"claims"}}, watching(claims), nil, "it watches claims.example.org"},
		"Secrets without consent":        {authority{}, watching(pods, secrets), nil, "needs your consent"},
		"Secrets beside what is named":   {authority{allowWatches: []string{"pods"}}, watching(pods, secrets), nil, "it watches secrets"},
		"Secrets with consent":           {authority{allowWatches: []string{"pods", "secrets"}}, watching(pods, secrets), nil, ""},
		"what others call secrets":       {authority{}, watching(theirs), nil, ""},
		"a kind that is named":           {authority{allowKinds: []string{"port"}}, nil, []drivers.Kind{drivers.KindPort}, ""},
		"a kind that is not named":       {authority{allowKinds: []string{"port"}}, nil, []drivers.Kind{drivers.KindPort, drivers.KindRouter}, "kind router"},
		"a driver that makes nothing":    {authority{allowKinds: []string{"port"}}, nil, nil, ""},
		"a driver that watches nothing":  {authority{allowWatches: []string{"pods"}}, nil, nil, ""},
		"part of a name is not the name": {authority{allowWatches: []string{"pod"}}, watching(pods), nil, "it watches pods"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.authority.checkWatches("x", c.watches)
			if err == nil {
				err = c.authority.checkKinds("x", drivers.Info{Kinds: c.kinds})
			}
			switch {
			case c.refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused) || !strings.HasPrefix(err.Error(), "driver(x): ")):
				t.Errorf("%v does not say %q", err, c.refused)
			}
		})
	}
}
