// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func chain(length int) Set {
	set := Set{Resources: make([]Resource, length)}
	for i := range set.Resources {
		set.Resources[i] = Resource{Name: fmt.Sprint(i), Spec: Network{}, After: []Ref{{Name: fmt.Sprint(i + 1)}}}
	}
	set.Resources[length-1].After = nil
	return set
}

func many[T any](count int, one func(i int) T) []T {
	list := []T{}
	for i := range count {
		list = append(list, one(i))
	}
	return list
}

// TestBounds: what is too much is refused for that alone, however much it is.
func TestBounds(t *testing.T) {
	info := Info{Kinds: Kinds(), Annotations: []string{"a"}}
	long := strings.Repeat("x", MaxNameBytes+1)
	after := func(int) Ref { return Ref{Name: "x"} }
	for name, tc := range map[string]struct {
		set  Set
		want string
	}{
		"a chain of a million": {chain(1_500_000), "resources: there are 1500000, more than 4096"},
		"contributions":        {Set{Contributions: make([]Contribution, MaxParts+1)}, "contributions: there are 4097"},
		"outputs":              {Set{Outputs: make([]Output, MaxParts+1)}, "outputs: there are 4097"},
		"diagnostics":          {Set{Diagnostics: make([]Diagnostic, MaxParts+1)}, "diagnostics: there are 4097"},
		"undecided":            {Set{Undecided: make([]string, MaxParts+1)}, "undecided: there are 4097"},
		"after": {
			Set{Resources: []Resource{{Name: "x", Spec: Network{}, After: many(MaxParts+1, after)}}},
			`resource "x": after: there are 4097`,
		},
		"exports": {
			Set{
				Resources: []Resource{
					{Name: "x", Spec: Network{}, Exports: many(MaxParts+1, func(i int) string { return fmt.Sprint(i) })},
				},
			},
			`resource "x": exports: there are 4097`,
		},
		"name":  {Set{Resources: []Resource{{Name: long, Spec: Network{}}}}, "it is 1025 bytes long, more than 1024"},
		"claim": {Set{Resources: []Resource{{Name: "x", Claim: long, Spec: Network{}}}}, "it is 1025 bytes long"},
		"key":   {Set{Outputs: []Output{{Kind: Annotation, Key: long}}}, "it is 1025 bytes long"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.set.Validate(info)
			var invalid *InvalidError
			if !errors.As(err, &invalid) || len(invalid.Problems) != 1 || !strings.Contains(invalid.Problems[0], tc.want) {
				t.Fatalf("got %.300v", err)
			}
		})
	}
}

// TestTheMost is still valid: a Set at its bounds, and a Service of some thousand endpoints.
func TestTheMost(t *testing.T) {
	info := Info{Kinds: Kinds()}
	if err := chain(MaxParts).Validate(info); err != nil {
		t.Error(err)
	}
	vips := many(10, func(i int) OVNVIP {
		return OVNVIP{
			Protocol: "TCP", Address: Text("10.0.0.9"), Port: int64(i + 1),
			Backends: many(5000, func(i int) OVNBackend {
				return OVNBackend{Address: fmt.Sprintf("10.1.%d.%d", i/250, i%250+1), Port: 80}
			}),
		}
	})
	group := FromRole(Role{Kind: "Namespace", Name: "web", Role: ServiceLoadBalancerGroup})
	set := Set{Resources: []Resource{{Name: "x", Spec: OVNLoadBalancer{GroupID: group, VIPs: vips}}}}
	if err := set.Validate(info); err != nil {
		t.Error(err)
	}
	if size := set.Size(); size < 50_000*(24+8) || size > 8<<20 {
		t.Errorf("it takes %d bytes", size)
	}
}

// TestManyProblems: all are counted, the first are told, and none at length.
func TestManyProblems(t *testing.T) {
	circles := Set{Resources: make([]Resource, MaxParts)}
	for i := range circles.Resources {
		next := Ref{Name: fmt.Sprint((i + 1) % MaxParts)}
		circles.Resources[i] = Resource{
			Name: fmt.Sprint(i), Spec: Network{}, After: []Ref{next, {Name: "0"}, {Name: "nowhere"}},
		}
	}
	err := circles.Validate(Info{Kinds: Kinds()})
	var invalid *InvalidError
	if !errors.As(err, &invalid) || len(invalid.Problems) != maxProblems+1 ||
		len(err.Error()) > (maxProblems+2)*(maxProblem+8) {
		t.Fatalf("got %d bytes: %.300v", len(err.Error()), err)
	}
	if last := invalid.Problems[maxProblems]; !strings.HasPrefix(last, "and ") || !strings.HasSuffix(last, " more") {
		t.Errorf("the last is %q", last)
	}
}
