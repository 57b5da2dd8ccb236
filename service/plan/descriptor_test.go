// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// What is peculiar to a kind stands with its backend: the planner names none.
func TestPlanNamesNoKind(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			p, ok := s.X.(*ast.Ident)
			rest, kind := strings.CutPrefix(s.Sel.Name, "Kind")
			if ok && p.Name == "drivers" && kind && rest != "" && rest != "s" {
				t.Errorf("%s: drivers.%s", set.Position(s.Pos()), s.Sel.Name)
			}
			return true
		})
	}
}

// Every kind is described, in an order of its own.
func TestKindsAreComplete(t *testing.T) {
	list := kinds.List()
	for i, d := range list {
		if i > 0 && list[i-1].Rank >= d.Rank {
			t.Errorf("%s and %s have rank %d", list[i-1].Kind, d.Kind, d.Rank)
		}
		if d.Alternative != "" && kinds.Of(d.Alternative).Alternative != d.Kind {
			t.Errorf("%s is not the alternative of %s", d.Kind, d.Alternative)
		}
	}
	for _, kind := range drivers.Kinds() {
		if !slices.ContainsFunc(list, func(d plan.Descriptor) bool { return d.Kind == kind }) {
			t.Errorf("%s is not described", kind)
		}
	}
}

func TestKindDescribedTwice(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	plan.NewKinds(plan.Descriptor{Kind: "disk"}, plan.Descriptor{Kind: "disk"})
}

// A kind that is stored as another one is told from that by the name in the identity.
func TestKindOf(t *testing.T) {
	kinds := plan.NewKinds(
		plan.Descriptor{Kind: "disk"}, plan.Descriptor{Kind: "boot_disk", StoredAs: "disk", NamePrefix: "boot."},
	)
	for _, c := range []struct {
		name    string
		kind    drivers.Kind
		logical string
		managed bool
		want    drivers.Kind
	}{
		{"another kind", "machine", "boot.x", true, "machine"},
		{"the kind that it is stored as", "disk", "x", true, "disk"},
		{"by its name", "disk", "boot.x", true, "boot_disk"},
		{"by its name, whatever it looks like", "boot_disk", "x", true, "disk"},
		{"without an identity", "boot_disk", "", false, "boot_disk"},
	} {
		o := plan.Observed{Kind: c.kind, Managed: c.managed, Identity: plan.Identity{Name: c.logical}}
		if got := kinds.KindOf(&o); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	for logical, want := range map[string]string{"x": "boot.x", "boot.x": "boot.x"} {
		if got := kinds.LogicalName("boot_disk", logical); got != want {
			t.Errorf("%s: %s, want %s", logical, got, want)
		}
	}
	for name, want := range map[string]bool{
		"x": true, "boot.x": true, "x.2": true, "boot.x.2": true, "y": false, "x2": false,
	} {
		if got := kinds.StandsFor(plan.Observed{Kind: "disk", Identity: plan.Identity{Name: name}}, "x"); got != want {
			t.Errorf("%s stands for x: %t", name, got)
		}
	}
}

func TestIDs(t *testing.T) {
	ids := plan.IDs("network_id", "none", "groups[]", "pools[].members[].subnet_id")
	got := ids(map[string]any{
		"network_id": "n", "name": "x", "groups": []any{"g", "n", "", 7},
		"pools": []any{
			map[string]any{"members": []any{map[string]any{"subnet_id": "s"}, map[string]any{"subnet_id": nil}}},
			map[string]any{"members": nil},
			"no pool",
		},
	})
	if diff := cmp.Diff([]string{"g", "n", "s"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := ids(nil); len(got) != 0 {
		t.Error(got)
	}
}

// A kind with nothing but a name is planned by the general rules; what its descriptor says changes them.
func TestDescriptor(t *testing.T) {
	disk := func(name, id string, attrs map[string]any) plan.Observed { return made("disk", named(name), id, attrs) }
	size := []drivers.Attribute{{Name: "size"}}
	want := []plan.Desired{{Kind: "disk", Identity: named("x"), Attrs: map[string]any{"size": int64(2)}}}
	blocked := plan.Input{
		Observed: []plan.Observed{disk("x", "d1", nil)}, Prune: true, Blocked: map[string]string{"d1": "later"},
	}
	for _, c := range []struct {
		name       string
		descriptor plan.Descriptor
		in         plan.Input
		want       []string
	}{
		{"made", plan.Descriptor{}, plan.Input{Desired: want}, []string{"create disk x"}},
		{"changed", plan.Descriptor{Attributes: size}, plan.Input{
			Desired: want, Observed: []plan.Observed{disk("x", "d1", map[string]any{"size": 1.0})},
		}, []string{"update disk x d1"}},
		{"the same in another form", plan.Descriptor{Attributes: size}, plan.Input{
			Desired: want, Observed: []plan.Observed{disk("x", "d1", map[string]any{"size": 2.0})},
		}, nil},
		{"not compared", plan.Descriptor{Attributes: size, Uncompared: []string{"size"}}, plan.Input{
			Desired: want, Observed: []plan.Observed{disk("x", "d1", map[string]any{"size": 1.0})},
		}, nil},
		{"read only", plan.Descriptor{ReadOnly: true}, plan.Input{Desired: want}, nil},
		{"not to be deleted for now", plan.Descriptor{}, blocked, []string{"delete disk x d1 ..."}},
		{"replaced", plan.Descriptor{Unfit: func(*plan.Match) string { return "it is worn" }}, plan.Input{
			Desired: want, Observed: []plan.Observed{disk("x", "d1", nil)}, Prune: true,
		}, []string{"create disk x gone(d1)", "delete disk x d1"}},
		{"deleted with its container", plan.Descriptor{
			Container: plan.Container{Kind: "machine", Attribute: "machine_id"},
		}, plan.Input{
			Observed: []plan.Observed{
				disk("x", "d1", map[string]any{"machine_id": "m1"}), made("machine", named("m"), "m1", nil),
			},
			Prune: true, Dependants: uses(map[string][]plan.Observed{"m1": {disk("x", "d1", nil)}}),
		}, []string{"delete machine m m1"}},
		{"released", plan.Descriptor{Releases: []drivers.Kind{"machine"}}, plan.Input{
			Observed: []plan.Observed{disk("x", "d1", nil)}, Prune: true,
			Dependants: uses(map[string][]plan.Observed{"d1": {made("machine", named("m"), "m1", nil)}}),
		}, []string{"delete disk x d1"}},
		{"expanded", plan.Descriptor{Full: func(*plan.Desired) bool { return true }}, plan.Input{
			Desired:  []plan.Desired{{Kind: "disk", Identity: named("x"), Expand: 2}},
			Observed: []plan.Observed{disk("x", "d1", nil)},
		}, []string{"create disk x.2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.descriptor.Kind = "disk"
			p := plan.NewKinds(c.descriptor).Compute(c.in)
			if diff := cmp.Diff(c.want, flat(p)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
