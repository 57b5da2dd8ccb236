// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// decision says why specs are not run, or fail, and what is done about it: an entry of testdata/specs.yaml.
type decision struct {
	Spec     string `json:"spec"` // a regular expression for the whole name
	Run      bool   `json:"run"`  // true: it is run, and fails
	Cause    string `json:"cause"`
	Decision string `json:"decision"`

	expression *regexp.Regexp
}

func decisions(t *testing.T) []*decision {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", "specs.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var list []*decision
	if err := yaml.UnmarshalStrict(content, &list); err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		if d.Spec == "" || d.Cause == "" || d.Decision == "" {
			t.Fatalf("specs.yaml: %q: spec, cause and decision are all required", d.Spec)
		}
		if d.expression, err = regexp.Compile(d.Spec); err != nil {
			t.Fatalf("specs.yaml: %v", err)
		}
	}
	return list
}

// leftOut is the expression of the specs that are not run.
func leftOut(list []*decision) string {
	var of []string
	for _, d := range list {
		if !d.Run {
			of = append(of, d.Spec)
		}
	}
	return strings.Join(of, "|")
}

func decided(list []*decision, name string, run bool) *decision {
	for _, d := range list {
		if d.Run == run && d.expression.MatchString(name) {
			return d
		}
	}
	return nil
}

// podNetworks are the networks of RAVEN_E2E_NETWORK, as the page names them.
var podNetworks = map[string]string{
	"raven":  "with the drivers `namespace`,\n`pod`, `node` and `kubeproxy`, IPv4",
	"dual":   "with the drivers `namespace`,\n`pod`, `node` and `kubeproxy`, IPv4 and IPv6",
	"lbaas":  "with the drivers `namespace`,\n`pod`, `node` and `lbaas` (Octavia's provider ovn), IPv4",
	"policy": "with the drivers `namespace`,\n`pod`, `node`, `kubeproxy` and `networkpolicy`, IPv4",
	"bridge": "with the plugins bridge and\nhost-local in Raven's place",
}

// page is docs/conformance.md.
func page(t *testing.T, network, seed string, all []spec, list []*decision) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "# Upstream's network specs\n\n<!-- Made by `make e2e-conformance PAGE=FILE`. Causes and decisions: "+
		"test/e2e/suite/testdata/specs.yaml. -->\n\n"+
		"Kubernetes' own end-to-end tests, those with `[sig-network]`, on two real nodes %s.\n"+
		"Random order, seed %s.\n\n%s\n", podNetworks[network], seed, versions(t))
	type counts struct{ passed, failed, skipped, left int }
	groups := map[string]*counts{}
	var failed, skipped []spec
	left := map[*decision][]spec{}
	for _, one := range all {
		g := groups[one.group()]
		if g == nil {
			g = &counts{}
			groups[one.group()] = g
		}
		switch {
		case one.NumAttempts == 0:
			g.left++
			d := decided(list, one.name(), false)
			left[d] = append(left[d], one)
		case one.State == "passed":
			g.passed++
		case one.State == "skipped":
			g.skipped++
			skipped = append(skipped, one)
		default:
			g.failed++
			failed = append(failed, one)
		}
	}
	b.WriteString("## Counts\n\n| Group | Passed | Failed | Skipped by itself | Not run |\n" +
		"| --- | --- | --- | --- | --- |\n")
	var sum counts
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		g := groups[name]
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |\n", name, g.passed, g.failed, g.skipped, g.left)
		sum = counts{sum.passed + g.passed, sum.failed + g.failed, sum.skipped + g.skipped, sum.left + g.left}
	}
	fmt.Fprintf(&b, "| **All** | **%d** | **%d** | **%d** | **%d** |\n", sum.passed, sum.failed, sum.skipped, sum.left)
	b.WriteString("\n## Failed\n\n| Spec | Cause | Decision |\n| --- | --- | --- |\n")
	for _, one := range failed {
		d := cmp.Or(decided(list, one.name(), true), &decision{Cause: firstLine(one.Failure.Message), Decision: "open"})
		fmt.Fprintf(&b, "| %s | %s | %s |\n", cell(one.name()), cell(d.Cause), cell(d.Decision))
	}
	b.WriteString("\n## Skipped by themselves\n\n| Spec | Upstream's reason |\n| --- | --- |\n")
	for _, one := range skipped {
		fmt.Fprintf(&b, "| %s | %s |\n", cell(one.name()), cell(firstLine(one.Failure.Message)))
	}
	b.WriteString("\n## Not run\n\n| Specs | How many | Cause | Decision |\n| --- | --- | --- | --- |\n")
	for _, d := range list {
		if len(left[d]) > 0 {
			fmt.Fprintf(&b, "| `%s` | %d | %s | %s |\n", cell(d.Spec), len(left[d]), cell(d.Cause), cell(d.Decision))
		}
	}
	if some := left[nil]; len(some) > 0 {
		fmt.Fprintf(&b, "| others | %d | not chosen by FOCUS and SKIP of this run | |\n", len(some))
	}
	b.WriteString("\n## Passed\n\n")
	for _, one := range all {
		if one.NumAttempts > 0 && one.State == "passed" {
			fmt.Fprintf(&b, "- %s\n", one.name())
		}
	}
	return b.String()
}

// group is what a spec is about: the text after [sig-network].
func (s spec) group() string {
	for _, text := range s.ContainerHierarchyTexts {
		text = strings.TrimPrefix(text, "[sig-network] ")
		return text
	}
	return s.LeafNodeText
}

// cell is a text as a cell of a Markdown table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// versions are those of the servers, as a list.
func versions(t *testing.T) string {
	t.Helper()
	of := []struct {
		what    string
		command []string
	}{
		{"Kubernetes", []string{filepath.Join(world.stack.Tools().Kubelet, "kubelet"), "--version"}},
		{"OVN", []string{"ovn-controller", "--version"}},
		{"Neutron", []string{"dpkg-query", "-W", "-f", "${Version}", "python3-neutron"}},
	}
	var b strings.Builder
	for _, one := range of {
		text, err := exec.CommandContext(context.WithoutCancel(t.Context()), one.command[0], one.command[1:]...).Output()
		if err != nil {
			t.Fatalf("asking for the version of %s: %v", one.what, err)
		}
		fmt.Fprintf(&b, "- %s: %s\n", one.what, firstLine(string(text)))
	}
	return b.String()
}
