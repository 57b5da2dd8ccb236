// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/service/config"
)

// changing returns the values of two configurations with one option of each kind.
func changing(t *testing.T) (before, after *config.Values) {
	t.Helper()
	options := []config.Option{
		{Name: "place", Default: "here", StartOnly: true},
		{Name: "debug", Type: config.Boolean, Default: "false", Mutable: true},
		{Group: "g", Name: "text", Default: "t"},
		{Group: "g", Name: "still"},
	}
	load := func(text string) *config.Values {
		path := write(t, "k.conf", text)
		values, _, err := config.Load(config.Sources{Files: []string{path}}, options)
		if err != nil {
			t.Fatal(err)
		}
		return values
	}
	t.Chdir(t.TempDir())
	return load("[g]\ntext = a\nstill = s"), load("[DEFAULT]\nplace = there\ndebug = 1\n[g]\nstill = s")
}

func texts(changes []config.Change) []string {
	list := make([]string, len(changes))
	for i, c := range changes {
		list[i] = c.String()
	}
	return list
}

func TestReload(t *testing.T) {
	now, taken, refused := config.Reload(changing(t))
	want := []string{"[DEFAULT] debug: false -> true (k.conf:3)", "[g] text: a -> t (default)"}
	if diff := cmp.Diff(want, texts(taken)); diff != "" {
		t.Errorf("taken (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"[DEFAULT] place: here -> there (k.conf:2)"}, texts(refused)); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	if got := fmt.Sprintln(now.String("", "place"), now.Bool("", "debug"), now.String("g", "text"),
		now.Origin("", "place")); got != "here true t default\n" {
		t.Errorf("in force: %s", got)
	}
}

func TestMutate(t *testing.T) {
	now, taken, refused := config.Mutate(changing(t))
	if diff := cmp.Diff([]string{"[DEFAULT] debug: false -> true (k.conf:3)"}, texts(taken)); diff != "" {
		t.Errorf("taken (-want +got):\n%s", diff)
	}
	want := []string{"[DEFAULT] place: here -> there (k.conf:2)", "[g] text: a -> t (default)"}
	if diff := cmp.Diff(want, texts(refused)); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	if got := fmt.Sprintln(now.String("", "place"), now.Bool("", "debug"), now.String("g", "text"),
		now.String("g", "still")); got != "here true a s\n" {
		t.Errorf("in force: %s", got)
	}
	// What was refused is refused again, until a start takes it over.
	_, after := changing(t)
	if _, taken, refused := config.Mutate(now, after); len(taken) != 0 || len(refused) != 2 {
		t.Errorf("again: taken %v, refused %v", taken, refused)
	}
}

func TestShowChanged(t *testing.T) {
	values, _, err := load(t, config.Sources{},
		"[g]\ntext = t\ncount = 7\npath = $state_path/y\nlist = a, b\n[neutron]\npassword = hush")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	if err := values.ShowChanged(&got); err != nil {
		t.Fatal(err)
	}
	want := `[g]
count = 7                                          # kuryr.conf:3; default: 3
path = /var/lib/raven/y                            # kuryr.conf:4; default: /var/lib/raven/x

[neutron]
password = ****                                    # kuryr.conf:7; default: <None>
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestADefaultThatFailsHidesNothing: the default of path refers to an option whose own value is wrong.
func TestADefaultThatFailsHidesNothing(t *testing.T) {
	_, _, err := load(t, config.Sources{}, "[g]\npath = /x\n[DEFAULT]\nstate_path = $nowhere")
	if err == nil || !strings.Contains(err.Error(), "kuryr.conf:4: [DEFAULT] state_path: $nowhere is no known option") {
		t.Errorf("got %v", err)
	}
}

func TestDocs(t *testing.T) {
	var got strings.Builder
	if err := config.Docs(&got, append(sampleOptions(), config.Option{
		Group: "neutron", Name: "ranges", Type: config.List, Item: config.CIDR, IPVersion: 4, Declarer: "driver pod",
		StartOnly: true, Env: []string{"RANGES"},
	}), config.Group{Name: "kubernetes", Help: "group help"}); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/docs.md", got.String())
}
